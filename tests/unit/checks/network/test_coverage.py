"""Who tries whom where there are too many to try everybody."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.operations.checks.network.tasks import MOST, distances, spread
from dtctl.operations.checks.network.view import Place
from tests.fuzz import cases


def places(hosts: list[str], each: int = 1) -> list[Place]:
    return [
        Place(f"worker:{host}-{number}", host, f"{host}:{2222 + number}") for host in hosts for number in range(each)
    ]


def test_a_small_cluster_is_tried_as_a_whole() -> None:
    hosts = [f"h{number}" for number in range(8)]
    coverage = spread(hosts, places(hosts, 2))
    assert coverage.is_whole
    assert coverage.count == coverage.whole == 8 * 7 * 2


@cases
@given(st.integers(2, 300), st.integers(1, 4), st.integers(50, 5000))
def test_every_host_tries_others_and_is_tried_and_nobody_tries_itself(count: int, each: int, most: int) -> None:
    hosts = [f"h{number}" for number in range(count)]
    coverage = spread(hosts, places(hosts, each), most=most)
    tried = [(source, place.host) for source, found in coverage.tries.items() for place in found]
    assert {source for source, _ in tried} == {target for _, target in tried} == set(hosts)
    assert not any(source == target for source, target in tried)
    assert coverage.count == len(tried)
    assert coverage.count <= max(most, count * each)
    assert coverage.is_whole == (coverage.whole <= most)


def test_two_hundred_hosts_are_four_thousand_connections_and_every_ps_is_tried_by_many() -> None:
    hosts = [f"h{number}" for number in range(200)]
    vital = [Place(f"ps:{number}", hosts[number], f"{hosts[number]}:2300") for number in range(8)]
    coverage = spread(hosts, [*vital, *places(hosts)], vital)
    assert 0.8 * MOST < coverage.count <= MOST
    assert coverage.whole == 200 * 208 - 208
    for place in vital:
        assert sum(place in found for found in coverage.tries.values()) >= 190
    assert coverage.partners >= 8


def test_the_partners_of_a_host_are_spread_over_all_distances() -> None:
    hosts = [f"h{number:03}" for number in range(200)]
    tries = spread(hosts, places(hosts)).tries["h000"]
    numbers = sorted(int(place.host[1:]) for place in tries)
    gaps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    assert numbers[0] == 1
    assert max(gaps) <= 2 * (200 // len(numbers)) + 1


def test_as_many_connections_as_may_be_are_the_whole_and_one_fewer_is_not() -> None:
    hosts = [f"h{number}" for number in range(4)]
    whole = spread(hosts, places(hosts), most=12)
    assert (whole.is_whole, whole.count, whole.partners) == (True, 12, 3)
    part = spread(hosts, places(hosts), most=11)
    assert (part.is_whole, part.count, part.whole, part.partners) == (False, 8, 12, 2)


def test_what_fits_as_a_whole_is_tried_as_a_whole_though_some_is_vital() -> None:
    hosts = [f"h{number}" for number in range(4)]
    found = places(hosts)
    assert spread(hosts, found, found[:1], most=12).is_whole


def test_nobody_has_more_partners_than_there_are_others() -> None:
    hosts = [f"h{number}" for number in range(4)]
    coverage = spread(hosts, [*places(hosts), *places(hosts[:3], 2)[1::2]], most=20)
    assert (coverage.whole, coverage.partners) == (21, 3)


def test_one_host_has_nobody_to_try() -> None:
    for hosts in ([], ["a"]):
        alone = spread(hosts, places(hosts))
        assert (alone.count, alone.partners, alone.is_whole) == (0, 0, True)


def test_there_is_one_partner_at_least_however_few_connections_may_be() -> None:
    hosts = [f"h{number}" for number in range(4)]
    assert spread(hosts, places(hosts, 3), most=1).partners == 1


def test_hosts_with_several_places_have_fewer_partners() -> None:
    hosts = [f"h{number}" for number in range(10)]
    coverage = spread(hosts, places(hosts, 3), most=90)
    assert (coverage.count, coverage.partners) == (90, 3)


@pytest.mark.parametrize(
    ("hosts", "partners", "steps"), [(2, 1, [1]), (10, 3, [1, 4, 7]), (10, 9, list(range(1, 10))), (9, 3, [1, 3, 6])]
)
def test_steps_are_spread_evenly_from_the_nearest_on(hosts: int, partners: int, steps: list[int]) -> None:
    assert distances(hosts, partners) == steps


def test_half_of_the_room_is_for_vital_places_in_turn_and_the_rest_for_partners() -> None:
    hosts = [f"h{number}" for number in range(10)]
    vital = [Place(f"ps:{number}", hosts[number], f"{hosts[number]}:2300") for number in range(4)]
    coverage = spread(hosts, [*vital, *places(hosts)], vital, most=40)
    assert coverage.partners == 2
    tried = {host: [place.whose for place in found] for host, found in coverage.tries.items()}
    assert tried["h5"] == ["ps:2", "ps:3", "worker:h6-0", "ps:0", "worker:h0-0"]
    assert tried["h0"] == ["ps:1", "ps:2", "worker:h1-0", "worker:h5-0"]
    assert tried["h1"] == ["ps:3", "ps:0", "ps:2", "worker:h2-0", "worker:h6-0"]


def test_few_vital_places_are_tried_from_everywhere_once() -> None:
    hosts = [f"h{number}" for number in range(10)]
    vital = [Place(f"ps:{number}", hosts[number], f"{hosts[number]}:2300") for number in range(2)]
    tries = spread(hosts, [*vital, *places(hosts)], vital, most=40).tries
    assert [place.whose for place in tries["h5"][:2]] == ["ps:0", "ps:1"]
    assert [place.whose for place in tries["h0"][:2]] == ["ps:1", "worker:h1-0"]
