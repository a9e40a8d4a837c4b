"""Tasks of a run as a controller knows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from dtctl.agent.records.answers import Log
from dtctl.agent.records.checkpoints import Checkpoint, CheckpointReport
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact
from dtctl.agent.records.run_state import Evidence, Exit, Hold, Past
from dtctl.model import TaskId, TaskState
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.logs import LogLines
from dtctl.operations.snapshot import TaskStatus

_OF_EXIT = ("code", "signal", "tail", "left_behind", "killed_after_s")


def task_status(name: str, host: str = "a", state: str | TaskState = "running", **fields: Any) -> TaskStatus:
    """`fields`: of its entry, or of how its newest attempt has ended."""
    return changed(TaskStatus(TaskId.parse(name), host, TaskState(state)), **fields)


def changed(task: TaskStatus, **fields: Any) -> TaskStatus:
    """The same with other fields, as `task_status` has them."""
    known = {name: fields.pop(name) for name in ("id", "host", "state") if name in fields}
    ended = {name: _listed(fields.pop(name)) for name in _OF_EXIT if name in fields}
    for name, value in _data_of(fields.get("why", ()), task).items():
        (ended if name in ("evidence", "fault", "cannot_run") else fields).setdefault(name, value)
    if ended:
        fields["exit"] = made(Exit, **{**(task.entry["exit"] or {}), **ended})
    entry: Any = {**task.entry, **{name: _listed(value) for name, value in fields.items()}}
    return dataclasses.replace(task, entry=entry, **known)


def _data_of(why: Sequence[Fact], task: TaskStatus) -> dict[str, Any]:
    """The fields of the entry, and of its exit, that an agent sets when it gives this reason."""
    found: dict[str, Any] = {}
    evidence: dict[str, Any] = {}
    limits = []
    for raw in why:
        one: Any = raw
        if one["kind"] in ("stalled", "frozen"):
            kind = "frozen" if one["kind"] == "frozen" else "silent"
            found["hang"] = {"kind": kind, "seconds": one["seconds"]}
        elif one["kind"] in ("drained", "shutting_down", "cut_off", "drained_alone"):
            found["hold"] = made(Hold, kind=one["kind"], holder=one["host"], by=one.get("by", ""), why=one)
        elif one["kind"] == "scaled_down":
            found["hold"] = made(Hold, kind=one["kind"], holder=one["task"], count=one["count"], why=one)
        elif one["kind"] == "left_out":
            found["hold"] = made(Hold, kind=one["kind"], holder=one["host"], why=one)
        elif one["kind"] == "hung_in":
            evidence["hung_in"] = one["text"]
        elif one["kind"] == "port_held":
            evidence["port"] = {"port": one["port"], "holder": one["text"]}
        elif one["kind"] == "out_of_memory":
            evidence["oom_kills"] = one["count"]
        elif one["kind"] in ("disk_full", "own_disk_full"):
            evidence["full_disks"] = [{"path": one["what"], "own": one["kind"] == "own_disk_full"}]
        elif one["kind"] == "limit":
            value = int(one["text"].split()[0])
            limits.append({"option": one["what"].split()[-1], "value": value, "text": one["text"]})
        elif one["kind"] == "host_restarted":
            found["fault"] = "host_restarted"
        elif one["kind"] == "cannot_run":
            found.update(fault="not_run", cannot_run={"what": one["what"], "text": one["text"]})
        elif one["kind"] == "exit_unwritten":
            found["unwritten"] = True
    if limits:
        evidence["limits"] = limits
    return {**found, "evidence": made(Evidence, **evidence)} if evidence else found


def past_attempt(
    attempt: int,
    started: float,
    ended: float,
    code: int | None = None,
    signal: int | None = None,
    asked: bool = False,
    hung: Sequence[Fact] = (),
    **fields: Any,
) -> Past:
    """`hung`: by what it was seen to hang."""
    how = {"code": code, "signal": signal, "asked": asked, "hung": bool(hung), "why": list(hung)}
    return made(Past, attempt=attempt, started=started, ended=ended, **{**how, **fields})


def changed_attempt(attempt: Past, **fields: Any) -> Past:
    other: Any = {**attempt, **fields}
    return cast("Past", other)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def checkpoint(prefix: str, step: int | None = None, **fields: Any) -> Checkpoint:
    """A complete one."""
    usual = {"time": 1.0, "size_bytes": 10, "shards": 1, "complete": True, "problem": None}
    return made(Checkpoint, **{"prefix": prefix, "step": step, **usual, **fields})


def checkpoint_directory(host: str, directory: str, *found: Checkpoint, **fields: Any) -> Checkpoints:
    """Those of one directory; the newest complete one is the first of them that is complete."""
    newest = next((one for one in found if one["complete"]), None)
    known = {"newest_complete": newest, "incomplete": [], "all": list(found), **fields}
    return Checkpoints(host, made(CheckpointReport, dir=directory, **known))


def log_lines_of(task: str, data: bytes, **fields: Any) -> LogLines:
    """Of the first attempt, from the log's start, if `fields` do not say otherwise."""
    return LogLines(made(Log, **{"task": task, "attempt": 1, "offset": 0, "end": 0, "time": 1.0, **fields}), data)
