"""A start as a person sees it, for `up` and `replace`: from the first connection until the tasks are ready."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import TYPE_CHECKING, NoReturn

import typer

from dtctl.cli.scope import Announced
from dtctl.errors import DtctlError, ExitCode, PreflightError
from dtctl.operations.checks.checking import STOPPING
from dtctl.operations.checks.data import MISSING
from dtctl.operations.client.conversation import controller_name
from dtctl.operations.follow import Ended, Event, follow
from dtctl.operations.logs import LogRequest
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.stop import StopOrder, stop
from dtctl.operations.up import result as judging
from dtctl.operations.up.launch import Start
from dtctl.operations.up.readying import Interrupted
from dtctl.operations.up.result import GoingOn, UnusedCheckpoint, UpReport, UpResult
from dtctl.operations.up.up import up
from dtctl.render import checks, errors, result, starting
from dtctl.render.logs import LogPrinter, Narrator
from dtctl.render.progress import StopProgress, UpProgress
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import LastLine, moving

if TYPE_CHECKING:
    from dtctl.cli.scope import Scope
    from dtctl.config.cluster import Recovery
    from dtctl.model import TaskId
    from dtctl.operations.checks.checking import Checked
    from dtctl.operations.client.conversation import Progress
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.snapshot import Coordination, TaskStatus
    from dtctl.operations.stop import Ending, Stopping
    from dtctl.operations.up.result import FailedStart
    from dtctl.transport.seam import Transport

_TAIL_LINES = 10


class StartReport(UpReport):
    """`agree` is asked about the runs that are replaced, once it is clear that they are this directory's."""

    def __init__(
        self,
        scope: Scope,
        launch: Start,
        bars: UpProgress,
        *,
        say: bool,
        agree: Callable[[Collection[str]], None],
        force: bool,
    ) -> None:
        self._scope, self._record, self._bars, self._agree, self._force = scope, launch.record, bars, agree, force
        self._announced = Announced(scope, launch.record, "stopping", say=say)

    def __call__(self, progress: Progress) -> None:
        self._bars(progress)

    def checked(self, checked: Checked) -> None:
        checks.show_brief(checked)
        certain = [one for one in checked.found if one.signature.name in STOPPING]
        if certain and not self._force:
            lack_data = all(one.signature.name in MISSING for one in certain)
            raise PreflightError(
                "the hosts do not have the data, so nothing was started"
                if lack_data
                else "tasks would fail as soon as they start, so nothing was started",
                detail="\n".join(checks.worded(one)[0] for one in certain),
                hint="dtctl data push    brings it; " * lack_data + "dtctl up --force    starts them all the same",
            )

    def at_zero(self, unseen: UnusedCheckpoint) -> None:
        starting.show_unseen(unseen)

    def consent(self, runs: Collection[str]) -> None:
        for run in runs:
            self._scope.refuse_others(self._record, run)
        self._agree(runs)

    def stopping(self, found: Ending) -> None:
        self._announced(found)

    def stopped(self, stopping: Stopping) -> None:
        self._bars.ending(stopping)


def start(
    scope: Scope,
    launch: Start,
    *,
    quiet: bool,
    output: str,
    agree: Callable[[Collection[str]], None] = lambda runs: None,
    first: Callable[[UpProgress], None] = lambda bars: None,
    previous: RunRecord | None = None,
    force: bool = True,
) -> UpResult:
    """`first` looks before anything else is done. `force`: what is certain to fail is started, too.

    Ctrl-C says what it has left, and ends the command.
    """
    try:
        with UpProgress(launch.record.hosts, quiet=quiet or output == "json") as bars:
            first(bars)
            report = StartReport(scope, launch, bars, say=output == "text", agree=agree, force=force)
            return up(launch, scope.transport, report, scope.memory, previous=previous)
    except Interrupted as interrupted:
        starting.show_interrupted(interrupted.left, launch.plan.cluster.file, brought=scope.transport.reached)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def await_tasks(scope: Scope, launch: Start, outcome: UpResult, *, quiet: bool, raw: bool = False) -> UpResult:
    """Until the tasks of a run that was started are ready, or have failed. Ctrl-C asks what is to become of the run.

    What takes longer than usual is explained, and then waited for beside the logs. The run goes on if its coordinator
    cannot be followed.
    """
    if not outcome.started:
        return outcome
    record = dataclasses.replace(launch.record, run=outcome.run)
    settle_s = judging.SETTLE_S if any(task.ready == "started" for task in launch.plan.tasks) else 0.0
    waiting = _Waiting(scope, record, launch.plan.cluster.recovery, settle_s=settle_s, quiet=quiet)
    route = GoingOn(scope.transport, outcome.lead)
    tasks = tuple(task for task, host in record.roster.items() if host not in outcome.absent)
    try:
        seen = waiting.shortly(route) or waiting.beside_logs(tasks, raw=raw)
        if waiting.failed is not None:
            waiting.end()
    except KeyboardInterrupt as interrupt:
        _ask_what_becomes(scope, record, ask=not interrupt.args)
    except DtctlError as error:
        errors.show_host_errors({record.coordinator: error}, tolerated=True)
        return outcome
    started = {task: one for task, one in seen.tasks.items() if task in outcome.started}
    return dataclasses.replace(outcome, started=started, failed=waiting.failed)


