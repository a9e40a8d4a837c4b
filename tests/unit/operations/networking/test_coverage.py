"""Who tries whom where there are too many to try everybody."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dtctl.operations.networking.coverage import MOST, spread
from dtctl.operations.networking.view import Place
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
