"""cluster.json by hand, and agents that answer from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import said
from dtctl.agent.records.run_state import Entry, Intent
from dtctl.agent.records.spec import Inventory
from dtctl.agent.records.whole_run import RunView
from dtctl.errors import AgentError, DtctlError
from dtctl.model import TaskId
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.snapshot import Coordination
from dtctl.plan import plan_roster
from tests.unit.clusters import cluster
from tests.unit.fakes import BEATS_FOR_EVER, FakeSession

HOSTS = {"a": "ps:0", "b": "ps:1", "c": "worker:0", "d": "worker:1"}
"""Of `clusters.cluster()`, with the lead, and so the coordinator, on c."""


def record(run: str = "digits-1", created: float = 1000.0, **settings: Any) -> RunRecord:
    value = record_of(plan_roster(cluster(**settings)), run, created)
    return dataclasses.replace(value, file=Path("/p/x.yaml"))


def moved_record(to: str, *, spare: bool = False) -> RunRecord:
    """The lead is on another host, of which the record says no more, unless it is a spare of the file."""
    moved = record(created=2000.0)
    hosts = {**moved.hosts, to: dataclasses.replace(moved.hosts["d"], name=to)} if spare else moved.hosts
    return dataclasses.replace(moved, roster={**moved.roster, TaskId("worker", 0): to}, hosts=hosts)


def inventory(run: RunRecord, servers: Collection[str] = ("ps",)) -> dict[str, Any]:
    """As the hosts of the run tell of it; `servers`: jobs."""
    roster = [
        {"task": str(task), "host": host, "serves": task.job in servers, "decides": task == run.lead}
        for task, host in run.roster.items()
    ]
    elected = {"elected": run.elected, "term": 2} if run.elected else {}
    names = {**elected, "cluster": run.cluster, "run": run.run, "created": run.created, "replaced": dict(run.replaced)}
    return dict(checked(Inventory, {**names, "lead": str(run.lead), "success": run.success, "roster": roster}))


def entry(state: str = "running", **fields: Any) -> dict[str, Any]:
    return dict(checked(Entry, {"state": state, "attempt": 1, "pid": 7, "since": 1001.0, "ready": True, **fields}))


def state_of(host: str, tasks: Mapping[str, Mapping[str, Any]], run: str = "digits-1") -> dict[str, Any]:
    """state.json"""
    return {"run": run, "host": host, "tasks": dict(tasks)}


def viewed(
    condition: str = "Running",
    reason: str = "4 of 4 tasks run",
    cause: str | None = None,
    *,
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """What the coordinator on c tells; `tasks` and `hosts` hold what is not as usual."""
    known = {}
    for host, task in HOSTS.items():
        state = state_of(host, {task: (tasks or {}).get(task, entry())})
        usual = {"connected": True, "heard": 1009.0, "over": False, "state": state}
        known[host] = {**usual, **(hosts or {}).get(host, {})}
    usual = {
        "version": 1, "serial": 5, "run": "digits-1", "time": 1010.0, "phase": "running", "conditions": [],
        "condition": {"type": condition, "why": said(reason), "cause": cause, "since": 1005.0},
        "hosts": known, "intents": {}, "incidents": [], "restarts": 0, "request_serial": 0, "waits_for": {"why": []},
        "elapsed_s": 9.0,
    }  # fmt: skip
    return dict(checked(RunView, {**usual, **fields}))


def with_view(coordination: Coordination, **fields: Any) -> Coordination:
    view: Any = {**coordination.view, **fields}
    return dataclasses.replace(coordination, view=view)


def incident(task: str = "ps:1", **fields: Any) -> dict[str, Any]:
    usual = {
        "id": 1, "task": task, "host": "b", "noticed": 1002.0, "why": [{"kind": "killed", "signal": 9}],
        "scope": "task", "tasks": [task], "collateral": [], "step": 1237, "back_to": 1000,
        "begun": 1003.0, "recovered": 1011.4, "given_up": None,
        "steps_at_restart": {"worker:0": 1237, "worker:1": None}, "attempt": 1, "ended": 1002.0, "own": False,
    }  # fmt: skip
    known = {**usual, **fields}
    return {"loss": _LOSSES.get(known["why"][0]["kind"] if known["why"] else "", "exit"), **known}


_LOSSES = {
    **dict.fromkeys(("stalled", "frozen"), "hung"),
    **{kind: kind for kind in ("still_silent", "at_barrier", "never_began", "ps_ended")},
    "takes_place": "moved",
}
"""The reasons with which a coordinator notes a loss that is no exit."""


Script = list[dict[str, Any] | DtctlError]


class Agents:
    """Every host answers for itself; c also as the coordinator, with `view`, and what `extra` has for a request.

    `instead`: what a host answers to a request in place of that, unless it is None.
    `reported`: of a host and its usual answer to `status`, what it answers.
    """

    def __init__(
        self,
        view: Mapping[str, Any] | None = None,
        *,
        run: RunRecord | None = None,
        servers: Collection[str] = ("ps",),
        instead: Callable[[FakeSession, Mapping[str, Any]], Any] = lambda session, fields: None,
        reported: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda host, answer: answer,
        **extra: Script,
    ) -> None:
        self.view = view
        self.run = run or record()
        self._servers = servers
        self.asked: list[tuple[str, str, Mapping[str, Any]]] = []
        self.extra = extra
        self._instead = instead
        self._reported = reported

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
        host, kind = session.host.name, str(fields["type"])
        self.asked.append((host, kind, fields))
        instead = self._instead(session, fields)
        if instead is not None:
            return list(instead)
        coordinates = host == self.run.coordinator and self.view is not None
        if coordinates and kind in self.extra:
            return list(self.extra[kind])
        if kind == "status":
            return [self._reported(host, self.status(host, self.view if coordinates else None))]
        if kind == "events" and fields["whole"]:
            return [AgentError("not_coordinator", "this host does not coordinate the run")]
        if kind == "diagnose":
            machine = {"time": 1.0, "cpus": 4, "load": 0.5, "memory_bytes": 9, "available_bytes": 8, "waiting": {}}
            tasks = {str(task): {"frozen": str(task) == "ps:1"} for task in self.run.tasks_on(host)}
            return [{"type": "result", "run": self.run.run, "time": 1.0, "machine": machine, "tasks": tasks}]
        if kind == "speed":
            unmeasured: dict[str, Any] = {"minutes": [], "whole": None, "since": None, "parameters": None}
            return [{"type": "result", "run": self.run.run, "time": 1.0, **unmeasured}]
        about = {"type": "result", "run": self.run.run, "inventory": self.inventory}
        if kind in ("stop", "down"):
            own = [str(task) for task in self.run.tasks_on(host)]
            waiting = self._waiting(own, fields) if kind == "stop" else []
            ended = [task for task in own if task not in waiting and task in (fields.get("tasks") or own)]
            ending = {"stopped": ended, "already": [], "waiting": waiting, "survivors": []}
            return [{**about, **ending, "removed": [], "kept": []}]
        if kind == "restart":
            own = [str(task) for task in self.run.tasks_on(host)]
            return [{**about, "tasks": {task: entry(attempt=2) for task in fields["tasks"] if task in own}}]
        if kind == "runs":
            return [{"type": "result", "runs": []}]
        raise AssertionError(fields)

    @property
    def inventory(self) -> dict[str, Any]:
        return inventory(self.run, self._servers)

    def _waiting(self, own: Collection[str], fields: Mapping[str, Any]) -> list[str]:
        """Servers wait for the others, if there are others."""
        asked = [one for one in self.inventory["roster"] if one["task"] in (fields["tasks"] or [one["task"]])]
        servers = [one["task"] for one in asked if one["serves"]]
        if fields["others_ended"] or len(servers) == len(asked):
            return []
        return [task for task in servers if task in own]

    def status(self, host: str, view: Mapping[str, Any] | None) -> dict[str, Any]:
        own = {str(task): entry() for task in self.run.tasks_on(host)}
        assert self.run.run is not None
        return {
            "type": "result", "run": self.run.run, "inventory": self.inventory, "agent_alive": True,
            "state": state_of(host, own, self.run.run), "intents": {task: made(Intent) for task in own},
            "checkpoints": [], "time": 1010.0, "coordination": view,
        }  # fmt: skip

    def asked_of(self, kind: str) -> list[str]:
        return [host for host, asked, _ in self.asked if asked == kind]


class Beating(Agents):
    """One host gives no answer while it beats."""

    beats = True

    def __init__(self, view: Mapping[str, Any] | None = None, *, on: str = "c", run: RunRecord | None = None) -> None:
        super().__init__(view, run=run, instead=self._beat)
        self._on = on

    def _beat(self, session: FakeSession, fields: Mapping[str, Any]) -> Script | None:
        return [dict(BEATS_FOR_EVER)] if session.host.name == self._on and self.beats else None


def with_states(answer: dict[str, Any], tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A host's answer to `status` with other entries for these tasks."""
    return {**answer, "state": {**answer["state"], "tasks": {**answer["state"]["tasks"], **tasks}}}
