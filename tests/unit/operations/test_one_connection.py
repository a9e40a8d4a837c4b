"""A run is asked about on its coordinator's host; where that is away, every host is asked, and it is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import because, fact, said, sentence
from dtctl.agent.records.run_state import Intent
from dtctl.errors import AgentError, TransportError, UsageError
from dtctl.model import Host, SshSettings, TaskId, TaskState
from dtctl.operations.down import down
from dtctl.operations.drain import drain
from dtctl.operations.restart import restart
from dtctl.operations.run_record import AWAY_CONNECT_S, RunRecord, record_of
from dtctl.operations.snapshot import Outcome, RunStatus
from dtctl.operations.status import status
from dtctl.operations.stop import Ending, StopOrder, stop
from dtctl.plan import plan_roster
from dtctl.render.machine.document import stop as stop_document
from dtctl.render.machine.status import run_status
from dtctl.render.result import show_stop
from dtctl.render.status import headline, more_lines
from dtctl.rooms.diagnose.operation import diagnose
from dtctl.transport.seam import Session, Transport
from tests.unit.clusters import cluster, job
from tests.unit.coordinated import HOSTS, Agents, entry, inventory, moved_record, record, viewed, with_states
from tests.unit.fakes import FakeTransport
from tests.unit.operations.test_gc import NOTHING
from tests.unit.tasks import checkpoint, checkpoint_directory

GONE = TransportError("cannot reach it")
ORDER = StopOrder("me@here")
ALL = tuple(record().roster)
COORDINATED = {"coordination": viewed(), "inventory": inventory(record())}


def test_status_opens_one_connection() -> None:
    transport = FakeTransport(Agents(viewed()))
    found = status(record(), transport)
    assert transport.opened == ["c"]
    assert found.verdict.outcome is Outcome.RUNNING
    assert [str(task) for task in found.tasks] == ["ps:0", "ps:1", "worker:0", "worker:1"]
    assert found.away is None


def test_the_outcome_is_the_coordinators_whatever_the_task_states() -> None:
    view = viewed("Failed", "ps:1 failed: exit code 3", "ps:1", tasks={"ps:1": entry("stopped")})
    found = status(record(), FakeTransport(Agents(view)))
    assert (found.verdict.outcome, found.verdict.cause) == (Outcome.FAILED, TaskId("ps", 1))


def test_tasks_of_a_lost_host_are_lost_since_its_last_message() -> None:
    view = viewed(hosts={"d": {"connected": False, "heard": 1004.0}})
    lost = status(record(), FakeTransport(Agents(view), {"d": GONE})).tasks[TaskId("worker", 1)]
    assert (lost.state, lost.entry["since"]) == (TaskState.LOST, 1004.0)
    assert "d is unreachable" in sentence(lost.why)


def test_a_disconnected_host_is_queried_directly_and_its_agent_restarted() -> None:
    transport = FakeTransport(Agents(viewed(hosts={"d": {"connected": False, "heard": 1004.0}})))
    assert status(record(), transport).tasks[TaskId("worker", 1)].state is TaskState.RUNNING
    assert transport.opened == ["c", "d"]


def elected(**reports: Any) -> tuple[RunRecord, Agents]:
    """A run that a coordinates in place of the lead's host c, and the directories that its hosts report."""
    run = dataclasses.replace(record(), elected="a")

    def reported(host: str, answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "checkpoints": reports.get(host, [])}

    return run, Agents(viewed(), run=run, reported=reported)


def saved(step: int, when: float) -> list[Any]:
    return [checkpoint_directory("", "/out", checkpoint(f"model.ckpt-{step}", step, time=when)).report]


@pytest.mark.parametrize("knows", [True, False], ids=["it is known who was elected", "the lead's host is asked first"])
def test_status_of_an_elected_coordinator_shows_the_checkpoints_of_the_leads_host(*, knows: bool) -> None:
    run, agents = elected(c=saved(70, 1005.0), a=saved(20, 1001.0), d=saved(90, 1009.0))
    transport = FakeTransport(agents)
    found = status(run if knows else record(), transport)
    assert [(one.host, one.report["newest_complete"]["step"]) for one in found.checkpoints] == [("c", 70), ("a", 20)]  # type: ignore[index]
    assert found.newest_checkpoint is not None
    assert found.newest_checkpoint.host == "c"
    assert sorted(transport.opened) == ["a", "c"], "each once"
    assert found.errors == {}


