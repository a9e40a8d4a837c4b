"""Answers `logs`: what tasks have printed, and keep printing (docs/agent.md, "logs")."""

from __future__ import annotations

import heapq
import os
import time

from ..host.errors import Refused
from ..host.paths import read_record
from ..host.secrets import Masks
from ..protocol.wire import Gone
from ..records.words import Variables
from ..run.policy import FINAL
from .selection import Selection
from .task_log import TaskLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, List, Optional

    from ..protocol.wire import Wire
    from ..records import answers
    from ..records.requests import LogsRequest
    from ..records.run_state import Entry, State
    from .reader import LogFrame

    States = Callable[[], Optional[State]]

POLL_S = 0.2
LOOK_S = 0.04
"""Between two looks at how long the logs are, which cost little: a person waits for what a trainer has printed."""


def serve(run_dir: str, request: LogsRequest, wire: Wire, states: States, gone: Callable[[], bool]) -> None:
    """Sends `log` frames, and `states` frames if asked to; returns when `result` is due, or nobody listens.

    `states` gives state.json as it is now (null before there is one), `gone` whether the controller has gone.
    """
    state = _now(states)
    tasks = _tasks(request, state)
    selection = _selection(run_dir, request, gone)
    try:
        logs = [TaskLog(run_dir, task, request, selection, _entry(state, task)) for task in tasks]
        if request["follow"]:
            _follow(logs, state, request, wire, states, gone)
            return
        _tell_states(state, None, request, wire)
        for fields, data in _merged(logs, state):
            wire.send(fields, data)
    except Gone:
        if not gone():
            raise
    finally:
        selection.close()


def _follow(
    logs: List[TaskLog],
    state: Optional[State],
    request: LogsRequest,
    wire: Wire,
    states: States,
    gone: Callable[[], bool],
) -> None:
    shown_serial = None
    while True:
        shown_serial = _tell_states(state, shown_serial, request, wire)
        _send_new(logs, state, wire)
        if all(log.ended for log in logs) or gone():
            return
        for _ in range(int(POLL_S / LOOK_S)):
            time.sleep(LOOK_S)
            _send_new([log for log in logs if log.has_grown()], state, wire)
        state = _now(states)  # before the logs are read: what is final by then has written all that it will


def _send_new(logs: List[TaskLog], state: Optional[State], wire: Wire) -> None:
    for log in logs:
        for fields, data in log.read(_is_final(state, log.task), _entry(state, log.task)):
            wire.send(fields, data)


def _tell_states(state: Optional[State], shown: Optional[int], request: LogsRequest, wire: Wire) -> Optional[int]:
    """The serial of what has been told."""
    if not request["states"] or state is None or state["serial"] == shown:
        return shown
    told: answers.States = {"run": state["run"], "state": state, "coordination": None}
    wire.send(dict(told, type="states"))
    return state["serial"]


def _merged(logs: List[TaskLog], state: Optional[State]) -> Iterator[LogFrame]:
    """What all tasks have printed, by its time; of each task one piece at a time is kept."""
    reading = [log.read(_is_final(state, log.task), _entry(state, log.task)) for log in logs]
    return heapq.merge(*reading, key=lambda frame: frame[0]["time"])


def _selection(run_dir: str, request: LogsRequest, gone: Callable[[], bool]) -> Selection:
    def check() -> None:
        if gone():
            raise Gone

    secrets = read_record(os.path.join(run_dir, "secrets.json"), Variables) or {}
    return Selection(request, Masks(secrets.values()), check)


def _now(states: States) -> Optional[State]:
    try:
        return states()
    except FileNotFoundError:
        raise Refused("no_run", "the run has been removed from this host") from None


def _tasks(request: LogsRequest, state: Optional[State]) -> List[str]:
    known = list(state["tasks"]) if state is not None else []
    if request["tasks"] is None:
        return known
    for task in request["tasks"]:
        if state is not None and task not in known:
            raise Refused("bad_request", f"{task} does not run on this host", hint=f"tasks here: {', '.join(known)}")
    return list(request["tasks"])


def _entry(state: Optional[State], task: str) -> Optional[Entry]:
    return state["tasks"].get(task) if state is not None else None


def _is_final(state: Optional[State], task: str) -> bool:
    entry = _entry(state, task)
    return entry is not None and entry["state"] in FINAL
