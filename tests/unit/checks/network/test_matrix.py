"""Who tries whom, and which host a matrix of connections blames for which cause."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.operations.checks.network import Attempt, Cause, Endpoint
from dtctl.operations.checks.network.judging import MOST_PAIRS, judge, matrix_causes
from dtctl.operations.checks.network.tasks import MOST, distances, spread
from tests.fuzz import cases
from tests.unit.checks.network.networks import Fails, attempts, endpoint, names, view

FAULTS = st.sampled_from(["timeout", "refused", "no_route"])
MODES = {"timeout": "drop", "refused": "reject", "no_route": "reject"}


def causes(count: int, fails: Fails, ports: tuple[int, ...] = (2222,)) -> tuple[Cause, ...]:
    return judge(view(attempts(names(count), fails, ports)))


def kinds_and_hosts(found: tuple[Cause, ...]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(one.kind, one.hosts, one.others) for one in found]


def test_a_network_without_failures_has_no_causes() -> None:
    assert causes(4, lambda source, target, port: "") == ()


@cases
@given(st.integers(3, 7), st.data(), FAULTS)
def test_a_host_that_nobody_reaches_has_a_firewall_and_no_other_is_blamed(
    count: int, data: st.DataObject, fault: str
) -> None:
    shut = data.draw(st.sampled_from(names(count)))
    (cause,) = causes(count, lambda source, target, port: fault if target == shut else "")
    assert (cause.kind, cause.hosts, cause.fields["mode"]) == ("firewall_in", (shut,), MODES[fault])
    assert set(cause.others) == set(names(count)) - {shut}


@cases
@given(st.integers(3, 7), st.data(), FAULTS)
def test_a_host_that_reaches_nobody_has_one_for_what_goes_out(count: int, data: st.DataObject, fault: str) -> None:
    mute = data.draw(st.sampled_from(names(count)))
    (cause,) = causes(count, lambda source, target, port: fault if source == mute else "")
    assert (cause.kind, cause.hosts, cause.fields["mode"]) == ("firewall_out", (mute,), MODES[fault])


@cases
@given(st.integers(3, 7), st.data())
def test_a_host_that_is_cut_off_both_ways_is_reported_once(count: int, data: st.DataObject) -> None:
    alone = data.draw(st.sampled_from(names(count)))
    found = causes(count, lambda source, target, port: "timeout" if alone in (source, target) else "")
    assert [(one.kind, one.hosts) for one in found] == [("cut_off", (alone,))]


@cases
@given(st.integers(3, 7), st.data())
def test_one_direction_between_two_hosts_blames_either_of_them(count: int, data: st.DataObject) -> None:
    source, target = data.draw(st.permutations(names(count)))[:2]
    found = causes(count, lambda *pair: "timeout" if pair[:2] == (source, target) else "")
    assert kinds_and_hosts(found) == [("one_way", (target,), (source,))]


def test_one_direction_stays_one_though_a_port_is_on_one_host_alone() -> None:
    """As the coordinator's is."""
    hosts = names(5)
    tried = [
        one
        for one in attempts(hosts, lambda *_: "", ports=(2221, 2222))
        if one.endpoint.port == 2222 or one.target == "gpu-2"
    ]
    lost = [dataclasses.replace(one, hindrance="timeout") if one.pair == ("gpu-3", "gpu-2") else one for one in tried]
    assert kinds_and_hosts(judge(view(tuple(lost)))) == [("one_way", ("gpu-2",), ("gpu-3",))]


def test_of_two_hosts_one_direction_blames_either_of_them() -> None:
    found = causes(2, lambda source, target, port: "refused" if source == "gpu-1" else "")
    assert kinds_and_hosts(found) == [("one_way", ("gpu-2",), ("gpu-1",))]
    assert found[0].fields["text"] == "Connection refused"


