"""Causes that names, addresses, ports and proxies tell, before any matrix is looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.network.records import Bound, Measured, Resolved
from dtctl.rooms.check.network import Attempt, Cause, View, endpoints_of, open_endpoints
from dtctl.rooms.check.network.exposure import through
from dtctl.rooms.check.network.judging import causes_in
from dtctl.rooms.check.network.measuring import ROUNDS, Round, judged, meeting, next_round
from tests.fuzz import cases
from tests.unit.checks.contexts import context
from tests.unit.checks.network.networks import address, attempts, endpoint, names, view
from tests.unit.clusters import cluster, job

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


def test_peer_name_that_resolves_to_loopback_is_reported_with_the_resolving_host() -> None:
    (cause,) = causes_in(with_names({("gpu-3", "gpu-1"): ("127.0.1.1", "other_host")}, by="gpu-3"))
    assert (cause.kind, cause.hosts, cause.others) == ("loopback_name", ("gpu-3",), ("gpu-1",))
    assert cause.fields == {"name": "gpu-1", "address": "127.0.1.1", "has": ("10.0.0.1",)}


def test_host_has_the_addresses_of_its_interfaces_and_usable_own_names() -> None:
    names = [
        made(Resolved, name="a", addresses=["127.0.1.1", "10.0.0.2"], own=True),
        made(Resolved, name="b", addresses=["10.0.0.3"], own=False),
    ]
    seen = View(of_interfaces={"a": ["10.0.0.1"]}, resolved={"a": names})
    assert seen.addresses("a") == {"10.0.0.1", "10.0.0.2"}
    assert not seen.addresses("b")


def test_endpoints_are_tasks_and_the_coordinator_and_an_evaluator_has_no_clients() -> None:
    jobs = job("worker", ["a", "b"], [2222, 2222]), job("evaluator", ["b"], [2223])
    plan = context(cluster(*jobs)).plan
    assert {(one.whose, one.host): one.serves for one in endpoints_of(plan)} == {
        ("worker:0", "a"): True,
        ("worker:1", "b"): True,
        ("evaluator:0", "b"): False,
        ("coordinator", "a"): True,
    }
    slots = [{"whose": whose, "port": 2222, "state": "bound"} for whose in ("ps:0", "worker:0")]
    bound = {"a": [made(Bound, **slot) for slot in slots]}
    assert {one.whose: live for one, live in open_endpoints(plan, bound).items()} == {"worker:0": False}


@pytest.mark.parametrize(
    ("problem", "kind"),
    [("other_host", "other_host"), ("stranger", "stranger"), ("silent", "silent"), ("cut_off", "large_packets")],
)
def test_other_host_or_no_answer_is_reported(problem: str, kind: str) -> None:
    (cause,) = causes_in(with_names({("gpu-2", "gpu-1"): (address("gpu-1"), problem)}, by="gpu-4"))
    assert (cause.kind, cause.hosts, cause.others) == (kind, ("gpu-1",), ("gpu-2",))


@pytest.mark.parametrize(
    ("name", "addresses"),
    [("gpu-2", ["127.0.1.1", "10.0.0.2"]), ("gpu-2", ["10.0.0.2"]), ("gpu-2", []), ("127.0.0.1", ["127.0.0.1"])],
    ids=["for its address too", "for its address alone", "for nothing", "loopback is what it is asked for"],
)
def test_an_own_name_that_stands_for_more_than_loopback_is_no_cause(name: str, addresses: list[str]) -> None:
    well = view(WELL)
    own = {**well.resolved, "gpu-2": [made(Resolved, name=name, addresses=addresses, own=True)]}
    assert causes_in(dataclasses.replace(well, resolved=own)) == ()


def test_hosts_whose_own_names_resolve_alike_are_reported_together_unnamed() -> None:
    own = {host: [made(Resolved, name=host, addresses=["127.0.1.1"], own=True)] for host in names(2)}
    (cause,) = causes_in(dataclasses.replace(view(WELL), resolved=own))
    assert (cause.hosts, cause.fields) == (tuple(names(2)), {"address": "127.0.1.1"})


def test_what_a_name_stands_for_is_not_judged_where_its_host_has_reported_no_address() -> None:
    tried = with_names({("gpu-2", "gpu-1"): ("10.9.9.9", "timeout")})
    silent = dataclasses.replace(tried, of_interfaces={}, resolved={})
    assert [cause.kind for cause in causes_in(silent)] == ["one_way"]


def test_a_name_is_reported_with_its_address_and_with_those_that_its_host_has() -> None:
    (cause,) = causes_in(with_names({("gpu-2", "gpu-1"): ("10.9.9.9", "timeout")}))
    assert (cause.kind, cause.hosts) == ("other_address", ("gpu-2",))
    assert cause.fields == {"name": "gpu-1", "address": "10.9.9.9", "has": ("10.0.0.1",), "usual": "10.0.0.1"}
    pairs = {(source, "gpu-1"): ("10.9.9.9", "timeout") for source in names(4)[1:]}
    (cause,) = causes_in(with_names(pairs))
    assert (cause.kind, cause.hosts) == ("wrong_interface", ("gpu-1",))
    assert (cause.others, cause.fields) == (
        ("gpu-2", "gpu-3", "gpu-4"),
        {"name": "gpu-1", "address": "10.9.9.9", "has": ("10.0.0.1",)},
    )


def test_the_usual_address_is_one_by_which_the_same_name_was_reached() -> None:
    """Another name of the host stands for the right address; this name does so nowhere."""
    pairs = {(source, "gpu-1"): ("10.9.9.9", "timeout") for source in names(4)[1:]}
    wrong = with_names(pairs)
    other = Attempt("gpu-2", endpoint("gpu-1", 2223, at="other-name"), address("gpu-1"))
    (cause,) = causes_in(dataclasses.replace(wrong, attempts=(*wrong.attempts, other)))
    assert cause.kind == "wrong_interface"


def test_who_answers_is_reported_where_it_is_known_with_the_ports_at_which_it_does() -> None:
    half = attempts(names(4), lambda *pair: "other_host" if pair[:2] == ("gpu-2", "gpu-1") else "", (2223, 2222))
    (cause,) = causes_in(view(half))
    assert cause.fields == {"name": "gpu-1", "address": address("gpu-1"), "ports": (2222, 2223)}
    (cause,) = causes_in(view(tuple(dataclasses.replace(one, by="x") if one.hindrance else one for one in half)))
    assert cause.fields["by"] == "x"


def test_first_three_causes_of_a_kind_are_shown_and_the_hosts_of_the_rest() -> None:
    def unresolved(count: int) -> tuple[Cause, ...]:
        bad = names(6)[-count:]
        return causes_in(view(attempts(names(6), lambda source, target, port: "unresolved" if target in bad else "")))

    assert [cause.kind for cause in unresolved(3)] == ["unresolved"] * 3
    *first, rest = unresolved(5)
    assert [cause.others for cause in first] == [("gpu-2",), ("gpu-3",), ("gpu-4",)]
    assert (rest.kind, sorted(rest.hosts), rest.others) == ("more_alike", names(6), ("gpu-5", "gpu-6"))


def test_ports_of_another_live_run_of_ones_own_are_one_cause() -> None:
    def slots(host: str) -> list[Bound]:
        run = {"state": "taken", "holder": "pid 7 (python ...)", "run": "digits-1", "cluster": "digits"}
        return [made(Bound, whose=whose, port=port, **run) for whose, port in (("ps:0", 2222), ("worker:0", 2223))]

    (cause,) = causes_in(View({host: slots(host) for host in names(3)}))
    assert (cause.kind, cause.hosts) == ("ports_of_own_run", tuple(names(3)))
    assert cause.fields == {
        "ports": (2222, 2223),
        "whose": ("ps:0", "worker:0"),
        "run": "digits-1",
        "cluster": "digits",
    }


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_of_several_hosts_is_said_to_be_the_one_whose_holder_is_reported(count: int) -> None:
    slots = {host: [made(Bound, whose="ps:0", port=2222, state="taken", holder=host)] for host in names(count)}
    (cause,) = causes_in(View(slots))
    assert (cause.kind, cause.hosts) == ("port_taken", tuple(names(count)))
    assert cause.fields == {
        "port": 2222,
        "whose": ("ps:0",) * count,
        "holder": "gpu-1",
        **({"on": "gpu-1"} if count > 1 else {}),
    }


def test_name_unknown_to_one_host_is_reported_with_the_systems_message() -> None:
    (cause,) = causes_in(with_names({("gpu-2", "gpu-1"): ("", "unresolved")}, text="not known"))
    assert (cause.hosts, cause.others) == (("gpu-2",), ("gpu-1",))
    assert cause.fields == {"name": "gpu-1", "text": "not known"}


NAMES = ("gpu-1.lab", "10.0.0.2")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://p:1"}, None),  # capitals are not for gRPC
        ({"http_proxy": ""}, None),
        ({"http_proxy": "http://p:1"}, ("http_proxy", NAMES)),
        ({"http_proxy": "http://p:1", "grpc_proxy": "http://q:1"}, ("grpc_proxy", NAMES)),
        ({"https_proxy": "http://p:1", "no_proxy": "gpu-1.lab"}, ("https_proxy", ("10.0.0.2",))),
        ({"http_proxy": "http://p:1", "no_proxy": ".lab, 10.0.0.0/24"}, None),
        (
            {"http_proxy": "http://p:1", "no_proxy": ".lab,10.0.0.2", "no_grpc_proxy": "elsewhere"},
            ("http_proxy", NAMES),
        ),
        ({"http_proxy": "http://p:1", "no_grpc_proxy": "gpu-1.lab,10.0.0.2"}, None),
    ],
)
def test_the_variables_that_grpc_heeds_and_what_they_exempt(
    env: dict[str, str], expected: tuple[str, tuple[str, ...]] | None
) -> None:
    assert through(env, NAMES) == expected


def measured(sent: float = 1e9, received: float = 1e9, latency_s: float = 0.0001, **fields: Any) -> Measured:
    return made(Measured, whose="ps:0", host="p", sent=sent, received=received, latency_s=latency_s, **fields)


def played(hosts: list[str], network: Callable[[str, str], Measured]) -> list[Round]:
    """All rounds, as the hosts would measure them."""
    rounds: list[Round] = []
    while pairs := next_round(hosts, rounds):
        rounds.append({pair: network(*pair) for pair in pairs})
    return rounds


def shaped(*slow: str, rate: float = 1e8) -> Callable[[str, str], Measured]:
    """These hosts have a tenth of the others' bandwidth in both directions."""

    def network(source: str, target: str) -> Measured:
        return measured(rate, rate) if {source, target} & set(slow) else measured()

    return network


