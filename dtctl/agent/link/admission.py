"""Which connections to keep when there are more than there is room for: pure functions.

A stranger has not knocked. It holds a place for a moment at most, and the address that holds the most places loses one
first; so an agent gets in, if need be beside a flood from its own host. The same holds for those who have knocked and
do not go on with the handshake.
"""

from __future__ import annotations

from collections import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple, TypeVar

    AnyGuest = TypeVar("AnyGuest", bound="Guest")

PLACES = 256
"""For strangers, and as many for those who have knocked: at 3,000 strangers a second one has 85 ms to knock."""

PROOF_S = 5.0
"""From the start of a connection to the end of the handshake, and from there to the hello."""


class Guest:
    """`begun`: so has its handshake."""

    def __init__(self, address: str, since: float) -> None:
        self.address = address
        self.since = since
        self.begun = False

    @property
    def due(self) -> float:
        return self.since + PROOF_S


def in_turn(guests: Sequence[AnyGuest]) -> List[AnyGuest]:
    """As their handshakes go on: one of each address first, then another of each, and so on.

    Of one address those that have begun come first, so that their work is not in vain, and then the newest: they have
    the longest time before their place is lost.
    """
    ordered = sorted(guests, key=lambda guest: (not guest.begun, guest.since if guest.begun else -guest.since))
    turns: Counter[str] = Counter()
    keyed: List[Tuple[int, int, AnyGuest]] = []
    for guest in ordered:
        keyed.append((turns[guest.address], len(keyed), guest))
        turns[guest.address] += 1
    return [guest for _, _, guest in sorted(keyed, key=lambda each: each[:2])]


def surplus(guests: Sequence[AnyGuest], places: int = PLACES) -> List[AnyGuest]:
    """Connections to close so that at most `places` are left: each time the oldest of the busiest address."""
    if len(guests) <= places:
        return []
    held: Dict[str, List[AnyGuest]] = {}
    for guest in sorted(guests, key=lambda guest: guest.since, reverse=True):
        held.setdefault(guest.address, []).append(guest)
    going: List[AnyGuest] = []
    while len(guests) - len(going) > places:
        busiest = max(held.values(), key=lambda each: (len(each), -each[-1].since if each else 0.0))
        going.append(busiest.pop())
    return going
