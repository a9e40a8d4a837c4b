"""Who tries whom, and which host a matrix of connections blames for which cause."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.rooms.check.network import Attempt, Cause, Endpoint
from dtctl.rooms.check.network.judging import MOST_PAIRS, causes_in, matrix_causes
from dtctl.rooms.check.network.tasks import distances, spread
from tests.fuzz import cases
from tests.unit.checks.network.networks import Fails, attempts, names, view

FAULTS = st.sampled_from(["timeout", "refused", "no_route"])
MODES = {"timeout": "drop", "refused": "reject", "no_route": "reject"}


def causes(count: int, fails: Fails, ports: tuple[int, ...] = (2222,)) -> tuple[Cause, ...]:
    return causes_in(view(attempts(names(count), fails, ports)))


def kinds_and_hosts(found: tuple[Cause, ...]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(one.kind, one.hosts, one.others) for one in found]


def test_one_direction_stays_one_though_a_port_is_on_one_host_alone() -> None:
    """As the coordinator's is."""
    hosts = names(5)
    tried = [
        one
        for one in attempts(hosts, lambda *_: "", ports=(2221, 2222))
        if one.endpoint.port == 2222 or one.target == "gpu-2"
    ]
    lost = [dataclasses.replace(one, hindrance="timeout") if one.pair == ("gpu-3", "gpu-2") else one for one in tried]
    assert kinds_and_hosts(causes_in(view(tuple(lost)))) == [("one_way", ("gpu-2",), ("gpu-3",))]


@cases
@given(st.integers(2, 6), FAULTS)
def test_failure_of_all_connections_is_one_cause(count: int, fault: str) -> None:
    (cause,) = causes(count, lambda source, target, port: fault)
    assert (cause.kind, set(cause.hosts), cause.fields["mode"]) == ("nobody", set(names(count)), MODES[fault])


@cases
@given(st.integers(2, 5), st.data())
def test_every_failure_has_a_cause_and_every_cause_a_failure(count: int, data: st.DataObject) -> None:
    problems = st.sampled_from(["", "", "", "timeout", "refused", "silent", "cut_off", "other_host", "stranger"])
    tried = attempts(names(count), lambda *_: data.draw(problems), ports=(2222, 2223))
    failed = {one.pair for one in tried if one.hindrance}
    found = causes_in(view(tried))
    assert bool(found) == bool(failed)
    concerned = [{*one.hosts, *one.others} for one in found]
    assert all(any(set(pair) <= each for each in concerned) for pair in failed)
    assert {host for each in concerned for host in each} <= {host for pair in failed for host in pair}


REFUSED = {"mode": "reject", "text": "Connection refused"}
DROPPED = {"mode": "drop"}


def found(tried: tuple[Attempt, ...]) -> list[Cause]:
    return matrix_causes(tried, [one for one in tried if one.hindrance])


def causes_of(count: int, fails: Fails, ports: tuple[int, ...] = (2222,)) -> list[Cause]:
    return found(attempts(names(count), fails, ports))


def between(*ways: tuple[int, int], fault: str = "timeout") -> Fails:
    """What fails from a host to another, by their numbers."""
    lost = {(f"gpu-{source}", f"gpu-{target}") for source, target in ways}
    return lambda source, target, port: fault if (source, target) in lost else ""


def shut(*hosts: str, port: int | None = None, fault: str = "timeout") -> Fails:
    """What comes in to these hosts fails, at one port or all."""
    return lambda source, target, to: fault if target in hosts and port in (None, to) else ""


def mute(host: str, port: int | None = None) -> Fails:
    return lambda source, target, to: "timeout" if source == host and port in (None, to) else ""


G1, G2, G3, G4, G5 = names(5)
ALL, SOME = {"limited": False, **DROPPED}, {"limited": True, **DROPPED}


