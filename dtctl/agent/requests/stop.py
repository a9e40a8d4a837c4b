"""stop and restart: for the whole run if its coordinator answers, otherwise for the tasks of this host."""

from __future__ import annotations

import time
from contextlib import closing

from ..host import errors
from ..host.errors import NO_ROOM, Refused
from ..records.kinds import made
from ..records.reasons import because, fact, sentence, why_of
from ..records.run_state import How
from ..records.spec import inventory_of
from ..records.values import MOST_PROCESSES
from ..survival import reboot
from . import run_handles, runs
from .run_handles import NotTaken, RunHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

    from ..conversation import Conversation
    from ..records.answers import Departing, RestartResult, Stopping, StopResult
    from ..records.requests import RestartRequest, StopRequest
    from ..records.run_state import Entry
    from ..records.values import StopPhase

    HasEnded = Callable[[RunHandle, str], bool]


END_LIMIT_S = 15.0
"""How long a stop waits after SIGKILL before it reports what is left."""

REPORT_S = 1.0

REACH_S = 5.0
"""How long an unreachable agent is waited for that was there just now, or while the coordinator has just started: it
is usually dialled again within that time. A host that has been away for longer is not waited for."""


def stop(talk: Conversation, request: StopRequest) -> StopResult:
    """Returns when the tasks have ended wherever they can be reached, or it is clear that some do not."""
    run = runs.need(talk, request)
    why = because(request["why"] or [fact("stopped")])
    how = made(How, by=request["by"], grace_s=request["grace_s"], ends_as=request["ends_as"], **why)
    handle = run_handles.reached(talk, run)
    try:
        return end(run, handle, request["tasks"], how, request["others_ended"], talk)
    except NotTaken as away:
        return end(run, RunHandle(run, away), request["tasks"], how, request["others_ended"], talk)


def stop_run(run: runs.Run, how: How, talk: Optional[Conversation] = None) -> StopResult:
    """Stops the tasks of this host in a run that ends everywhere, without waiting for other hosts.

    `talk` gets progress.
    """
    return end(run, RunHandle(run), None, how, True, talk)


def end(
    run: runs.Run,
    handle: RunHandle,
    named: Optional[List[str]],
    how: How,
    others_ended: bool,
    talk: Optional[Conversation] = None,
) -> StopResult:
    """Ends those of the `named` tasks (None: all) that belong to this part of the run.

    On a disk without room for the request the agent of this host obeys it in memory.
    """
    try:
        return _end(run, handle, named, how, others_ended, talk)
    except OSError as full:
        if not errors.is_full(full):
            raise
        from .unwritten import UnwrittenStop  # rarely needed

        with closing(UnwrittenStop(run, full, handle)) as unwritten:
            return _end(run, unwritten, named, how, others_ended, talk)


def _end(
    run: runs.Run,
    handle: RunHandle,
    named: Optional[List[str]],
    how: How,
    others_ended: bool,
    talk: Optional[Conversation],
) -> StopResult:
    run_handles.refuse_strangers(handle, run, named)
    handle.refresh()
    open_ = [task for task in handle.tasks(named) if not run_handles.has_ended(handle, task)]
    first = handle.first_to_end(named, others_ended)
    to_stop = [task for task in open_ if task in first]
    if handle.waits_for(named, to_stop):
        grace_s = run.spec["grace_s"] if how["grace_s"] is None else how["grace_s"]
        reporter = Reporter(talk, handle, to_stop, grace_s)
        serial = handle.post_stop(named, to_stop, how)
        await_end(handle, to_stop, serial, grace_s, reporter)
    handle.refresh()
    return result(run, handle, handle.tasks(named), to_stop, [task for task in open_ if task not in to_stop])


def _is_stopped(handle: RunHandle, task: str) -> bool:
    """Whether it has ended, also if there is no room for how: then nothing of it is left, and it is not started again.

    Only of a task that was asked to stop.
    """
    return run_handles.has_ended(handle, task) or _is_unwritten(handle, task)