@cases
@given(st.integers(2, 4), st.integers(2, 4))
def test_groups_that_do_not_reach_each_other_are_a_partition(left: int, right: int) -> None:
    group = set(names(left + right)[:left])
    (cause,) = causes(
        left + right, lambda source, target, port: "timeout" if (source in group) != (target in group) else ""
    )
    assert cause.kind == "partition"
    assert {frozenset(cause.hosts), frozenset(cause.others)} == {
        frozenset(group),
        frozenset(set(names(left + right)) - group),
    }


@cases
@given(st.integers(2, 6), FAULTS)
def test_where_nobody_reaches_anybody_no_host_is_singled_out(count: int, fault: str) -> None:
    (cause,) = causes(count, lambda source, target, port: fault)
    assert (cause.kind, set(cause.hosts), cause.fields["mode"]) == ("nobody", set(names(count)), MODES[fault])


def test_a_port_that_is_closed_on_every_host_is_one_cause_for_all_of_them() -> None:
    found = causes(4, lambda source, target, port: "refused" if port == 2223 else "", ports=(2222, 2223))
    assert [(one.kind, set(one.hosts), one.fields["ports"]) for one in found] == [
        ("firewall_in", set(names(4)), (2223,))
    ]


def test_two_firewalls_are_two_causes() -> None:
    found = causes(
        5, lambda source, target, port: "timeout" if target == "gpu-2" else "refused" if target == "gpu-4" else ""
    )
    assert {(one.kind, one.hosts, one.fields["mode"]) for one in found} == {
        ("firewall_in", ("gpu-2",), "drop"),
        ("firewall_in", ("gpu-4",), "reject"),
    }


def test_a_host_shut_for_what_comes_in_beside_one_shut_for_what_goes_out() -> None:
    found = causes(5, lambda source, target, port: "timeout" if target == "gpu-2" or source == "gpu-3" else "")
    assert {(one.kind, one.hosts) for one in found} == {("firewall_in", ("gpu-2",)), ("firewall_out", ("gpu-3",))}


@cases
@given(st.integers(2, 5), st.data())
def test_every_failure_has_a_cause_and_every_cause_a_failure(count: int, data: st.DataObject) -> None:
    problems = st.sampled_from(["", "", "", "timeout", "refused", "silent", "cut_off", "other_host", "stranger"])
    tried = attempts(names(count), lambda *_: data.draw(problems), ports=(2222, 2223))
    failed = {one.pair for one in tried if one.hindrance}
    found = judge(view(tried))
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


def test_one_working_connection_excludes_a_closed_host() -> None:
    causes = causes_of(4, lambda source, target, port: "" if (source, target) == ("gpu-1", "gpu-2") else "timeout")
    assert "nobody" not in [cause.kind for cause in causes]


def test_what_else_explains_is_neither_reached_nor_lost() -> None:
    tried = attempts(names(4), lambda source, target, port: "timeout" if target == "gpu-1" else "")
    odd = tuple(dataclasses.replace(one, hindrance="unresolved") if one.source == "gpu-2" else one for one in tried)
    lost = [one for one in odd if one.hindrance == "timeout"]
    (cause,) = matrix_causes(odd, lost)
    assert (cause.kind, cause.hosts, cause.others) == ("firewall_in", ("gpu-1",), ("gpu-3", "gpu-4"))


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


def test_of_the_groups_of_a_partition_each_but_the_largest_is_reported_the_smallest_first() -> None:
    groups = [{1, 2, 3}, {4, 5}, {6, 7, 8, 9}]
    of = {f"gpu-{number}": index for index, group in enumerate(groups) for number in group}
    causes = causes_of(9, lambda source, target, port: "" if of[source] == of[target] else "refused")
    parts = (("gpu-4", "gpu-5"), ("gpu-1", "gpu-2", "gpu-3"))
    rest = [tuple(name for name in names(9) if name not in part) for part in parts]
    assert causes == [Cause("partition", part, other, REFUSED) for part, other in zip(parts, rest, strict=True)]