@cases
@given(st.integers(2, 60))
def test_every_host_has_a_partner_in_each_round(count: int) -> None:
    hosts = names(count)
    met: set[frozenset[str]] = set()
    for number in range(count - 1 + count % 2):
        pairs = meeting(hosts, number)
        at_once = [host for pair in pairs for host in pair]
        assert len(at_once) == len(set(at_once)) == count - count % 2
        fresh = {frozenset(pair) for pair in pairs}
        assert not fresh & met
        met |= fresh
    assert len(met) == count * (count - 1) // 2


@cases
@given(st.integers(3, 40), st.data())
def test_the_slow_host_is_named_and_none_of_its_partners(count: int, data: st.DataObject) -> None:
    hosts = names(count)
    slow = data.draw(st.sampled_from(hosts))
    assert [behind.host for behind in judged(played(hosts, shaped(slow)))] == [slow]


def test_a_direction_that_is_slow_is_reported_alone() -> None:
    def network(source: str, target: str) -> Measured:
        return measured(1e8 if source == "gpu-3" else 1e9, 1e8 if target == "gpu-3" else 1e9)

    (behind,) = judged(played(names(8), network))
    assert behind.host == "gpu-3"
    assert (behind.sends_slowly, behind.receives_slowly, behind.answers_late) == (True, False, False)
    assert (behind.own.sends, behind.usual.sends) == (1e8, 1e9)


def test_a_host_that_answers_late_is_named_though_it_is_fast() -> None:
    def network(source: str, target: str) -> Measured:
        return measured(latency_s=0.02 if "gpu-3" in (source, target) else 0.0001)

    (behind,) = judged(played(names(8), network))
    assert (behind.host, behind.answers_late, behind.sends_slowly) == ("gpu-3", True, False)


def test_a_host_slow_by_chance_passes_the_second_measurement() -> None:
    rounds: list[Round] = []
    while pairs := next_round(names(8), rounds):
        chance = 5e8 if len(rounds) < ROUNDS else 1e9
        rounds.append({pair: measured(chance, chance) if "gpu-3" in pair else measured() for pair in pairs})
    assert len(rounds) == ROUNDS + 1
    assert rounds[-1].keys() == {pair for pair in rounds[-1] if "gpu-3" in pair}
    assert judged(rounds) == []
