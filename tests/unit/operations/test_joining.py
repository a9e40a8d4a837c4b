"""A start without some hosts: which these may be, and how they join the run when they are back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.spec import inventory_of
from dtctl.agent.records.values import address_mark
from dtctl.config.cluster import Recovery
from dtctl.errors import AgentError, DtctlError, PreflightError, TransportError, UsageError
from dtctl.operations.up.conflicts import check_may_go_without, is_dispensable, left_out
from dtctl.operations.up.launch import Start
from dtctl.operations.up.result import UpResult
from dtctl.plan import Roster, plan_roster
from dtctl.plan.spec import host_spec, run_spec
from tests.unit.clusters import cluster, job
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.operations.test_up import READY, Notes, agents, launch, started

__all__ = ["launch"]

Script = list[dict[str, Any] | DtctlError]
DOWN = TransportError("d does not answer within 10 s", hint="is it up?", shared_summary="no answer within 10 s")
OLD = "digits-0"
CREDENTIALS = {"key": "K", "certificate": "C", "authority": "A", "port_token": "0" * 64}


Requests = dict[tuple[str, str], Mapping[str, Any]]
"""Host and kind -> what was sent to it last."""


def without(launch: Start, allowed: int, *unreachable: str, **prepared: Mapping[str, Any]) -> tuple[UpResult, Requests]:
    """`prepared`: what a host answers besides the usual."""
    heard: Requests = {}
    willing = agents(up=lambda session, _: [{**READY, **prepared.get(session.host.name, {})}])

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> Script:
        heard[session.host.name, str(fields["type"])] = fields
        return willing(session, fields)

    transport = FakeTransport(answer, dict.fromkeys(unreachable, DOWN))
    return started(dataclasses.replace(launch, allow_missing=allowed), transport), heard


def test_the_run_starts_without_a_host_of_a_worker(launch: Start) -> None:
    result, heard = without(launch, 1, "d")
    assert [str(task) for task in result.started] == ["ps:0", "ps:1", "worker:0"]
    assert result.absent == {"d": DOWN}
    assert not result.failed
    assert [heard[host, "start"]["absent"] for host in "abc"] == [["d"]] * 3


def test_credentials_of_a_missing_host_are_kept_only_on_the_coordinators_host(launch: Start) -> None:
    _, heard = without(launch, 1, "d")
    assert [sorted(heard[host, "start"]["pending_hosts"]) for host in "abc"] == [[], [], ["d"]]
    assert "PRIVATE KEY" in heard["c", "start"]["pending_hosts"]["d"]["key"]


def test_each_task_keeps_its_place_in_the_cluster_that_trainers_receive(launch: Start) -> None:
    _, heard = without(launch, 1, "d")
    (task,) = heard["c", "up"]["spec"]["tasks"]
    assert f"--worker_hosts={address_mark('worker:0')},{address_mark('worker:1')}" in task["argv"]


def test_a_port_that_is_taken_there_makes_a_host_a_missing_one(launch: Start) -> None:
    taken = {"taken": [{"port": 2222, "whose": "worker:1", "holder": "pid 7 (nginx)"}]}
    result, _ = without(launch, 1, d=taken)
    assert result.absent["d"].summary == "d: port 2222 of worker:1 is held by pid 7 (nginx)"
    with pytest.raises(PreflightError, match="port 2222 is in use on d"):
        without(launch, 0, d=taken)


@pytest.mark.parametrize("needed", ["a", "c"])
def test_without_a_ps_or_the_lead_nothing_starts(launch: Start, needed: str) -> None:
    with pytest.raises(DtctlError, match="cannot prepare on 1 of 4 hosts") as error:
        without(launch, 3, needed)
    assert f"no run without {needed}" in error.value.hint


def test_hosts_that_choose_ports_have_all_to_be_there(launch: Start) -> None:
    jobs = {
        name: dataclasses.replace(one, ports=(0,) * len(one.ports)) for name, one in launch.plan.cluster.jobs.items()
    }
    plan = dataclasses.replace(launch.plan, cluster=dataclasses.replace(launch.plan.cluster, jobs=jobs))
    choosing = dataclasses.replace(launch, plan=plan, replan=lambda cluster: launch.plan, allow_missing=1)

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> Script:
        return [{"type": "result", "tasks": dict.fromkeys(fields.get("tasks", ()), 4000), "coordinator": None}]

    with pytest.raises(DtctlError, match="cannot choose ports on 1 of 4 hosts") as error:
        started(choosing, FakeTransport(answer, {"d": DOWN}))
    assert "--ports-from" in error.value.hint


def spec_in_run(launch: Start) -> Any:
    """Of digits-0, which was started without d."""
    fields: dict[str, Any] = {"digest": "d", "bundle": None, "controller": "x", "replaced": {}}
    return host_spec(launch.plan, "c", run_spec(launch.plan, run=OLD, created=7.0, **fields), absent=["d"])


def joining(launch: Start, **changed: Any) -> dict[str, Any]:
    return {"inventory": {**inventory_of(spec_in_run(launch)), **changed}, "credentials": {"d": CREDENTIALS}}


class Live:
    """Of digits-0, which goes on without d; `d` is what d does when it is to join."""

    def __init__(self, launch: Start, answer: dict[str, Any] | None, d: Script | None = None) -> None:
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self._told = answer
        self._d = d
        self._agents = agents(up=self._prepared)

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
        self.requests.append((session.host.name, fields))
        return self._agents(session, fields)

    def _prepared(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
        host, joins = session.host.name, fields["run"] == OLD
        session.run = fields["run"] if host == "d" else OLD  # type: ignore[attr-defined]
        if host != "d":
            about = {"unchanged": True, "run": OLD, "current": OLD}
            return [{**READY, **about, "joining": self._told if host == "c" else None}]
        return self._d if joins and self._d is not None else [{**READY, "run": fields["run"]}]

    def said_to(self, host: str) -> list[str]:
        return [str(fields["type"]) for name, fields in self.requests if name == host]


def again(launch: Start, live: Live, **away: DtctlError) -> tuple[UpResult, Notes]:
    notes = Notes()
    return started(launch, FakeTransport(live, away), notes), notes


def test_a_host_that_is_back_joins_the_run_with_the_next_up(launch: Start) -> None:
    live = Live(launch, joining(launch))
    result, notes = again(launch, live)
    assert (result.run, result.started, result.ended) == (OLD, {}, ())
    assert [str(task) for task in result.joined] == ["worker:1"]
    assert result.absent == {}
    assert live.said_to("d") == ["up", "abort", "up", "start", "keep"]
    assert all(live.said_to(host) == ["up", "start"] for host in "abc"), "they are only looked at"
    assert notes.order == ["begin", "take_back"], "there is no new run"


def test_a_joining_host_receives_the_spec_and_credentials_of_the_run(launch: Start) -> None:
    live = Live(launch, joining(launch))
    again(launch, live)
    asked = [fields for host, fields in live.requests if host == "d" and fields["type"] == "up"][1]
    assert (asked["run"], asked["spec"]["run"]) == (OLD, OLD)
    assert asked["credentials"] == CREDENTIALS
    assert inventory_of(asked["spec"]) == inventory_of(spec_in_run(launch))


def test_a_host_that_cannot_join_leaves_the_run_unchanged(launch: Start) -> None:
    full = AgentError("disk_full", "there is no room", host="d")
    result, _ = again(launch, Live(launch, joining(launch), [full]))
    assert (result.joined, result.absent) == ({}, {"d": full})


def test_a_host_that_is_still_away_is_no_error_of_an_up_that_could_have_taken_it_in(launch: Start) -> None:
    """The run goes on without it already; what it could not do without is an error as ever."""
    live = Live(launch, joining(launch))
    result = again(launch, live, d=DOWN)[0]
    assert (result.run, result.joined, result.absent) == (OLD, {}, {"d": DOWN})
    with pytest.raises(DtctlError, match="cannot prepare on 1 of 4 hosts"):
        again(launch, Live(launch, joining(launch)), b=DOWN, d=DOWN)


def test_a_port_that_is_taken_keeps_it_from_joining(launch: Start) -> None:
    taken = [{"port": 2222, "whose": "worker:1", "holder": "pid 7 (nginx)"}]
    live = Live(launch, joining(launch), [{**READY, "run": OLD, "taken": taken}])
    result, _ = again(launch, live)
    assert "port 2222 is in use on d" in result.absent["d"].summary
    assert "start" not in live.said_to("d")


def test_a_host_cannot_join_a_run_with_other_addresses(launch: Start) -> None:
    roster = [{**member, "address": "elsewhere:1"} for member in inventory_of(spec_in_run(launch))["roster"]]
    live = Live(launch, joining(launch, roster=roster))
    result, _ = again(launch, live)
    assert "d cannot join run digits-0: its tasks have other addresses there" in result.absent["d"].summary
    assert live.said_to("d") == ["up", "abort"]


def test_a_host_without_a_reserved_place_cannot_join(launch: Start) -> None:
    with pytest.raises(PreflightError, match="digits-0 continues on a,b,c, but not on d"):
        again(launch, Live(launch, None))


def test_only_the_coordinators_host_is_trusted_about_who_may_join(launch: Start, tmp_path: Path) -> None:
    live = Live(launch, None)

    def lying(session: FakeSession, fields: Mapping[str, Any]) -> Script:
        answer = live(session, fields)
        if fields["type"] == "up" and session.host.name == "a":
            answer = [{**answer[0], "joining": joining(launch)}]  # type: ignore[dict-item]
        return answer

    with pytest.raises(PreflightError, match="not on d"):
        started(launch, lying)


def of_jobs(jobs: dict[str, list[str]], **settings: Any) -> Roster:
    """Job -> the host of each task."""
    return plan_roster(cluster(*(job(name, hosts, [2222] * len(hosts)) for name, hosts in jobs.items()), **settings))


def roster(**settings: Any) -> Roster:
    """worker:0 leads, on gpu-0."""
    return of_jobs({"ps": ["ps-1"], "worker": [f"gpu-{n}" for n in range(5)]}, **settings)


def down(*hosts: str) -> dict[str, DtctlError]:
    return {
        host: TransportError(f"{host} does not answer within 10 s", shared_summary="no answer within 10 s")
        for host in hosts
    }


def refusal(roster: Roster, allowed: int | None, errors: dict[str, DtctlError], *spares: str) -> DtctlError:
    with pytest.raises(DtctlError) as caught:
        left_out(roster, allowed, "prepare", errors, {}, spares)
    return caught.value


def test_workers_of_asynchronous_training_that_do_not_lead_can_be_done_without() -> None:
    one = roster()
    assert [host for host in one.hosts if is_dispensable(one, host)] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert left_out(one, 2, "prepare", down("gpu-1", "gpu-4"), {}).keys() == {"gpu-1", "gpu-4"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        *(({"strategy": name}, f"with {name} every task waits") for name in ("sync-ps", "in-graph", "ps-strategy")),
        ({"recovery": Recovery(mode="gang")}, "--allow-missing cannot help here"),
    ],
)
def test_no_worker_may_be_missing_where_all_are_waited_for(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_may_go_without(roster(**settings))


def test_a_host_with_a_ps_as_well_is_needed() -> None:
    one = of_jobs({"ps": ["a", "b"], "worker": ["c", "a", "d"]})
    assert [host for host in one.hosts if is_dispensable(one, host)] == ["d"]


def test_an_evaluator_can_be_missing_in_every_way_of_training() -> None:
    one = of_jobs({"ps": ["a"], "worker": ["b"], "evaluator": ["e"]}, strategy="sync-ps")
    check_may_go_without(one)
    assert is_dispensable(one, "e")


def test_more_than_are_allowed_are_counted_with_the_option_that_allows_them() -> None:
    error = refusal(roster(), 1, down("gpu-1", "gpu-2", "gpu-3"))
    assert error.summary == "cannot prepare on 3 of 6 hosts"
    assert error.detail == "gpu-[1-3]: no answer within 10 s"
    assert error.hint == "3 hosts are missing, 1 may be: dtctl up --allow-missing 3    continues without them"


def test_hosts_left_out_before_count_as_missing() -> None:
    with pytest.raises(DtctlError, match="2 of 6 hosts"):
        left_out(roster(), 1, "look around", down("gpu-1"), down("gpu-2"))


WITHOUT = "dtctl up --allow-missing 1    continues without it, and adds it later"
TO_JOBS = "in jobs, take them out of spares, and then: dtctl up"


@pytest.mark.parametrize(
    ("missing", "allowed", "spares", "hint"),
    [
        ("gpu-1", None, "", ""),
        ("gpu-1", 0, "", WITHOUT),
        ("gpu-1", 0, "gpu-9", f"dtctl replace gpu-1 gpu-9    starts its tasks on gpu-9, a spare\n{WITHOUT}"),
        ("ps-1", 0, "", ""),
        ("ps-1", 0, "gpu-9", "dtctl replace ps-1 gpu-9    starts its tasks on gpu-9, a spare"),
        ("ps-1 gpu-0 gpu-1", 3, "", "no run without gpu-0,ps-1: ps:0, worker:0 must be there"),
        ("ps-1 gpu-1", 0, "s t u", f"spares can take their tasks: write s for ps-1, t for gpu-1 {TO_JOBS}"),
        (
            *("ps-1 gpu-1 gpu-2", 0, "s"),
            f"spares can take their tasks (no spare is left for gpu-[1-2]): write s for ps-1 {TO_JOBS}",
        ),
    ],
)
def test_missing_hosts_are_reported_with_what_to_type(
    missing: str, allowed: int | None, spares: str, hint: str
) -> None:
    assert refusal(roster(), allowed, down(*missing.split()), *spares.split()).hint == hint


@pytest.mark.parametrize("code", ["disk_full", "setup_failed", "python_too_old"])
def test_errors_of_a_host_make_it_missing(code: str) -> None:
    errors: dict[str, DtctlError] = {"gpu-1": AgentError(code, "no")}
    assert left_out(roster(), 1, "prepare", errors, {}) == errors


@pytest.mark.parametrize("code", ["changed_run", "locked", "internal"])
def test_errors_of_the_run_or_dtctl_make_no_host_missing(code: str) -> None:
    assert refusal(roster(), 1, {"gpu-1": AgentError(code, "no")}).hint == ""
