"""What is told with a cause of the matrix, and where one kind of cause ends and another begins."""

from __future__ import annotations

import dataclasses

import pytest

from dtctl.operations.checks.network.judging import MOST_PAIRS, matrix_causes
from dtctl.operations.checks.network.view import Attempt, Cause
from tests.unit.checks.network.networks import Fails, attempts, names, place

REFUSED = {"mode": "reject", "text": "Connection refused"}
DROPPED = {"mode": "drop"}


def found(tried: tuple[Attempt, ...]) -> list[Cause]:
    return matrix_causes(tried, [one for one in tried if one.hindrance])


def causes(count: int, fails: Fails, ports: tuple[int, ...] = (2222,)) -> list[Cause]:
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
    assert causes(count, fails, ports) == [cause]


def test_one_connection_that_is_made_is_enough_for_not_nobody() -> None:
    told = causes(4, lambda source, target, port: "" if (source, target) == ("gpu-1", "gpu-2") else "timeout")
    assert "nobody" not in [cause.kind for cause in told]


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
    told = found(tuple(one for one in tried if source in (None, one.source) and target in (None, one.target)))
    assert [(cause.kind, cause.hosts) for cause in told] == [(kind, hosts)]


def test_of_the_groups_of_a_partition_each_but_the_largest_is_told_the_smallest_first() -> None:
    groups = [{1, 2, 3}, {4, 5}, {6, 7, 8, 9}]
    of = {f"gpu-{number}": index for index, group in enumerate(groups) for number in group}
    told = causes(9, lambda source, target, port: "" if of[source] == of[target] else "refused")
    parts = (("gpu-4", "gpu-5"), ("gpu-1", "gpu-2", "gpu-3"))
    rest = [tuple(name for name in names(9) if name not in part) for part in parts]
    assert told == [Cause("partition", part, other, REFUSED) for part, other in zip(parts, rest, strict=True)]


def test_groups_of_which_one_reaches_the_other_are_no_partition() -> None:
    one_way = [(source, target) for source in (1, 2) for target in (3, 4)]
    told = causes(4, between(*one_way))
    assert "partition" not in [cause.kind for cause in told]
    both = [*one_way, *((target, source) for source, target in one_way)]
    assert [cause.kind for cause in causes(4, between(*both))] == ["partition"]


def test_groups_of_which_one_reaches_another_are_one_and_apart_from_the_rest() -> None:
    """1 and 2 reach 3 and 4, which do not reach them; 5 and 6 reach nobody."""
    of = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2}
    lost = [(a, b) for a in of for b in of if of[a] != of[b] and (of[a], of[b]) != (0, 1)]
    (cause, *rest) = causes(6, between(*lost))
    assert (cause.kind, cause.hosts, cause.others) == ("partition", ("gpu-5", "gpu-6"), tuple(names(4)))
    assert {one.kind for one in rest} == {"one_way"}


def test_what_fails_inside_a_group_is_told_beside_the_partition() -> None:
    of = {"gpu-1": 0, "gpu-2": 0, "gpu-3": 0, "gpu-4": 1, "gpu-5": 1}
    told = causes(
        5,
        lambda source, target, port: (
            "refused" if (source, target) == ("gpu-1", "gpu-2") else "" if of[source] == of[target] else "timeout"
        ),
    )
    assert [(cause.kind, cause.hosts, cause.others) for cause in told[1:]] == [("one_way", ("gpu-2",), ("gpu-1",))]
    assert told[0].fields["mode"] == "drop"


def test_a_host_that_is_shut_both_ways_at_some_ports_is_told_for_each_way() -> None:
    told = causes(
        4, lambda source, target, port: "timeout" if "gpu-2" in (source, target) and port == 1 else "", (1, 2)
    )
    assert [(cause.kind, cause.hosts, cause.fields["ports"]) for cause in told] == [
        ("firewall_in", ("gpu-2",), (1,)),
        ("firewall_out", ("gpu-2",), (1,)),
    ]