def test_status_shows_what_the_coordinator_sees_where_the_leads_host_is_gone() -> None:
    run, agents = elected(a=saved(20, 1001.0))
    view = agents.view = viewed(hosts={"c": {"connected": False, "heard": 1004.0}})
    found = status(run, FakeTransport(agents, {"c": GONE}))
    assert [one.host for one in found.checkpoints] == ["a"]
    view["hosts"]["c"].update(connected=False)
    found = status(run, FakeTransport(elected(c=saved(70, 1005.0))[1]))
    assert [one.host for one in found.checkpoints] == ["c"], "it has lost only its link to the coordinator"


def test_a_coordinator_in_doubt_leaves_the_checkpoints_to_their_hosts() -> None:
    run, agents = elected(c=saved(70, 1005.0), a=saved(20, 1001.0))
    agents.view = viewed(leased=False)
    found = status(run, FakeTransport(agents))
    assert {one.host for one in found.checkpoints} == {"a", "c"}


class Clocked(FakeTransport):
    """Records how long each host may take to be connected to."""

    def __init__(self, agents: Agents) -> None:
        super().__init__(agents)
        self.limits: dict[str, float] = {}

    def open(self, host: Host) -> Session:
        assert isinstance(host.reach, SshSettings)
        self.limits[host.name] = host.reach.connect_timeout_s
        return super().open(host)


ABOUT_AN_AWAY_HOST: dict[str, Callable[[Transport], object]] = {
    "status": lambda transport: status(record(), transport),
    "stop": lambda transport: stop(record(), transport, ALL, ORDER),
    "drain": lambda transport: drain(record(), transport, "d", ORDER),
    "diagnose": lambda transport: diagnose(record(), transport),
}


@pytest.mark.parametrize("command", ABOUT_AN_AWAY_HOST)
def test_a_host_that_the_coordinator_reports_away_gets_little_time_to_connect(command: str) -> None:
    view = viewed(hosts={"d": {"connected": False, "heard": 1004.0}}, intents={task: {} for task in HOSTS.values()})
    answer = {**stopped("ps:0", "ps:1", "worker:0"), "unreached": ["d"], "coordination": view}
    transport = Clocked(Agents(view, stop=[answer], drain=[answer]))
    with suppress(AssertionError):  # these agents know nothing of a drain beside the coordinator's
        ABOUT_AN_AWAY_HOST[command](transport)
    assert transport.limits["d"] == AWAY_CONNECT_S
    assert {limit for host, limit in transport.limits.items() if host != "d"} == {SshSettings.connect_timeout_s}


AWAY = {"d": {"connected": False, "heard": 1004.0}}


def ran(count: int) -> dict[str, Any]:
    """The condition that a coordinator has recorded."""
    return {
        "type": "Running",
        "cause": None,
        "since": 1005.0,
        "of": 4,
        **because([fact("tasks_run", count=count, of=4)]),
    }


def head(found: RunStatus) -> str:
    return "".join(text for text, _ in headline(found))


def test_the_head_of_status_counts_the_tasks_that_are_seen_to_run() -> None:
    view = viewed(hosts=AWAY, tasks={"worker:0": entry("backoff", step=7)})
    view["condition"] = ran(4)
    found = status(record(), FakeTransport(Agents(view), {"d": GONE}))
    assert "2 of 4 tasks run" in head(found)
    assert run_status(found)["conditions"][0]["message"] == "2 of 4 tasks run"
    found = status(record(), FakeTransport(Agents(view)))
    assert "3 of 4 tasks run" in head(found), "it has lost only its link to the coordinator"


