"""Watches a run that was just started until its tasks run for good, and ends a failed start."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from dtctl.errors import DtctlError
from dtctl.model import TaskId
from dtctl.operations.client import controller_name
from dtctl.operations.follow import Ended, Event
from dtctl.operations.logs import LogRequest
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import Coordination, RunStatus, TaskStatus
from dtctl.operations.stop import OnStopping, StopOrder, stop, unseen
from dtctl.operations.up import result as judging
from dtctl.operations.up.launch import Start
from dtctl.operations.up.result import FailedStart, UpResult
from dtctl.transport.seam import Transport

TAIL_LINES = 10


def leaves_tasks(failed: FailedStart) -> bool:
    """Whether attempts would continue, or a host that has not reported yet would still start its tasks."""
    return failed.gave_up or any(one["heard"] is None and not one["absent"] for one in failed.seen.contacts.values())


class Awaiting:
    """Receives the events of `follow` until the wait is over.

    `on_failed_exit`: called with each task whose first attempt has failed, and the end of its log.
    """

    def __init__(
        self,
        launch: Start,
        record: RunRecord,
        transport: Transport,
        on_failed_exit: Callable[[TaskStatus, bytes], None] = lambda task, tail: None,
    ) -> None:
        self.seen: Coordination | None = None
        self.failed: FailedStart | None = None
        self._record, self._transport, self._on_failed_exit = record, transport, on_failed_exit
        self._recovery = launch.plan.cluster.recovery
        self._settle_s = judging.SETTLE_S if any(task.ready == "started" for task in launch.plan.tasks) else 0.0
        self._settling: tuple[list[int], float] | None = None
        """Attempts that have begun -> the time since when they were observed."""
        self._shown: set[TaskId] = set()

    def is_over(self, event: Event | None) -> bool:
        """Whether the wait is over; a failed run is watched until its other tasks have ended, too."""
        if isinstance(event, Ended) and event.status.coordination is None:
            raise next(iter(event.status.errors.values()), DtctlError("no host reports the state of the run"))
        if event is None:
            return self._stays(news=False)
        if not isinstance(event, RunStatus | Ended):
            return False
        seen = event.status.coordination if isinstance(event, Ended) else event.coordination
        if seen is None:  # hosts report for themselves while the coordinator is away
            return False
        self.seen = seen
        for failed_exit in judging.failed_exits(seen, self._shown):
            self._shown.add(failed_exit.id)
            self._on_failed_exit(failed_exit, self._last_lines(failed_exit))
        self.failed = judging.failed_start(seen, self._recovery)
        if self.failed is not None:
            return (
                self.failed.gave_up or seen.view["phase"] not in ("starting", "finishing") or isinstance(event, Ended)
            )
        return self._stays(news=True) or isinstance(event, Ended)

    def judged(self, outcome: UpResult) -> UpResult:
        """The result with the observed states of its tasks."""
        known = self.seen.tasks if self.seen is not None else outcome.started
        started = {task: one for task, one in known.items() if task in outcome.started}
        return dataclasses.replace(outcome, started=started, failed=self.failed)

    def end(self, failed: FailedStart, report: OnStopping = unseen) -> str:
        """Ends the rest of a failed start, without further attempts. The run's outcome; "" if it continues."""
        if leaves_tasks(failed):
            order = StopOrder(controller_name(), why=failed.why, ends_as=failed.ends_as)
            stop(self._record, self._transport, tuple(self._record.roster), order, report)
        return "Failed" if failed.gave_up or failed.run_failed else ""

    def as_decided(self, failed: FailedStart, ended: RunStatus) -> FailedStart:
        """The same failure by the task that the coordinator names, which may have seen another one fail first."""
        cause = ended.verdict.cause
        if ended.coordination is None or cause is None or failed.cause is None or cause == failed.cause.id:
            return failed
        return judging.failed_start(ended.coordination, self._recovery) or failed

    def tail(self, failed: FailedStart) -> bytes:
        """The end of the log of the failed task, unless `on_failed_exit` has received it."""
        return (
            self._last_lines(failed.cause) if failed.cause is not None and failed.cause.id not in self._shown else b""
        )

    def _stays(self, *, news: bool) -> bool:
        """Whether every task has begun, and none has ended or was restarted for a moment.

        `news`: the coordinator has just reported. On a busy machine what it reported last may be seconds old, and says
        nothing about the moment that has passed since.
        """
        if self.seen is None or self.failed is not None or not judging.has_begun(self.seen):
            self._settling = None
            return False
        attempts = [task.entry["attempt"] for task in self.seen.tasks.values()]
        if self._settling is None or self._settling[0] != attempts:
            self._settling = attempts, time.monotonic()
        if self.seen.view["phase"] in ("finishing", "ended") or not self._settle_s:
            return True
        return news and time.monotonic() >= self._settling[1] + self._settle_s

    def _last_lines(self, task: TaskStatus) -> bytes:
        """The last log lines of the attempt that failed last; another one may run by now."""
        if task.exit["tail"] or not task.entry["history"]:
            return task.exit["tail"].encode(errors="replace")
        from dtctl.operations.logs.reading import read_logs

        found: list[bytes] = []
        failed = task.entry["failed_attempt"] or task.entry["history"][-1]["attempt"]
        wanted = LogRequest((task.id,), lines=TAIL_LINES, previous=task.entry["attempt"] > failed)
        read_logs(self._record, self._transport, wanted, lambda lines: found.append(lines.data))
        return b"".join(found)
