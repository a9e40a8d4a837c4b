"""Who is let in when more come than there is room for."""

from __future__ import annotations

from typing import Any

from dtctl.agent.link.acceptor import PLACES, PROOF_S, Caller, in_turn, surplus

NO_SOCKET: Any = None


def strangers(address: str, count: int, since: float) -> list[Caller]:
    return [Caller(NO_SOCKET, address, since + number / 1000) for number in range(count)]


def test_as_long_as_there_is_room_nobody_has_to_go() -> None:
    assert surplus(strangers("10.0.0.1", PLACES, 0.0)) == []


def test_of_one_address_the_oldest_goes() -> None:
    some = strangers("10.0.0.1", PLACES + 2, 0.0)
    assert surplus(some[::-1]) == some[:2]


def test_a_flood_from_one_address_costs_no_other_its_place() -> None:
    old = strangers("10.0.0.2", 3, 0.0)
    flood = strangers("10.0.0.1", 10 * PLACES, 1.0)
    going = surplus([*old, *flood])
    assert len(going) == 9 * PLACES + 3
    assert not set(going) & set(old)


def test_two_floods_share_the_places() -> None:
    everybody = [*strangers("10.0.0.1", 2 * PLACES, 0.0), *strangers("10.0.0.2", PLACES, 1.0)]
    left = set(everybody) - set(surplus(everybody))
    assert sorted(stranger.address for stranger in left) == ["10.0.0.1"] * (PLACES // 2) + ["10.0.0.2"] * (PLACES // 2)


def test_a_handshake_that_was_begun_goes_on_before_another_begins() -> None:
    first, second, third = strangers("10.0.0.1", 3, 0.0)
    third.begun = True
    assert in_turn([second, third, first]) == [third, second, first]


def test_of_one_address_the_newest_begins_first_and_the_oldest_goes_on_first() -> None:
    some = strangers("10.0.0.1", 4, 0.0)
    some[0].begun = some[1].begun = True
    assert in_turn(some) == [some[0], some[1], some[3], some[2]]


def test_a_crowd_from_one_address_makes_no_other_wait_for_its_turn() -> None:
    crowd, one = strangers("10.0.0.1", 100, 0.0), strangers("10.0.0.2", 1, 1.0)
    for caller in crowd:
        caller.begun = True
    assert one[0] in in_turn([*crowd, *one])[:2]


def test_a_place_is_held_for_five_seconds() -> None:
    assert Caller(NO_SOCKET, "10.0.0.1", 100.0).due == 100.0 + PROOF_S == 105.0