def test_groups_of_which_one_reaches_the_other_are_no_partition() -> None:
    one_way = [(source, target) for source in (1, 2) for target in (3, 4)]
    causes = causes_of(4, between(*one_way))
    assert "partition" not in [cause.kind for cause in causes]
    both = [*one_way, *((target, source) for source, target in one_way)]
    assert [cause.kind for cause in causes_of(4, between(*both))] == ["partition"]


def test_groups_of_which_one_reaches_another_are_one_and_apart_from_the_rest() -> None:
    """1 and 2 reach 3 and 4, which do not reach them; 5 and 6 reach nobody."""
    of = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2}
    lost = [(a, b) for a in of for b in of if of[a] != of[b] and (of[a], of[b]) != (0, 1)]
    (cause, *rest) = causes_of(6, between(*lost))
    assert (cause.kind, cause.hosts, cause.others) == ("partition", ("gpu-5", "gpu-6"), tuple(names(4)))
    assert {one.kind for one in rest} == {"one_way"}


def test_what_fails_inside_a_group_is_reported_beside_the_partition() -> None:
    of = {"gpu-1": 0, "gpu-2": 0, "gpu-3": 0, "gpu-4": 1, "gpu-5": 1}
    causes = causes_of(
        5,
        lambda source, target, port: (
            "refused" if (source, target) == ("gpu-1", "gpu-2") else "" if of[source] == of[target] else "timeout"
        ),
    )
    assert [(cause.kind, cause.hosts, cause.others) for cause in causes[1:]] == [("one_way", ("gpu-2",), ("gpu-1",))]
    assert causes[0].fields["mode"] == "drop"


def test_a_host_that_is_shut_both_ways_at_some_ports_is_reported_for_each_way() -> None:
    causes = causes_of(
        4, lambda source, target, port: "timeout" if "gpu-2" in (source, target) and port == 1 else "", (1, 2)
    )
    assert [(cause.kind, cause.hosts, cause.fields["ports"]) for cause in causes] == [
        ("firewall_in", ("gpu-2",), (1,)),
        ("firewall_out", ("gpu-2",), (1,)),
    ]


def test_a_host_that_is_shut_for_some_of_what_comes_in_and_all_that_goes_out_is_reported_for_each_way() -> None:
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


def test_of_two_ends_that_were_tried_with_nobody_else_neither_is_blamed() -> None:
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


def test_a_way_back_that_was_never_tried_is_no_way_back() -> None:
    tried = tuple(one for one in attempts(names(4), between((3, 2))) if one.pair != ("gpu-2", "gpu-3"))
    assert [(cause.kind, cause.hosts, cause.others) for cause in found(tried)] == [("pair", ("gpu-2",), ("gpu-3",))]


def test_where_some_are_refused_and_some_dropped_the_systems_word_is_that_of_the_refusal() -> None:
    fails = {"gpu-1": "timeout", "gpu-3": "no_route", "gpu-4": "timeout"}
    tried = attempts(names(4), lambda source, target, port: fails[source] if target == "gpu-2" else "")
    (cause,) = found(tried)
    assert (cause.fields["mode"], cause.fields["text"]) == ("mixed", "No route to host")


def test_of_a_port_that_one_host_alone_has_one_connection_blames_nobody() -> None:
    tried = (*attempts(names(3), lambda *_: ""), Attempt("gpu-1", endpoint("gpu-2", 7), "10.0.0.2", "timeout"))
    assert [cause.kind for cause in found(tried)] == ["one_way"]


def test_nothing_that_failed_is_nothing_reported() -> None:
    assert matrix_causes(attempts(names(3), lambda *_: "timeout"), []) == []


def endpoints(hosts: list[str], each: int = 1) -> list[Endpoint]:
    return [
        Endpoint(f"worker:{host}-{number}", host, f"{host}:{2222 + number}") for host in hosts for number in range(each)
    ]


def test_a_small_cluster_is_tried_as_a_whole() -> None:
    hosts = [f"h{number}" for number in range(8)]
    coverage = spread(hosts, endpoints(hosts, 2))
    assert coverage.is_whole
    assert coverage.count == coverage.whole == 8 * 7 * 2