def test_the_head_of_status_counts_no_task_whose_end_cannot_be_written() -> None:
    view = viewed(tasks={"worker:0": entry(unwritten=True, pid=None)})
    view["condition"] = ran(4)
    found = status(record(), FakeTransport(Agents(view)))
    assert "3 of 4 tasks run" in head(found)


def test_a_run_that_was_stopped_may_still_run_on_a_host_that_nobody_reaches() -> None:
    others = {task: entry("stopped") for task in HOSTS.values() if task != "worker:1"}
    view = viewed("Stopped", "stopped by me@here", hosts=AWAY, tasks=others)
    found = status(record(), FakeTransport(Agents(view), {"d": GONE}))
    assert found.tasks[TaskId("worker", 1)].state is TaskState.LOST
    assert found.errors == {"d": GONE}
    assert "Stopped" in head(found)
    assert "worker:1 may still run on d, which is unreachable" in head(found)
    view["hosts"]["d"]["state"]["tasks"]["worker:1"] = entry("stopped")
    found = status(record(), FakeTransport(Agents(view), {"d": GONE}))
    assert (found.errors, found.unknown_after_the_end) == ({}, ())


def test_a_coordinator_in_doubt_costs_one_more_query_of_each_host_and_no_long_wait() -> None:
    view = viewed(hosts=AWAY, leased=False)
    transport = Clocked(Agents(view))
    found = status(record(), transport)
    assert found.tasks[TaskId("worker", 1)].state is TaskState.RUNNING, "as its host reports"
    assert transport.limits["d"] == AWAY_CONNECT_S
    assert transport.opened.count("d") == 1
    assert found.record.hosts == record().hosts
    (line,) = [line for line in more_lines(found) if "coordinates" in line]
    assert line.startswith("c coordinates, but reaches no majority of the voting hosts (d unreachable): nothing is")


def test_a_task_that_ended_keeps_its_state_when_its_host_is_unreachable() -> None:
    view = viewed(tasks={"worker:1": entry("succeeded")}, hosts={"d": {"connected": False}})
    transport = FakeTransport(Agents(view), {"d": GONE})
    assert status(record(), transport).tasks[TaskId("worker", 1)].state is TaskState.SUCCEEDED


def test_tasks_of_a_host_that_never_connected_are_pending() -> None:
    view = viewed(hosts={"d": {"connected": False, "heard": None, "state": None}})
    assert status(record(), FakeTransport(Agents(view))).tasks[TaskId("worker", 1)].state is TaskState.PENDING


def test_every_host_is_asked_when_the_coordinators_cannot_be_reached() -> None:
    transport = FakeTransport(Agents(), {"c": GONE})
    found = status(record(), transport)
    assert sorted(transport.opened) == ["a", "b", "c", "d"]
    assert found.away is not None
    assert found.away.summary == "the coordinator's host c cannot be reached"
    assert found.tasks[TaskId("worker", 0)].state is TaskState.LOST
    assert found.tasks[TaskId("ps", 0)].state is TaskState.RUNNING
    assert list(found.errors) == ["c"]


def test_an_agent_that_cannot_be_revived_is_no_coordinator() -> None:
    agents = Agents(viewed(), status=[AgentError("internal", "the agent's supervisor does not start")])
    found = status(record(), FakeTransport(agents))
    assert found.away is not None
    assert "cannot revive" in found.away.summary


def test_the_coordinator_is_found_after_the_cluster_file_changed() -> None:
    moved = dataclasses.replace(record(), lead=TaskId("worker", 1))
    transport = FakeTransport(Agents(viewed()))
    found = status(moved, transport)
    assert found.coordination is not None
    assert transport.opened == ["d", "c"]


def test_a_moved_run_is_found_through_the_remaining_hosts() -> None:
    here = moved_record("e", spare=True)
    view = viewed()
    view["hosts"]["e"] = view["hosts"].pop("c")
    view["hosts"]["e"]["state"]["host"] = "e"
    transport = FakeTransport(Agents(view, run=here), {"c": GONE})
    found = status(dataclasses.replace(record(), others={"e": here.hosts["e"]}), transport)
    assert found.coordination is not None
    assert found.tasks[TaskId("worker", 0)].host == "e"
    assert transport.opened.count("c") == 1


