"""Who is let in when more come than there is room for: pure functions of who is there.

A stranger has not shown the run's knock. It holds a place for a moment at most, and the address that holds the most
places loses one first; so an agent gets in, if need be beside a flood from its own host.
"""

from __future__ import annotations

from collections import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence, TypeVar

    AnyGuest = TypeVar("AnyGuest", bound="Guest")

PLACES = 64
"""For strangers, and as many for those who have knocked and are in the handshake."""

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
    """As their handshakes go on: those that have got further first, so that work that was begun is not in vain."""
    return sorted(guests, key=lambda guest: (not guest.begun, guest.since))


def surplus(strangers: Sequence[AnyGuest]) -> List[AnyGuest]:
    """Those who have to go so that no more than PLACES are left: each the oldest of the busiest address."""
    left = sorted(strangers, key=lambda stranger: stranger.since)
    held = Counter(stranger.address for stranger in left)
    going: List[AnyGuest] = []
    while len(left) > PLACES:
        going.append(max(left, key=lambda stranger: held[stranger.address]))  # the first of those that are equal
        left.remove(going[-1])
        held[going[-1].address] -= 1
    return going