@cases
@given(st.integers(2, 300), st.integers(1, 4), st.integers(50, 5000))
def test_every_host_tries_others_and_is_tried_and_nobody_tries_itself(count: int, each: int, most: int) -> None:
    hosts = [f"h{number}" for number in range(count)]
    coverage = spread(hosts, endpoints(hosts, each), most=most)
    tried = [(source, endpoint.host) for source, found in coverage.tries.items() for endpoint in found]
    assert {source for source, _ in tried} == {target for _, target in tried} == set(hosts)
    assert not any(source == target for source, target in tried)
    assert coverage.count == len(tried)
    assert coverage.count <= max(most, count * each)
    assert coverage.is_whole == (coverage.whole <= most)


def test_two_hundred_hosts_are_four_thousand_connections_and_every_ps_is_tried_by_many() -> None:
    hosts = [f"h{number}" for number in range(200)]
    vital = [Endpoint(f"ps:{number}", hosts[number], f"{hosts[number]}:2300") for number in range(8)]
    coverage = spread(hosts, [*vital, *endpoints(hosts)], vital)
    assert 0.8 * MOST < coverage.count <= MOST
    assert coverage.whole == 200 * 208 - 208
    for task in vital:
        assert sum(task in found for found in coverage.tries.values()) >= 190
    assert coverage.partners >= 8


def test_the_partners_of_a_host_are_spread_over_all_distances() -> None:
    hosts = [f"h{number:03}" for number in range(200)]
    tries = spread(hosts, endpoints(hosts)).tries["h000"]
    numbers = sorted(int(endpoint.host[1:]) for endpoint in tries)
    gaps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    assert numbers[0] == 1
    assert max(gaps) <= 2 * (200 // len(numbers)) + 1


def test_as_many_connections_as_may_be_are_the_whole_and_one_fewer_is_not() -> None:
    hosts = [f"h{number}" for number in range(4)]
    whole = spread(hosts, endpoints(hosts), most=12)
    assert (whole.is_whole, whole.count, whole.partners) == (True, 12, 3)
    part = spread(hosts, endpoints(hosts), most=11)
    assert (part.is_whole, part.count, part.whole, part.partners) == (False, 8, 12, 2)


def test_what_fits_as_a_whole_is_tried_as_a_whole_though_some_is_vital() -> None:
    hosts = [f"h{number}" for number in range(4)]
    found = endpoints(hosts)
    assert spread(hosts, found, found[:1], most=12).is_whole


def test_nobody_has_more_partners_than_there_are_others() -> None:
    hosts = [f"h{number}" for number in range(4)]
    coverage = spread(hosts, [*endpoints(hosts), *endpoints(hosts[:3], 2)[1::2]], most=20)
    assert (coverage.whole, coverage.partners) == (21, 3)


def test_one_host_has_nobody_to_try() -> None:
    for hosts in ([], ["a"]):
        alone = spread(hosts, endpoints(hosts))
        assert (alone.count, alone.partners, alone.is_whole) == (0, 0, True)


def test_there_is_one_partner_at_least_however_few_connections_may_be() -> None:
    hosts = [f"h{number}" for number in range(4)]
    assert spread(hosts, endpoints(hosts, 3), most=1).partners == 1


def test_hosts_with_several_places_have_fewer_partners() -> None:
    hosts = [f"h{number}" for number in range(10)]
    coverage = spread(hosts, endpoints(hosts, 3), most=90)
    assert (coverage.count, coverage.partners) == (90, 3)


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


def test_few_vital_places_are_tried_from_everywhere_once() -> None:
    hosts = [f"h{number}" for number in range(10)]
    vital = [Endpoint(f"ps:{number}", hosts[number], f"{hosts[number]}:2300") for number in range(2)]
    tries = spread(hosts, [*vital, *endpoints(hosts)], vital, most=40).tries
    assert [endpoint.whose for endpoint in tries["h5"][:2]] == ["ps:0", "ps:1"]
    assert [endpoint.whose for endpoint in tries["h0"][:2]] == ["ps:1", "worker:h1-0"]