def test_stop_asks_the_coordinator_alone() -> None:
    agents = Agents(viewed(), stop=[stopped("ps:0", "ps:1", "worker:0", "worker:1")])
    transport = FakeTransport(agents)
    result = stop(record(), transport, ALL, ORDER)
    assert transport.opened == ["c"]
    assert len(result.stopped) == 4
    assert agents.asked[0][2]["tasks"] is None


def test_what_a_stop_will_end_is_reported_before_it_over_the_same_connection() -> None:
    agents = Agents(viewed(tasks={"worker:1": entry("succeeded")}), stop=[stopped("ps:0", "ps:1", "worker:0")])
    transport = FakeTransport(agents)
    heard: list[Ending] = []
    stop(record(run=None), transport, ALL, ORDER, before=heard.append)  # type: ignore[arg-type]
    assert transport.opened == ["c"]
    assert [(one.run, [*map(str, one.tasks)], one.hosts) for one in heard] == [
        ("digits-1", ["ps:0", "ps:1", "worker:0"], ("a", "b", "c"))
    ]
    assert [(kind, fields["run"]) for _, kind, fields in agents.asked] == [("status", None), ("stop", "digits-1")]


def refuse(found: Ending) -> None:
    raise UsageError(f"not {found.run}")


ENDS: list[Callable[[FakeTransport], object]] = [
    lambda transport: stop(record(), transport, (TaskId("worker", 0),), ORDER, before=refuse),
    lambda transport: restart(record(), transport, (TaskId("worker", 0),), by="me", before=refuse),
    lambda transport: down(record(), transport, ORDER, before=refuse),
]


@pytest.mark.parametrize("end", ENDS)
def test_refused_confirmation_changes_nothing(end: Callable[[FakeTransport], object]) -> None:
    for agents, unreachable in ((Agents(viewed()), {}), (Agents(), {"c": GONE})):
        with pytest.raises(UsageError, match="not digits-1"):
            end(FakeTransport(agents, unreachable))
        assert {kind for _, kind, _ in agents.asked} == {"status"}


def test_without_a_coordinator_what_is_about_to_end_is_reported_once() -> None:
    heard: list[Ending] = []
    down(record(), FakeTransport(Agents(), {"c": GONE}), ORDER, before=heard.append)
    assert [(one.run, len(one.tasks)) for one in heard] == [("digits-1", 4)]


def test_hosts_unreachable_for_the_coordinator_are_queried_directly() -> None:
    agents = Agents(viewed(), stop=[stopped("ps:0", "ps:1", "worker:0", unreached=["d"])])
    transport = FakeTransport(agents)
    result = stop(record(), transport, ALL, ORDER)
    assert transport.opened == ["c", "d"]
    assert sorted(map(str, result.stopped)) == ["ps:0", "ps:1", "worker:0", "worker:1"]
    assert not result.errors


def test_unreachable_hosts_are_named_and_stopped_when_they_connect() -> None:
    agents = Agents(viewed(), stop=[stopped("ps:0", "ps:1", "worker:0", unreached=["d"])])
    result = stop(record(), FakeTransport(agents, {"d": GONE}), ALL, ORDER)
    assert (list(result.errors), result.promised) == (["d"], ("d",))


def test_stop_names_hosts_whose_disk_is_too_full_to_keep_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The coordinator's host answers for its own tasks alone then."""
    own = {**stopped("worker:0"), "coordination": None, "unwritten": True}
    away = {"code": "not_answering", "summary": "its disk is full"}
    agents = Agents(viewed(), stop=[{**own, "away": away}])
    result = stop(record(), FakeTransport(agents), ALL, ORDER)
    assert sorted(map(str, result.stopped)) == ["ps:0", "ps:1", "worker:0", "worker:1"]
    assert (result.unwritten, result.errors) == (("c",), {})
    show_stop(result)
    shown = capsys.readouterr()
    assert "4 tasks stopped" in shown.out
    assert "the disk of c is full, and the stop is not written there" in shown.err
    assert stop_document(result)["unwritten"] == ["c"]