class _Waiting:
    """For the tasks of a run that was just started."""

    def __init__(self, scope: Scope, record: RunRecord, recovery: Recovery, *, settle_s: float, quiet: bool) -> None:
        self.failed: FailedStart | None = None
        self._scope, self._record, self._recovery, self._quiet = scope, record, recovery, quiet
        self._seen: Coordination | None = None
        self._settle_s = settle_s
        self._settling: tuple[list[int], float] | None = None
        """Attempts that have begun, and since when they are seen."""
        self._shown: set[TaskId] = set()
        """Tasks whose first failed exit was shown."""

    def shortly(self, route: Transport) -> Coordination | None:
        """For as long as most starts take; on a terminal with a line that says whom it waits for."""
        deadline = time.monotonic() + judging.EXPECTED_S
        line = LastLine(lambda: starting.starting_line(self._seen, console.columns() - 1))
        with moving(line) if console.interactive() and not self._quiet else nullcontext():
            for event in follow(self._record, route, LogRequest(())):
                if self._is_over(event):
                    return self._seen
                if time.monotonic() > deadline:
                    break
        return None

    def beside_logs(self, tasks: tuple[TaskId, ...], *, raw: bool) -> Coordination:
        starting.show_late(self._seen)
        shown = tasks if console.on_terminal() and not self._quiet else ()
        printer = LogPrinter(shown, prefix=True, timestamps=False, raw=raw) if shown else None
        narrate = Narrator(self._record.coordinator, printer)
        for event in follow(self._record, self._scope.transport, LogRequest(shown, lines=_TAIL_LINES)):
            if self._is_over(event):
                break
            narrate(event)
        narrate.report_away()
        assert self._seen is not None
        return self._seen

    def _is_over(self, event: Event | None) -> bool:
        """A run that has failed is waited for until its other tasks have ended, too."""
        if isinstance(event, Ended) and event.status.coordination is None:
            raise next(iter(event.status.errors.values()), DtctlError("no host reports the state of the run"))
        if event is None:
            return self._stays()
        if not isinstance(event, RunStatus | Ended):
            return False
        seen = event.status.coordination if isinstance(event, Ended) else event.coordination
        if seen is None:  # hosts report for themselves while the coordinator is away
            return False
        self._seen = seen
        for one in judging.failed_exits(seen, self._shown):
            self._shown.add(one.id)
            starting.show_failed_exit(one, self._last_lines(one))
        self.failed = judging.failed_start(seen, self._recovery)
        if self.failed is not None:
            return (
                self.failed.gave_up or seen.view["phase"] not in ("starting", "finishing") or isinstance(event, Ended)
            )
        return self._stays() or isinstance(event, Ended)

    def _stays(self) -> bool:
        """Whether every task has begun, and none has ended or was started again for a moment."""
        if self._seen is None or self.failed is not None or not judging.has_begun(self._seen):
            self._settling = None
            return False
        attempts = [one.entry["attempt"] for one in self._seen.tasks.values()]
        if self._settling is None or self._settling[0] != attempts:
            self._settling = attempts, time.monotonic()
        return (
            self._seen.view["phase"] in ("finishing", "ended") or time.monotonic() >= self._settling[1] + self._settle_s
        )

    def _last_lines(self, task: TaskStatus) -> bytes:
        """Of the attempt that has failed last; another one may run by now."""
        if task.exit["tail"] or not task.entry["history"]:
            return task.exit["tail"].encode(errors="replace")
        from dtctl.operations.logs.reading import read_logs

        found: list[bytes] = []
        wanted = LogRequest(
            (task.id,), lines=_TAIL_LINES, previous=task.entry["attempt"] > task.entry["history"][-1]["attempt"]
        )
        read_logs(self._record, self._scope.transport, wanted, lambda lines: found.append(lines.data))
        return b"".join(found)

    def end(self) -> None:
        """Ends a start that has failed, also on hosts that have not reported, without more attempts."""
        assert self.failed is not None
        seen, cause = self.failed.seen, self.failed.cause
        unheard = [host for host, one in seen.contacts.items() if one["heard"] is None and not one["absent"]]
        if self.failed.gave_up or unheard:
            order = StopOrder(controller_name(), why="start_failed")
            with StopProgress(quiet=self._quiet) as progress:
                stop(self._record, self._scope.transport, tuple(self._record.roster), order, progress)
        if self.failed.gave_up or self.failed.run_failed:
            self._scope.memory.change(self._record, outcome="Stopped" if self.failed.gave_up else "Failed")
        if cause is not None and cause.id not in self._shown:
            starting.show_failed_start(self.failed, self._last_lines(cause))
        else:
            starting.show_failed_start(self.failed, b"")


def _ask_what_becomes(scope: Scope, record: RunRecord, *, ask: bool) -> NoReturn:
    """Nothing of the run is removed by an interrupt: on a terminal it is stopped if that is wanted."""
    errors.below()
    ask = ask and sys.stdin is not None and sys.stdin.isatty() and console.on_terminal(stderr=True)
    try:
        if ask and console.agrees(f"Stop run {record.run}? If not, it continues"):
            with StopProgress() as progress:
                stopped = stop(record, scope.transport, tuple(record.roster), StopOrder(controller_name()), progress)
            scope.memory.change(record, outcome="Stopped")
            result.show_stop(stopped)
            errors.note("its logs stay until dtctl gc", "dtctl logs    shows them")
            raise typer.Exit(ExitCode.INTERRUPTED)
    except KeyboardInterrupt:
        pass
    errors.note(f"interrupted: run {record.run} continues", "dtctl logs -f    follows it", "dtctl stop       ends it")
    raise typer.Exit(ExitCode.INTERRUPTED) from None
