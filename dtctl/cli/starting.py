"""A start as a person sees it, for `up` and `replace`: from the first connection until the tasks are ready."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import NoReturn

import typer

from dtctl.bundle import Bundle
from dtctl.cli.late import render
from dtctl.cli.scope import Announced, Scope
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, ExitCode
from dtctl.model import TaskId
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.client import Progress, controller_name
from dtctl.operations.findings import Checked
from dtctl.operations.follow import follow
from dtctl.operations.logs import LogRequest
from dtctl.operations.run_record import RunRecord
from dtctl.operations.status import status
from dtctl.operations.stop import Ending, StopOrder, Stopping, stop
from dtctl.operations.up import result as judging
from dtctl.operations.up.awaiting import TAIL_LINES, Awaiting, leaves_tasks
from dtctl.operations.up.launch import Start
from dtctl.operations.up.readying import Interrupted
from dtctl.operations.up.result import FailedStart, UnusedCheckpoint, UpReport, UpResult
from dtctl.operations.up.succession import Unended
from dtctl.operations.up.up import up
from dtctl.render import errors, result, starting
from dtctl.render.logs import LogPrinter, Narrator
from dtctl.render.progress import StopProgress, UpProgress
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import LastLine, moving
from dtctl.transport.seam import Transport


@dataclass
class StartReport(UpReport):
    """`agree` is asked about the runs that are replaced, once it is clear that they are this directory's."""

    announced: Announced
    bars: UpProgress
    agree: Callable[[Collection[str]], None]
    force: bool
    keep_ports: bool
    beside: bool
    """The user accepts that tasks of the stopped run may still act on hosts that give no answer."""
    again: str
    """The command that says so."""

    def __call__(self, progress: Progress) -> None:
        self.bars(progress)

    def wheels(self, sent: Mapping[str, int], wheels: Bundle) -> None:
        for line in starting.wheels_lines(sent, wheels):
            errors.note(line)

    def checked(self, checked: Checked) -> None:
        if not checked.is_noticed:
            return

        render.checked.show_brief(checked, refused=not self.force)
        if not self.force:
            render.checked.refuse_certain_failure(checked, hint="dtctl up --force    starts them anyway")

    def moving_ports(self, taken: DtctlError) -> None:
        if self.keep_ports:
            raise taken
        starting.show_moving_ports(taken)

    def at_zero(self, unseen: UnusedCheckpoint) -> None:
        starting.show_unseen(unseen)

    def incomplete(self, found: Sequence[Checkpoints]) -> None:
        starting.show_incomplete(found)

    def consent(self, runs: Collection[str]) -> None:
        for run in runs:
            self.announced.scope.refuse_others(self.announced.record, run)
        self.agree(runs)

    def stopping(self, found: Ending) -> None:
        self.announced(found)

    def stopped(self, stopping: Stopping) -> None:
        self.bars.ending(stopping)

    def unknown_end(self, left: Unended) -> None:
        if self.beside:
            starting.show_unknown_end(left.hosts, left.run)
        elif not console.can_ask():
            raise starting.unknown_end(left.hosts, left.run, self.again)
        else:
            starting.show_unknown_end(left.hosts, left.run)
            console.confirm("Start all the same?", f"nothing was started; {left.run} was stopped where it was reached")

    def awaiting_end(self, left: Unended, seconds: int) -> None:
        self.bars.waiting(starting.awaiting_end(left.hosts, seconds))


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
    keep_ports: bool = False,
    beside: bool = False,
    again: str = "dtctl up --replace --force",
) -> UpResult:
    """`first` looks before anything else is done. `force`: what is certain to fail is started, too. `keep_ports`: no
    host chooses others. `beside` and `again`: as in StartReport.

    Ctrl-C says what it has left, and ends the command.
    """
    try:
        with UpProgress(launch.record.hosts, quiet=quiet or output == "json") as bars:
            first(bars)
            announced = Announced(scope, launch.record, "stopping", say=output == "text")
            report = StartReport(announced, bars, agree, force, keep_ports, beside, again)
            return up(launch, scope.transport, report, scope.memory, previous=previous)
    except Interrupted as interrupted:
        starting.show_interrupted(interrupted.left, launch.plan.cluster.file, brought=scope.transport.reached)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def await_tasks(scope: Scope, launch: Start, outcome: UpResult, *, quiet: bool, raw: bool = False) -> UpResult:
    """Waits until the tasks of a started run are ready or have failed. Ctrl-C asks whether to stop the run.

    A start that takes longer than usual is explained, and then awaited while logs are shown. The run goes on if its
    coordinator cannot be followed.
    """
    if not outcome.started:
        return outcome
    record = dataclasses.replace(launch.record, run=outcome.run)
    waiting = Awaiting(launch, record, scope.transport, starting.show_failed_exit)
    tasks = tuple(task for task, host in record.roster.items() if host not in outcome.absent)
    scope.transport.resume(outcome.lead)
    try:
        if not _shortly(waiting, record, scope.transport, quiet=quiet):
            _beside_logs(waiting, record, scope.transport, () if quiet else tasks, raw=raw)
        if waiting.failed is not None:
            _end(scope, waiting, waiting.failed, record, quiet=quiet)
    except KeyboardInterrupt as interrupt:
        _ask_what_becomes(scope, record, ask=not interrupt.args)
    except DtctlError as error:
        errors.show_host_errors({record.coordinator: error}, tolerated=True)
        return outcome
    return waiting.judged(outcome)


def _shortly(waiting: Awaiting, record: RunRecord, route: Transport, *, quiet: bool) -> bool:
    """Waits as long as most starts take, on a terminal with a status line. Returns whether the start is over."""
    deadline = time.monotonic() + judging.EXPECTED_S
    line = LastLine(lambda: starting.starting_line(waiting.seen, console.columns() - 1))
    with moving(line) if console.interactive() and not quiet else nullcontext():
        for event in follow(record, route, LogRequest(()), look_again_s=judging.SETTLE_S):
            if waiting.is_over(event):
                return True
            if time.monotonic() > deadline:
                break
    return False


def _beside_logs(
    waiting: Awaiting, record: RunRecord, transport: Transport, tasks: tuple[TaskId, ...], *, raw: bool
) -> None:
    starting.show_late(waiting.seen)
    shown = tasks if console.on_terminal() else ()
    printer = LogPrinter(shown, prefix=True, timestamps=False, raw=raw) if shown else None
    narrate = Narrator(record.coordinator, printer)
    for event in follow(record, transport, LogRequest(shown, lines=TAIL_LINES), look_again_s=judging.SETTLE_S):
        if waiting.is_over(event):
            break
        narrate(event)
    narrate.report_away()


def _end(scope: Scope, waiting: Awaiting, failed: FailedStart, record: RunRecord, *, quiet: bool) -> None:
    """Ends a start that has failed."""
    with StopProgress(quiet=quiet or not leaves_tasks(failed)) as progress:
        outcome = waiting.end(failed, progress)
    if outcome:
        scope.memory.change(record, outcome=outcome)
    tail, ended = waiting.tail(failed), None
    with suppress(DtctlError):  # the failure itself is shown
        ended = status(record, scope.transport)
        failed = waiting.as_decided(failed, ended)
    starting.show_failed_start(failed, tail, ended)


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