def test_without_a_coordinator_each_host_stops_its_own_and_ps_come_last() -> None:
    agents = Agents()
    transport = FakeTransport(agents, {"c": GONE})
    result = stop(record(), transport, ALL, ORDER)
    first, last = agents.asked_of("stop")[:3], agents.asked_of("stop")[3:]
    assert (sorted(first), sorted(last)) == (["a", "b", "d"], ["a", "b"])
    assert sorted(map(str, result.stopped)) == ["ps:0", "ps:1", "worker:1"]
    assert transport.opened.count("c") == 1
    assert list(result.errors) == ["c"]
    assert result.away is not None
    assert not result.promised


def test_workers_that_serve_the_chief_come_last_too() -> None:
    jobs = {"chief": "c", "worker": "d", "ps": "a", "evaluator": "e"}
    made = cluster(*(job(name, [host], [2222]) for name, host in jobs.items()), strategy="ps-strategy")
    asked = dataclasses.replace(record_of(plan_roster(made)), run="digits-1")
    agents = Agents(run=asked, servers=("ps", "worker"))
    stop(asked, FakeTransport(agents, {"c": GONE}), tuple(asked.roster), ORDER)
    assert sorted(agents.asked_of("stop")[3:]) == ["a", "d"]


def test_ps_alone_are_stopped_at_once() -> None:
    agents = Agents()
    result = stop(record(), FakeTransport(agents, {"c": GONE}), (TaskId("ps", 0),), ORDER)
    assert (agents.asked_of("stop"), [str(task) for task in result.stopped]) == (["a"], ["ps:0"])


def test_a_former_coordinator_is_queried_once() -> None:
    """The cluster file has changed: the lead is elsewhere than it says."""
    moved = dataclasses.replace(record(run=None), lead=TaskId("worker", 1))  # type: ignore[arg-type]
    agents = Agents(viewed(), restart=[restarted("worker:0")])
    both = (TaskId("worker", 0), TaskId("worker", 1))
    result = restart(moved, FakeTransport(agents), both, by="me")
    assert agents.asked_of("restart") == ["d", "c"]
    assert [fields["tasks"] for _, kind, fields in agents.asked if kind == "restart"] == [
        ["worker:0", "worker:1"],
        ["worker:0"],
    ]
    assert {str(task.id): task.entry["attempt"] for task in result.tasks} == {"worker:0": 2, "worker:1": 2}


def test_a_coordinator_that_does_not_answer_has_its_host_end_its_own() -> None:
    agents = Agents(viewed())
    away = {"code": "not_answering", "summary": "no sign of life for 60 s"}
    agents.extra["stop"] = [{**stopped("worker:0"), "coordination": None, "away": away}]
    result = stop(record(), FakeTransport(agents), ALL, ORDER)
    assert result.away is not None
    assert result.away.summary == "the coordinator's host c has no coordinator that answers"
    assert agents.asked_of("stop").count("c") == 1
    assert len(result.stopped) == 4


def test_down_clears_every_host_after_one_stop_by_one_connection_to_each() -> None:
    agents = Agents(viewed(), stop=[stopped("ps:0", "ps:1", "worker:0", "worker:1")])
    transport = FakeTransport(agents)
    result = down(record(), transport, ORDER)
    assert sorted(transport.opened) == ["a", "b", "c", "d"]
    assert all(session.closed for session in transport.sessions.values())
    assert agents.asked_of("stop") == ["c"]
    assert sorted(agents.asked_of("down")) == ["a", "b", "c", "d"]
    assert len(result.stop.stopped) == 4


@pytest.mark.parametrize("removed", [["digits-1"], []], ids=["removed", "kept"])
def test_down_says_nothing_of_a_full_disk_from_which_it_has_removed_the_run(removed: list[str]) -> None:
    """Nothing of the run can start again there."""
    own = {**stopped("worker:0"), "coordination": None, "unwritten": True}
    away = {"code": "not_answering", "summary": "its disk is full"}
    ended = {"type": "result", "stopped": [], "already": ["worker:0"], "survivors": [], "kept": []}
    agents = Agents(viewed(), stop=[{**own, "away": away}], down=[{**ended, "removed": removed}])
    result = down(record(), FakeTransport(agents), ORDER)
    assert result.stop.unwritten == (() if removed else ("c",))