def await_end(
    handle: RunHandle,
    to_stop: List[str],
    serial: int,
    grace_s: float,
    reporter: Reporter,
    has_ended: HasEnded = _is_stopped,
) -> None:
    """Raises as `is_taken`."""
    limit_s = handle.longest_end_s(grace_s) + END_LIMIT_S
    if not is_taken(handle, serial, limit_s):
        return
    patience = time.monotonic() + REACH_S

    def ended() -> bool:
        reporter.refresh()
        open_ = [task for task in to_stop if not has_ended(handle, task)]
        away = handle.unreached(open_)
        waiting = [task for task in open_ if handle.hosts[task] not in away]
        return not waiting and not (handle.may_dial(away, REACH_S) and time.monotonic() < patience)

    handle.until(ended, limit_s)
    reporter.finish()


def is_taken(handle: RunHandle, serial: int, limit_s: float) -> bool:
    """Whether the request is taken in time. Raises NotTaken where the coordinator does not take it, or is another."""
    if handle.until(lambda: handle.has_taken(serial), min(limit_s, handle.answer_s)):
        return True
    if handle.view is not None:
        raise NotTaken("not_answering", "the coordinator has not taken the request within %.0f s" % handle.answer_s)
    return False


def result(
    run: runs.Run,
    handle: RunHandle,
    tasks: List[str],
    to_stop: List[str],
    waiting: List[str],
    has_ended: HasEnded = _is_stopped,
) -> StopResult:
    entries = {task: entry for task in tasks for entry in [handle.entry(task)] if entry is not None}
    asked = [task for task in to_stop if task in entries and _was_stopped(entries[task])]
    stopped = [task for task in asked if has_ended(handle, task)]
    exits = {task: entries[task]["exit"] for task in stopped}
    survivors = handle.survivors([task for task in tasks if task not in waiting])
    return {
        "run": run.id,
        "stopped": stopped,
        "killed": {task: end["killed_after_s"] for task, end in exits.items() if end and end["killed_after_s"]},
        "already": [task for task in tasks if has_ended(handle, task) and task not in stopped],
        "waiting": waiting,
        "survivors": survivors[:MOST_PROCESSES],
        "omitted": max(0, len(survivors) - MOST_PROCESSES),
        "unreached": handle.unreached([task for task in tasks if not has_ended(handle, task)]),
        "coordination": handle.view,
        "away": handle.away.fields() if handle.away else None,
        "inventory": inventory_of(run.spec),
        "unwritten": not handle.is_written,
    }


def _was_stopped(entry: Entry) -> bool:
    return entry["state"] in ("stopped", "pending") or entry["unwritten"]


class Reporter:
    """Reports to the controller which tasks still save, for how long, and how others have ended: at most once a second.

    Most stops end before, and report only their result. Created before the request to the tasks.
    """

    def __init__(
        self,
        talk: Optional[Conversation],
        handle: RunHandle,
        tasks: List[str],
        grace_s: float,
        has_ended: HasEnded = _is_stopped,
    ) -> None:
        self._has_ended = has_ended
        self._talk = talk
        self._handle = handle
        self._tasks = tasks
        self._grace_s = grace_s
        self._next = time.monotonic() + REPORT_S
        self._sent: Dict[str, Departing] = {}
        self._since: Dict[str, Optional[float]] = {task: None for task in tasks if self._way(task) == "saving"}
        """When the SIGTERM to each was observed; None: before this request."""
        self._took_s: Dict[str, float] = {}

    def refresh(self) -> None:
        """Called repeatedly while the tasks end."""
        now = time.monotonic()
        leaving = {task: self._leaving(task, now) for task in self._tasks}
        if now >= self._next:
            self._send(leaving, now)

    def finish(self) -> None:
        """The last changes, if any were sent."""
        if self._sent:
            now = time.monotonic()
            self._send({task: self._leaving(task, now) for task in self._tasks}, now)

    def _send(self, leaving: Dict[str, Departing], now: float) -> None:
        changed = {task: one for task, one in leaving.items() if self._is_news(task, one)}
        if self._talk is None or not changed:
            return
        stopping: Stopping = {"grace_s": self._grace_s, "tasks": changed}
        self._talk.send("stopping", stopping)
        self._sent.update(changed)
        self._next = now + REPORT_S

    def _is_news(self, task: str, one: Departing) -> bool:
        """The controller counts the seconds itself."""
        before = self._sent.get(task)
        return before is None or (before["way"], before["signal"]) != (one["way"], one["signal"])

    def _leaving(self, task: str, now: float) -> Departing:
        way = self._way(task)
        if way in ("saving", "killed"):
            self._since.setdefault(task, now)
        since = self._since.get(task)
        for_s = None if since is None else max(0.0, now - since)
        if way == "ended" and for_s is not None:
            for_s = self._took_s.setdefault(task, for_s)
        entry = self._handle.entry(task)
        end = entry["exit"] if entry is not None and way == "ended" else None
        return {"way": way, "for_s": for_s, "signal": end["signal"] if end is not None else None}

    def _way(self, task: str) -> StopPhase:
        entry = self._handle.entry(task)
        if self._has_ended(self._handle, task):
            return "ended"
        if entry is None or self._handle.unreached([task]):
            return "away"
        if entry["left"]:
            return "killed"
        return "saving" if entry["asked"] else "waits"