def test_a_host_that_is_shut_for_some_of_what_comes_in_and_all_that_goes_out_is_told_for_each_way() -> None:
    told = causes(
        4,
        lambda source, target, port: "timeout" if source == "gpu-2" or (target, port) == ("gpu-2", 1) else "",
        (1, 2),
    )
    assert {(cause.kind, cause.hosts, cause.fields["limited"]) for cause in told} == {
        ("firewall_in", ("gpu-2",), True),
        ("firewall_out", ("gpu-2",), False),
    }


def test_two_connections_to_a_port_are_enough_to_blame_its_host() -> None:
    (cause,) = causes(3, lambda source, target, port: "timeout" if (target, port) == ("gpu-2", 1) else "", (1, 2))
    assert (cause.kind, cause.hosts) == ("firewall_in", ("gpu-2",))


def test_of_two_ends_that_were_tried_with_nobody_else_neither_is_blamed() -> None:
    ways = {(1, 2), (3, 4), (5, 6), (6, 5)}
    tried = tuple(
        one for one in attempts(names(6), between((1, 2), (3, 4))) if (int(one.source[4:]), int(one.target[4:])) in ways
    )
    assert [(cause.kind, cause.hosts) for cause in found(tried)] == [("pair", ("gpu-2",)), ("pair", ("gpu-4",))]


WAYS = [(1, 2), (3, 4), (5, 6), (7, 8), (2, 3), (4, 5), (6, 7)]


def test_as_many_pairs_as_fit_are_told_one_by_one_and_more_are_scattered() -> None:
    told = causes(9, between(*WAYS[:MOST_PAIRS]))
    assert sorted((cause.kind, cause.others, cause.hosts) for cause in told) == sorted(
        ("one_way", (f"gpu-{source}",), (f"gpu-{target}",)) for source, target in WAYS[:MOST_PAIRS]
    )
    (cause,) = causes(9, between(*WAYS[: MOST_PAIRS + 1]))
    hosts, others = tuple(f"gpu-{n}" for n in range(2, 9)), tuple(f"gpu-{n}" for n in range(1, 8))
    assert cause == Cause("scattered", hosts, others, {"failed": 7, "tried": 72, **DROPPED})


def test_both_directions_of_a_pair_count_once() -> None:
    both = [way for source, target in WAYS[:4] for way in ((source, target), (target, source))]
    told = causes(9, between(*both))
    assert [(cause.kind, cause.hosts, cause.others) for cause in told] == [
        ("pair", (f"gpu-{target}",), (f"gpu-{source}",)) for source, target in WAYS[:4]
    ]


def test_a_pair_has_its_ports_and_how_it_fails() -> None:
    fails = between((1, 2), (2, 1), (1, 3), fault="refused")
    told = {cause.kind: cause for cause in causes(4, fails, (2223, 2222))}
    assert told["pair"].fields == {"ports": (2222, 2223), **REFUSED}
    assert told["one_way"].fields == {"ports": (2222, 2223), **REFUSED}


def test_a_way_back_that_was_never_tried_is_no_way_back() -> None:
    tried = tuple(one for one in attempts(names(4), between((3, 2))) if one.pair != ("gpu-2", "gpu-3"))
    assert [(cause.kind, cause.hosts, cause.others) for cause in found(tried)] == [("pair", ("gpu-2",), ("gpu-3",))]


def test_where_some_are_refused_and_some_dropped_the_systems_word_is_that_of_the_refusal() -> None:
    fails = {"gpu-1": "timeout", "gpu-3": "no_route", "gpu-4": "timeout"}
    tried = attempts(names(4), lambda source, target, port: fails[source] if target == "gpu-2" else "")
    (cause,) = found(tried)
    assert (cause.fields["mode"], cause.fields["text"]) == ("mixed", "No route to host")


def test_of_a_port_that_one_host_alone_has_one_connection_blames_nobody() -> None:
    tried = (*attempts(names(3), lambda *_: ""), Attempt("gpu-1", place("gpu-2", 7), "10.0.0.2", "timeout"))
    assert [cause.kind for cause in found(tried)] == ["one_way"]


def test_nothing_that_failed_is_nothing_told() -> None:
    assert matrix_causes(attempts(names(3), lambda *_: "timeout"), []) == []