class Returning(FakeTransport):
    """A host that cannot be reached at first, and then can."""

    def __init__(self, answer: Agents, host: str) -> None:
        super().__init__(answer, {host: GONE})
        self._returns = host

    def open(self, host: Host) -> Session:
        try:
            return super().open(host)
        finally:
            if host.name == self._returns:
                self._unreachable = {}


@pytest.mark.parametrize("over", [["digits-1"], []], ids=["heard", "unheard"])
def test_down_clears_a_host_whose_end_was_heard_after_stop_had_given_it_up(over: list[str]) -> None:
    """Nobody waits for it any more; a host whose end was not heard is waited for, and is not asked again."""
    ended = {"type": "result", "stopped": [], "already": [], "survivors": [], "kept": [], "removed": ["digits-1"]}
    agents = Agents(
        viewed(), stop=[stopped("ps:0", "ps:1", "worker:0", unreached=["d"])], down=[{**ended, "over": over}]
    )
    result = down(record(), Returning(agents, "d"), ORDER)
    assert ("d" in agents.asked_of("down")) == bool(over)
    assert list(result.stop.errors) == ([] if over else ["d"])
    assert ("d" in result.removed) == bool(over)


def test_down_reports_a_host_once_that_was_replaced_and_is_waited_for() -> None:
    """It has no task of this run any more, and tasks of an earlier one."""
    ended = {"type": "result", "stopped": [], "already": [], "survivors": [], "kept": [], "removed": ["digits-1"]}
    awaits = {"awaits": {"digits-0": ["s2"]}, "waits": ["digits-0"]}
    agents = Agents(viewed(), stop=[stopped("ps:0", "ps:1", "worker:0", "worker:1")], down=[{**ended, **awaits}])
    host = dataclasses.replace(next(iter(record().hosts.values())), name="s2")
    whole = dataclasses.replace(record(), run=None, others={"s2": host})
    result = down(whole, FakeTransport(agents, {"s2": GONE}), ORDER)
    assert list(result.awaited) == list(result.stop.errors) == ["s2"]
    assert result.unasked == {}


def test_down_clears_what_ended_runs_have_left_on_hosts_without_a_task() -> None:
    left = {"run": "digits-0", "cluster": "digits", "host": "s1", "why": said("its cluster was taken down")}
    removed = {**NOTHING, "dry_run": False, "runs": [left]}
    agents = Agents(
        viewed(),
        stop=[stopped("ps:0", "ps:1", "worker:0", "worker:1")],
        instead=lambda session, fields: [removed] if fields["type"] == "gc" else None,
    )
    hosts = {name: dataclasses.replace(next(iter(record().hosts.values())), name=name) for name in ("s1", "s2")}
    whole = dataclasses.replace(record(), run=None, others=hosts)
    result = down(whole, FakeTransport(agents, {"s2": GONE}), ORDER)
    assert [(host, fields["over"], fields["all"]) for host, kind, fields in agents.asked if kind == "gc"] == [
        ("s1", True, False)
    ]
    assert result.removed["s1"] == ("digits-0",)
    assert list(result.unasked) == ["s2"]
    assert not result.stop.errors
    kinds = [kind for _, kind, _ in agents.asked]
    assert kinds.index("stop") < kinds.index("gc") < kinds.index("runs") < kinds.index("down")
    assert {"s1", "s2"} & reached(agents) == {"s1"}


@pytest.mark.parametrize("live", [False, True])
def test_down_awaits_a_replaced_host_unless_its_run_is_over_there(live: bool) -> None:
    known = {"run": "digits-0", "cluster": "digits", "host": "s1", "created": 1.0, "live": live, "tasks": {}}
    answers = {"gc": {**NOTHING, "dry_run": False}, "runs": {"type": "result", "runs": [known]}}
    agents = Agents(
        viewed(),
        stop=[stopped("ps:0", "ps:1", "worker:0", "worker:1")],
        instead=lambda session, fields: [answers[fields["type"]]] if fields["type"] in answers else None,
    )
    hosts = {"s1": dataclasses.replace(next(iter(record().hosts.values())), name="s1")}
    down(dataclasses.replace(record(), run=None, others=hosts), FakeTransport(agents), ORDER)
    assert ("s1" in reached(agents)) is not live