RESTART_LIMIT_S = 60.0


def restart(talk: Conversation, request: RestartRequest) -> RestartResult:
    """Returns when the tasks have new attempts; those of hosts that are away get theirs when they are back."""
    run = runs.need(talk, request)
    handle = run_handles.reached(talk, run)
    try:
        return _restart(talk, run, handle, request)
    except NotTaken as away:
        return _restart(talk, run, RunHandle(run, away), request)


def _restart(talk: Conversation, run: runs.Run, handle: RunHandle, request: RestartRequest) -> RestartResult:
    run_handles.refuse_strangers(handle, run, request["tasks"])
    tasks = handle.tasks(request["tasks"])
    handle.refresh()
    handle.refuse_ended()
    run_handles.refuse_drained(handle, tasks)
    serial = handle.post_restart(tasks, request["by"]) if tasks else 0
    return await_begin(talk, run, handle, request["tasks"], serial)


def await_begin(
    talk: Conversation, run: runs.Run, handle: RunHandle, named: Optional[List[str]], serial: int
) -> RestartResult:
    """Waits until the tasks have new attempts, except on hosts that are away, and those that wait for them.

    Raises as `is_taken`.
    """
    tasks = handle.tasks(named)
    limit_s = run.spec["grace_s"] + RESTART_LIMIT_S
    patience = time.monotonic() + REACH_S

    def waits_for_away(task: str) -> bool:
        hosts = handle.awaited([task])
        return bool(hosts) and not (handle.may_dial(hosts, REACH_S) and time.monotonic() < patience)

    def all_begun() -> bool:
        open_ = [task for task in tasks if not _has_begun(handle, task)]
        away = handle.unreached(open_)
        there = [task for task in open_ if handle.hosts[task] not in away]
        waiting = [task for task in there if not (handle.waits(task) or waits_for_away(task))]
        return all(_is_unwritten(handle, task) for task in waiting)

    if not (is_taken(handle, serial, limit_s) and handle.until(all_begun, limit_s)):
        why = handle.why_waiting() or "it keeps trying"
        raise Refused("not_started", "the tasks have not started again yet", why, "dtctl diagnose    shows the reason")
    if run.spec["recovery"]["reboot"] == "auto":
        reboot.offer(talk.root)  # a run that had ended has taken it away
    handle.refresh()
    open_ = [task for task in tasks if not _has_begun(handle, task)]
    unreached = handle.unreached(open_)
    for task in open_:
        if handle.hosts[task] not in unreached and _is_unwritten(handle, task):
            raise _no_room(handle, task)
    here = [task for task in tasks if handle.hosts[task] not in unreached]
    return {
        "run": run.id,
        "tasks": {task: entry for task in here for entry in [handle.entry(task)] if entry is not None},
        "unreached": list(dict.fromkeys([*unreached, *handle.awaited(open_), *handle.absent(named)])),
        "coordination": handle.view,
        "away": handle.away.fields() if handle.away else None,
        "inventory": inventory_of(run.spec),
    }


def _is_unwritten(handle: RunHandle, task: str) -> bool:
    entry = handle.entry(task)
    return entry is not None and entry["unwritten"]


def _no_room(handle: RunHandle, task: str) -> Refused:
    entry, host = handle.entry(task), handle.hosts[task]
    why = "%s; it starts again as soon as there is room" % (sentence(why_of(entry)) if entry is not None else "")
    summary = "%s has not started again yet on %s" % (task, host)
    return Refused("not_started", summary, why, "dtctl exec @%s -- df -h    shows its disks\n%s" % (host, NO_ROOM))


def _has_begun(handle: RunHandle, task: str) -> bool:
    entry, generation = handle.entry(task), handle.generation(task)
    if entry is None or generation is None or entry["generation"] < generation:
        return False
    return entry["state"] not in ("pending", "starting")