@pytest.mark.parametrize(
    ("count", "ports", "fails", "cause"),
    [
        (3, (1,), lambda *_: "refused", Cause("nobody", (G1, G2, G3), fields=REFUSED)),
        (
            4,
            (2223, 1),
            shut(G2, port=2223, fault="refused"),
            Cause("firewall_in", (G2,), (G1, G3, G4), {"limited": True, **REFUSED, "ports": (2223,)}),
        ),
        (4, (2, 1), shut(G2), Cause("firewall_in", (G2,), (G1, G3, G4), {**ALL, "ports": (1, 2)})),
        (3, (1,), shut(G2, G3), Cause("firewall_in", (G2, G3), (G1,), {**ALL, "ports": (1,)})),
        (5, (1,), shut(G2, G4), Cause("firewall_in", (G2, G4), (G1, G3, G5), {**ALL, "ports": (1,)})),
        (4, (2, 1), mute(G2), Cause("firewall_out", (G2,), (G1, G3, G4), ALL)),
        (4, (2, 1), mute(G2, 1), Cause("firewall_out", (G2,), (G1, G3, G4), {**SOME, "ports": (1,)})),
        (
            4,
            (1,),
            lambda source, target, port: "timeout" if target == G2 else "refused" if source == G2 else "",
            Cause("cut_off", (G2,), (G1, G3, G4), ALL),
        ),
        (5, (1,), between((1, 5), (2, 5)), Cause("one_way", (G5,), (G1, G2), {**DROPPED, "ports": (1,)})),
    ],
)
def test_one_cause_has_its_hosts_its_ports_and_how_it_fails(
    count: int, ports: tuple[int, ...], fails: Fails, cause: Cause
) -> None:
    assert causes_of(count, fails, ports) == [cause]


@pytest.mark.parametrize(
    ("source", "target", "kind", "hosts"),
    [(None, "gpu-1", "firewall_in", ("gpu-1",)), ("gpu-1", None, "firewall_out", ("gpu-1",))],
)
def test_where_one_host_alone_was_tried_or_has_tried_it_is_its_fault(
    source: str | None, target: str | None, kind: str, hosts: tuple[str, ...]
) -> None:
    tried = attempts(names(4), lambda *_: "timeout")
    causes = found(tuple(one for one in tried if source in (None, one.source) and target in (None, one.target)))
    assert [(cause.kind, cause.hosts) for cause in causes] == [(kind, hosts)]


def test_partition_is_reported_by_its_groups_without_the_largest_smallest_first() -> None:
    groups = [{1, 2, 3}, {4, 5}, {6, 7, 8, 9}]
    of = {f"gpu-{number}": index for index, group in enumerate(groups) for number in group}
    causes = causes_of(9, lambda source, target, port: "" if of[source] == of[target] else "refused")
    parts = (("gpu-4", "gpu-5"), ("gpu-1", "gpu-2", "gpu-3"))
    rest = [tuple(name for name in names(9) if name not in part) for part in parts]
    assert causes == [Cause("partition", part, other, REFUSED) for part, other in zip(parts, rest, strict=True)]


def test_host_with_some_incoming_and_all_outgoing_blocked_is_reported_for_each() -> None:
    causes = causes_of(
        4, lambda source, target, port: "timeout" if source == "gpu-2" or (target, port) == ("gpu-2", 1) else "", (1, 2)
    )
    assert {(cause.kind, cause.hosts, cause.fields["limited"]) for cause in causes} == {
        ("firewall_in", ("gpu-2",), True),
        ("firewall_out", ("gpu-2",), False),
    }


def test_two_connections_to_a_port_are_enough_to_blame_its_host() -> None:
    (cause,) = causes_of(3, lambda source, target, port: "timeout" if (target, port) == ("gpu-2", 1) else "", (1, 2))
    assert (cause.kind, cause.hosts) == ("firewall_in", ("gpu-2",))


def test_pairs_tested_with_no_other_host_are_reported_as_pairs() -> None:
    ways = {(1, 2), (3, 4), (5, 6), (6, 5)}
    tried = tuple(
        one for one in attempts(names(6), between((1, 2), (3, 4))) if (int(one.source[4:]), int(one.target[4:])) in ways
    )
    assert [(cause.kind, cause.hosts) for cause in found(tried)] == [("pair", ("gpu-2",)), ("pair", ("gpu-4",))]


WAYS = [(1, 2), (3, 4), (5, 6), (7, 8), (2, 3), (4, 5), (6, 7)]


def test_as_many_pairs_as_fit_are_reported_one_by_one_and_more_are_scattered() -> None:
    causes = causes_of(9, between(*WAYS[:MOST_PAIRS]))
    assert sorted((cause.kind, cause.others, cause.hosts) for cause in causes) == sorted(
        ("one_way", (f"gpu-{source}",), (f"gpu-{target}",)) for source, target in WAYS[:MOST_PAIRS]
    )
    (cause,) = causes_of(9, between(*WAYS[: MOST_PAIRS + 1]))
    hosts, others = tuple(f"gpu-{n}" for n in range(2, 9)), tuple(f"gpu-{n}" for n in range(1, 8))
    assert cause == Cause("scattered", hosts, others, {"failed": 7, "tried": 72, **DROPPED})