def reached(agents: Agents) -> set[str]:
    """The hosts of which a `down` says that they get it too."""
    return {host for _, kind, fields in agents.asked if kind == "down" for host in fields["reached"]}


def test_down_of_one_run_leaves_hosts_without_a_task_alone() -> None:
    agents = Agents(viewed(), stop=[stopped("ps:0", "ps:1", "worker:0", "worker:1")])
    hosts = {"s1": dataclasses.replace(next(iter(record().hosts.values())), name="s1")}
    down(dataclasses.replace(record(), others=hosts), FakeTransport(agents), ORDER)
    assert agents.asked_of("gc") == []


def test_restart_names_unreachable_hosts() -> None:
    agents = Agents(viewed(), restart=[restarted("worker:0", unreached=["d"])])
    result = restart(record(), FakeTransport(agents), (TaskId("worker", 0), TaskId("worker", 1)), by="me")
    assert [(str(task.id), task.entry["attempt"]) for task in result.tasks] == [("worker:0", 2)]
    assert list(result.errors) == ["d"]


WITHOUT_D = viewed(hosts={"d": {"connected": False, "heard": None, "state": None, "absent": True}})
"""The run was started without d."""


def test_tasks_of_an_absent_host_are_pending_and_it_is_not_queried() -> None:
    transport = FakeTransport(Agents(WITHOUT_D), {"d": GONE})
    found = status(record(), transport)
    assert transport.opened == ["c"]
    assert found.tasks[TaskId("worker", 1)].state is TaskState.PENDING
    assert sentence(found.tasks[TaskId("worker", 1)].why) == "the run was started without its host"
    assert found.coordination is not None
    assert (found.coordination.absent_hosts, found.coordination.lost_hosts) == (("d",), ())
    assert not found.coordination.in_doubt


def test_a_run_of_one_host_that_is_there_is_not_isolated() -> None:
    gone = {"connected": False, "heard": None, "state": None, "absent": True}
    found = status(record(), FakeTransport(Agents(viewed(hosts=dict.fromkeys("abd", gone)))))
    assert found.coordination is not None
    assert not found.coordination.in_doubt


def test_a_run_that_has_ended_waits_for_one_host_without_doubt() -> None:
    over = {host: {"connected": False, "over": True} for host in "ab"}
    found = status(record(), FakeTransport(Agents(viewed(hosts={**over, "d": {"connected": False}})), {"d": GONE}))
    assert found.coordination is not None
    assert not found.coordination.in_doubt, "the others were in touch when they ended"


def test_down_does_not_query_absent_hosts() -> None:
    agents = Agents(WITHOUT_D)
    without_d = stopped("ps:0", "ps:1", "worker:0")
    agents.extra["stop"] = [{**without_d, "coordination": WITHOUT_D}]
    transport = FakeTransport(agents, {"d": GONE})
    told_before: list[Ending] = []
    result = down(record(), transport, ORDER, before=told_before.append)
    assert [one.hosts for one in told_before] == [("a", "b", "c")], "nothing of it ends there"
    assert sorted(agents.asked_of("down")) == ["a", "b", "c"]
    assert (result.stop.absent, result.stop.errors) == (("d",), {})


def test_restart_names_hosts_that_have_not_joined() -> None:
    agents = Agents(WITHOUT_D, restart=[{**restarted("worker:0", unreached=["d"]), "coordination": WITHOUT_D}])
    result = restart(record(), FakeTransport(agents), (TaskId("worker", 0), TaskId("worker", 1)), by="me")
    assert result.errors["d"].summary == "d is not part of the run, which was started without it"
    assert result.errors["d"].hint.startswith("dtctl up")


