"""Which host a matrix of connections blames."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from dtctl.operations.checks.network.judging import judge
from dtctl.operations.checks.network.view import Cause
from tests.fuzz import cases
from tests.unit.checks.network.networks import Fails, attempts, names, view

FAULTS = st.sampled_from(["timeout", "refused", "no_route"])
MODES = {"timeout": "drop", "refused": "reject", "no_route": "reject"}


def causes(count: int, fails: Fails, ports: tuple[int, ...] = (2222,)) -> tuple[Cause, ...]:
    return judge(view(attempts(names(count), fails, ports)))


def told(found: tuple[Cause, ...]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(one.kind, one.hosts, one.others) for one in found]


def test_a_network_where_everybody_reaches_everybody_is_blamed_for_nothing() -> None:
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
def test_a_host_that_is_cut_off_both_ways_is_told_once(count: int, data: st.DataObject) -> None:
    alone = data.draw(st.sampled_from(names(count)))
    found = causes(count, lambda source, target, port: "timeout" if alone in (source, target) else "")
    assert [(one.kind, one.hosts) for one in found] == [("cut_off", (alone,))]


@cases
@given(st.integers(3, 7), st.data())
def test_one_direction_between_two_hosts_blames_either_of_them(count: int, data: st.DataObject) -> None:
    source, target = data.draw(st.permutations(names(count)))[:2]
    found = causes(count, lambda *pair: "timeout" if pair[:2] == (source, target) else "")
    assert told(found) == [("one_way", (target,), (source,))]


def test_one_direction_stays_one_though_a_port_is_on_one_host_alone() -> None:
    """As the coordinator's is."""
    hosts = names(5)
    tried = [
        one
        for one in attempts(hosts, lambda *_: "", ports=(2221, 2222))
        if one.place.port == 2222 or one.target == "gpu-2"
    ]
    lost = [dataclasses.replace(one, hindrance="timeout") if one.pair == ("gpu-3", "gpu-2") else one for one in tried]
    assert told(judge(view(tuple(lost)))) == [("one_way", ("gpu-2",), ("gpu-3",))]


def test_of_two_hosts_one_direction_blames_either_of_them() -> None:
    found = causes(2, lambda source, target, port: "refused" if source == "gpu-1" else "")
    assert told(found) == [("one_way", ("gpu-2",), ("gpu-1",))]
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
def test_whatever_fails_is_explained_and_nobody_is_blamed_without_a_failure(count: int, data: st.DataObject) -> None:
    problems = st.sampled_from(["", "", "", "timeout", "refused", "silent", "cut_off", "other_host", "stranger"])
    tried = attempts(names(count), lambda *_: data.draw(problems), ports=(2222, 2223))
    failed = {one.pair for one in tried if one.hindrance}
    found = judge(view(tried))
    assert bool(found) == bool(failed)
    concerned = [{*one.hosts, *one.others} for one in found]
    assert all(any(set(pair) <= each for each in concerned) for pair in failed)
    assert {host for each in concerned for host in each} <= {host for pair in failed for host in pair}