def test_both_directions_of_a_pair_count_once() -> None:
    both = [way for source, target in WAYS[:4] for way in ((source, target), (target, source))]
    causes = causes_of(9, between(*both))
    assert [(cause.kind, cause.hosts, cause.others) for cause in causes] == [
        ("pair", (f"gpu-{target}",), (f"gpu-{source}",)) for source, target in WAYS[:4]
    ]


def test_a_pair_has_its_ports_and_how_it_fails() -> None:
    fails = between((1, 2), (2, 1), (1, 3), fault="refused")
    causes = {cause.kind: cause for cause in causes_of(4, fails, (2223, 2222))}
    assert causes["pair"].fields == {"ports": (2222, 2223), **REFUSED}
    assert causes["one_way"].fields == {"ports": (2222, 2223), **REFUSED}


def endpoints(hosts: list[str], each: int = 1) -> list[Endpoint]:
    return [
        Endpoint(f"worker:{host}-{number}", host, f"{host}:{2222 + number}") for host in hosts for number in range(each)
    ]


@cases
@given(st.integers(2, 300), st.integers(1, 4), st.integers(50, 5000))
def test_every_host_tests_and_is_tested_but_never_by_itself(count: int, each: int, most: int) -> None:
    hosts = [f"h{number}" for number in range(count)]
    coverage = spread(hosts, endpoints(hosts, each), most=most)
    tried = [(source, endpoint.host) for source, found in coverage.tries.items() for endpoint in found]
    assert {source for source, _ in tried} == {target for _, target in tried} == set(hosts)
    assert not any(source == target for source, target in tried)
    assert coverage.count == len(tried)
    assert coverage.count <= max(most, count * each)
    assert coverage.is_whole == (coverage.whole <= most)


def test_as_many_connections_as_may_be_are_the_whole_and_one_fewer_is_not() -> None:
    hosts = [f"h{number}" for number in range(4)]
    whole = spread(hosts, endpoints(hosts), most=12)
    assert (whole.is_whole, whole.count, whole.partners) == (True, 12, 3)
    part = spread(hosts, endpoints(hosts), most=11)
    assert (part.is_whole, part.count, part.whole, part.partners) == (False, 8, 12, 2)


def test_number_of_partners_is_limited_by_the_other_hosts() -> None:
    hosts = [f"h{number}" for number in range(4)]
    coverage = spread(hosts, [*endpoints(hosts), *endpoints(hosts[:3], 2)[1::2]], most=20)
    assert (coverage.whole, coverage.partners) == (21, 3)


def test_single_host_has_no_partner() -> None:
    for hosts in ([], ["a"]):
        alone = spread(hosts, endpoints(hosts))
        assert (alone.count, alone.partners, alone.is_whole) == (0, 0, True)


def test_there_is_one_partner_at_least_however_few_connections_may_be() -> None:
    hosts = [f"h{number}" for number in range(4)]
    assert spread(hosts, endpoints(hosts, 3), most=1).partners == 1


@pytest.mark.parametrize(
    ("hosts", "partners", "steps"), [(2, 1, [1]), (10, 3, [1, 4, 7]), (10, 9, list(range(1, 10))), (9, 3, [1, 3, 6])]
)
def test_steps_are_spread_evenly_from_the_nearest_on(hosts: int, partners: int, steps: list[int]) -> None:
    assert distances(hosts, partners) == steps


def test_half_of_the_room_is_for_vital_places_in_turn_and_the_rest_for_partners() -> None:
    hosts = [f"h{number}" for number in range(10)]
    vital = [Endpoint(f"ps:{number}", hosts[number], f"{hosts[number]}:2300") for number in range(4)]
    coverage = spread(hosts, [*vital, *endpoints(hosts)], vital, most=40)
    assert coverage.partners == 2
    tried = {host: [endpoint.whose for endpoint in found] for host, found in coverage.tries.items()}
    assert tried["h5"] == ["ps:2", "ps:3", "worker:h6-0", "ps:0", "worker:h0-0"]
    assert tried["h0"] == ["ps:1", "ps:2", "worker:h1-0", "worker:h5-0"]
    assert tried["h1"] == ["ps:3", "ps:0", "ps:2", "worker:h2-0", "worker:h6-0"]
