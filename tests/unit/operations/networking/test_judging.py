"""Causes that names, addresses and ports tell, before any matrix is looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.network.peers import Bound, Resolved
from dtctl.operations.networking.judging import judge
from dtctl.operations.networking.view import Attempt, View
from tests.unit.operations.networking.networks import address, attempts, names, place, view

WELL = attempts(names(4), lambda source, target, port: "")


def with_names(changed: Mapping[tuple[str, str], tuple[str, str]], **others: Any) -> View:
    """Of source and target: the address that the name stands for there, and what came of it."""
    tried = tuple(
        dataclasses.replace(one, at=changed[one.pair][0], hindrance=changed[one.pair][1], **others)
        if one.pair in changed
        else one
        for one in WELL
    )
    return view(tried)


def test_another_hosts_name_that_stands_for_loopback_is_told_with_the_host_that_has_the_line() -> None:
    (cause,) = judge(with_names({("gpu-3", "gpu-1"): ("127.0.1.1", "other_host")}, by="gpu-3"))
    assert (cause.kind, cause.hosts, cause.others) == ("loopback_name", ("gpu-3",), ("gpu-1",))
    assert cause.fields == {"name": "gpu-1", "address": "127.0.1.1", "has": ("10.0.0.1",)}


def test_an_address_that_is_127_0_0_1_in_the_file_is_nobody_elses_fault() -> None:
    tried = tuple(
        Attempt(one.source, place(one.target, at="127.0.0.1"), "127.0.0.1", "refused")
        for one in WELL
        if one.target == "gpu-1"
    )
    assert [cause.kind for cause in judge(view((*WELL[3:6], *tried)))] == ["literal_loopback"]


def test_the_own_name_that_stands_for_loopback_is_told_and_harms_nobody() -> None:
    well = view(WELL)
    own = {**well.resolved, "gpu-2": [made(Resolved, name="gpu-2", addresses=["127.0.1.1"], own=True)]}
    (cause,) = judge(dataclasses.replace(well, resolved=own))
    assert (cause.kind, cause.hosts, cause.fields) == (
        "own_loopback",
        ("gpu-2",),
        {"name": "gpu-2", "address": "127.0.1.1"},
    )


def test_a_name_that_nobody_knows_is_one_cause() -> None:
    pairs = {(source, "gpu-1"): ("", "unresolved") for source in names(4)[1:]}
    (cause,) = judge(with_names(pairs, text="Name or service not known"))
    assert (cause.kind, cause.hosts, cause.others) == ("unresolved", ("gpu-2", "gpu-3", "gpu-4"), ("gpu-1",))


def test_an_address_that_its_host_does_not_have_is_a_wrong_interface() -> None:
    pairs = {(source, "gpu-1"): ("10.9.9.9", "timeout") for source in names(4)[1:]}
    (cause,) = judge(with_names(pairs))
    assert (cause.kind, cause.hosts, cause.fields["has"]) == ("wrong_interface", ("gpu-1",), ("10.0.0.1",))


def test_an_address_that_its_host_does_not_have_and_that_is_reached_is_translated_on_the_way() -> None:
    assert judge(with_names({(source, "gpu-1"): ("10.9.9.9", "") for source in names(4)[1:]})) == ()


def test_hosts_that_do_not_agree_on_a_name_are_told_with_the_right_address() -> None:
    (cause,) = judge(with_names({("gpu-2", "gpu-1"): ("10.9.9.9", "timeout")}))
    assert (cause.kind, cause.hosts, cause.fields["usual"]) == ("other_address", ("gpu-2",), "10.0.0.1")


@pytest.mark.parametrize(
    ("problem", "kind"),
    [("other_host", "other_host"), ("stranger", "stranger"), ("silent", "silent"), ("cut_off", "large_packets")],
)
def test_who_answers_in_a_hosts_place_or_not_at_all_is_told(problem: str, kind: str) -> None:
    (cause,) = judge(with_names({("gpu-2", "gpu-1"): (address("gpu-1"), problem)}, by="gpu-4"))
    assert (cause.kind, cause.hosts, cause.others) == (kind, ("gpu-1",), ("gpu-2",))


def test_a_port_that_is_taken_is_told_with_who_has_it() -> None:
    bound = made(Bound, whose="worker:1", port=2222, state="taken", holder="pid 7 (nginx) of www")
    (cause,) = judge(View({"gpu-2": [bound]}))
    assert (cause.kind, cause.hosts) == ("port_taken", ("gpu-2",))
    assert cause.fields == {"port": 2222, "whose": ("worker:1",), "holder": "pid 7 (nginx) of www"}


def test_the_same_port_taken_on_many_hosts_is_told_once() -> None:
    bound = {
        host: [made(Bound, whose=f"worker:{number}", port=2222, state="taken", holder=f"pid {number}")]
        for number, host in enumerate(names(4))
    }
    (cause,) = judge(View(bound))
    assert cause.hosts == tuple(names(4))
    assert (cause.fields["holder"], cause.fields["on"]) == ("pid 0", "gpu-1")


def test_of_many_causes_of_a_kind_some_are_told_and_the_hosts_of_the_others() -> None:
    tried = attempts(names(8), lambda source, target, port: "unresolved")
    found = judge(view(tried))
    assert [cause.kind for cause in found] == ["unresolved"] * 3 + ["more_alike"]
    assert found[-1].fields == {"of": "unresolved", "count": 5}
    assert {host for cause in found for host in cause.others} == set(names(8))