def test_without_a_coordinator_the_workers_that_are_there_decide() -> None:
    """Where every worker decides, one that was never there does not keep the run from its end."""
    known = inventory(record())
    for member in known["roster"]:
        member["decides"] = member["task"].startswith("worker")

    def reported(host: str, answer: dict[str, Any]) -> dict[str, Any]:
        succeeded = dict.fromkeys(answer["state"]["tasks"], entry("succeeded"))
        return {**with_states(answer, succeeded), "inventory": {**known, "absent": ["d"]}}

    assert status(record(), FakeTransport(Agents(reported=reported), {"d": GONE})).verdict.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("order", "outcome"),
    [("stopped_by", Outcome.STOPPED), ("run_succeeded", Outcome.SUCCEEDED), ("run_failed", Outcome.FAILED)],
)
def test_the_reachable_hosts_say_how_a_run_ended_whose_coordinator_is_gone(order: str, outcome: Outcome) -> None:
    found = status(record(), FakeTransport(_ended_by(order, outcome), {"c": GONE}))
    assert found.verdict.outcome is outcome
    assert sentence(found.verdict.why).endswith("; 1 host unreachable: c")
    assert found.going_on_after_the_end == ()


def test_run_continues_if_a_task_was_not_stopped() -> None:
    agents = _ended_by("stopped_by", but="d")
    assert status(record(), FakeTransport(agents, {"c": GONE})).verdict.outcome is Outcome.RUNNING


def _ended_by(order: str, outcome: Outcome = Outcome.STOPPED, but: str = "") -> Agents:
    """Every host but one has ended its tasks, as it was asked to."""
    order_of = {"ends_as": {"outcome": outcome.value}, **because([fact(order, by="ada@laptop")])}

    def reported(host: str, answer: dict[str, Any]) -> dict[str, Any]:
        tasks = answer["state"]["tasks"]
        intents = {task: made(Intent, want="stop", version=3, **order_of) for task in tasks}
        ended = with_states(answer, dict.fromkeys(tasks, entry("stopped")))
        return answer if host == but else {**ended, "intents": intents}

    return Agents(reported=reported)


def test_a_host_that_refuses_is_named_beside_what_the_coordinator_says() -> None:
    """Its files are damaged: nobody else tells it."""
    damaged = AgentError("damaged", "a file of the run is damaged on this host")
    view = viewed(hosts={"d": {"connected": False, "heard": 1004.0}})
    agents = Agents(view, instead=lambda session, _: [damaged] if session.host.name == "d" else None)
    found = status(record(), FakeTransport(agents))
    assert found.tasks[TaskId("worker", 1)].state is TaskState.LOST
    assert list(found.errors) == ["d"]


def test_a_restart_in_a_run_that_has_ended_is_refused_and_not_tried_elsewhere() -> None:
    agents = Agents(viewed("Succeeded"), restart=[AgentError("run_ended", "run digits-1 has ended: Succeeded")])
    with pytest.raises(AgentError, match="has ended"):
        restart(record(), FakeTransport(agents), (TaskId("worker", 0),), by="me")
    assert agents.asked_of("restart") == ["c"]


def test_no_run_at_all_is_reported_as_such() -> None:
    def empty(session: object, fields: object) -> list[dict[str, object]]:
        return [{"type": "result", "run": None, "time": 1.0}]

    found = status(record(), FakeTransport(empty))  # type: ignore[arg-type]
    assert (found.time, set(found.without_run)) == (0.0, set("abcd"))
    assert found.away is not None
    assert found.away.elsewhere


def stopped(*tasks: str, unreached: list[str] | None = None) -> dict[str, object]:
    ended = {"stopped": list(tasks), "already": [], "survivors": [], "unreached": unreached or []}
    return {"type": "result", "run": "digits-1", **ended, **COORDINATED}


def restarted(*tasks: str, unreached: list[str] | None = None) -> dict[str, object]:
    entries = {task: entry(attempt=2) for task in tasks}
    return {"type": "result", "run": "digits-1", "tasks": entries, "unreached": unreached or [], **COORDINATED}
