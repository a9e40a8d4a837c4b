"""drain, undrain and scale: hold tasks and release them, while the run continues or pauses.

Only the coordinator knows whether a host without a task is drained.
"""

from __future__ import annotations

from ..host.errors import Refused
from ..records.answers import RestartResult
from ..records.kinds import made
from ..records.spec import inventory_of
from ..run import drains, gang
from . import readmit, run_handles, runs, stop
from .run_handles import NotTaken, RunHandle, WholeRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Set

    from ..conversation import Conversation
    from ..records.answers import StopResult
    from ..records.requests import DrainRequest, UndrainRequest


def drain(talk: Conversation, request: DrainRequest) -> StopResult:
    """Holds tasks; returns when they have ended on all reachable hosts, or some certainly do not end."""
    run = runs.need(talk, request)
    handle = run_handles.reached(talk, run)
    try:
        return _drain(talk, run, handle, request)
    except NotTaken as away:
        return _drain(talk, run, RunHandle(run, away), request)


def _drain(talk: Conversation, run: runs.Run, handle: RunHandle, request: DrainRequest) -> StopResult:
    handle.refresh()
    handle.refuse_ended()
    tasks = _to_be_held(handle, run, request)
    open_ = [task for task in tasks if not run_handles.is_drained(handle, task)]
    grace_s = run.spec["grace_s"] if request["grace_s"] is None else request["grace_s"]
    reporter = stop.Reporter(talk, handle, open_, grace_s, run_handles.is_drained)
    held = Held()
    if tasks or request["drained"] in handle.idle():
        serial = handle.post_drain(request)
        stop.await_end(handle, open_, serial, grace_s, reporter, held.is_over)
    handle.refresh()
    tasks = [task for task in tasks if not held.is_released(handle, task)]
    return stop.result(run, handle, tasks, [task for task in open_ if task in tasks], [], run_handles.is_drained)


class Held:
    """Tasks that were observed as held: if another command releases one, it is not waited for."""

    def __init__(self) -> None:
        self._seen: Set[str] = set()

    def is_over(self, handle: RunHandle, task: str) -> bool:
        return self.is_released(handle, task) or run_handles.is_drained(handle, task)

    def is_released(self, handle: RunHandle, task: str) -> bool:
        intent = handle.intents().get(task)
        if intent is not None and drains.is_drained(intent):
            self._seen.add(task)
            return False
        return task in self._seen


def undrain(talk: Conversation, request: UndrainRequest) -> RestartResult:
    """Releases tasks; returns when they run again, or wait for a host that is away, or for the end of another drain."""
    run = runs.need(talk, request)
    if readmit.end(run, request["drained"] or ""):
        return made(RestartResult, run=run.id, tasks={}, inventory=inventory_of(run.spec))
    handle = run_handles.reached(talk, run)
    try:
        return _undrain(talk, run, handle, request)
    except NotTaken as away:
        return _undrain(talk, run, RunHandle(run, away), request)


def _undrain(talk: Conversation, run: runs.Run, handle: RunHandle, request: UndrainRequest) -> RestartResult:
    handle.refresh()
    handle.refuse_ended()
    if request["job"] is None:
        _refuse_stranger(handle, run, request["drained"] or "")
        tasks = drains.tasks_of(request["drained"] or "", handle.intents())
    else:
        more = set(handle.tasks(None)) - set(_beyond(handle, run, request))
        tasks = [task for task in drains.scaled_down(request["job"], handle.intents()) if task in more]
    serial = handle.post_undrain(request) if tasks or request["drained"] in handle.idle() else 0
    return stop.await_begin(talk, run, handle, tasks, serial)


def _to_be_held(handle: RunHandle, run: runs.Run, request: DrainRequest) -> List[str]:
    if request["job"] is not None:
        return _beyond(handle, run, request)
    _refuse_stranger(handle, run, request["drained"] or "")
    ended = {task for task in handle.tasks(None) if run_handles.has_ended(handle, task)}
    members = [handle.members()[task] for task in handle.tasks(None)]
    host, intents = request["drained"] or "", handle.intents()
    alone = isinstance(handle, WholeRun) and gang.goes_on_without(run.spec, host, intents)
    return drains.held_by(host, members, run.spec["strategy"], intents, ended, alone=alone)


def _beyond(handle: RunHandle, run: runs.Run, request: UndrainRequest) -> List[str]:
    """The surplus tasks. Refuses changes that the coordinator does not decide, or that the run cannot continue with."""
    if not isinstance(handle, WholeRun):
        raise handle.away or Refused("bad_request", "the coordinator is on another host")
    tasks = handle.tasks(None)
    too_many = [*drains.beyond(request["job"] or "", request["count"], request["by"], tasks)]
    if not gang.may_scale(run.spec, request["job"] or "", too_many, handle.intents()):
        raise Refused("bad_request", "run %s cannot continue without %s" % (run.id, ", ".join(too_many[:10])))
    return too_many


def _refuse_stranger(handle: RunHandle, run: runs.Run, host: str) -> None:
    tasks = [task for task, place in handle.hosts.items() if place == host]
    if not tasks and host not in handle.idle():
        raise Refused("bad_request", "%s has no task in run %s" % (host, run.id))
    if handle.absent(tasks):
        raise Refused("bad_request", "%s has no part in run %s, which was started without it" % (host, run.id))
