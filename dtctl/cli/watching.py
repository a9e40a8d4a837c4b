"""Watching a run to its end, as `up -f`, `logs -f` and `wait` do; consent to what a file would start and send here."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable, Collection, Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from dtctl.cli.late import console, errors, operations, render
from dtctl.errors import DtctlError, ExitCode

if TYPE_CHECKING:
    from dtctl.agent.run.run_events import RunEvent
    from dtctl.cli.scope import Scope
    from dtctl.config.cluster import Cluster, Hook
    from dtctl.config.outgoing import Sending
    from dtctl.model import TaskId
    from dtctl.operations.consent import LocalProgram
    from dtctl.operations.engines import Allocation
    from dtctl.operations.logs import LogRequest
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.snapshot import RunStatus
    from dtctl.render.logs import LogPrinter


def follow_to_the_end(
    scope: Scope,
    record: RunRecord,
    *,
    lines: int | None,
    raw: bool,
    started: Cluster,
    fresh: bool,
    without: Container[str] = (),
) -> None:
    """Shows all logs and then the result, which is the exit code. Ctrl-C leaves the run alone.

    `started`: as it was started, with its hooks. `fresh`: it has just been. `without`: hosts without logs.
    """

    tasks = tuple(task for task, host in record.roster.items() if host not in without)
    printer = render.logs.LogPrinter(tasks, prefix=True, timestamps=False, raw=raw)
    wanted = operations.logs.LogRequest(tasks, lines=lines)
    ended, reported = watch(scope, record, wanted, printer, started=started, fresh=fresh)
    finish(ended, printer, reported)


def follow_logs(
    scope: Scope,
    record: RunRecord,
    selectors: list[str] | None,
    wanted: LogRequest,
    printer_for: Callable[[Sequence[TaskId]], LogPrinter],
    exclude: list[str] | None = None,
) -> NoReturn:
    """Shows logs and then the result, as `finish`. Where the cluster has a newer run by then, that is followed on.

    `selectors`, `exclude`: the tasks as they were named. A run that was named itself is followed to its end.
    """

    printer = printer_for(wanted.tasks)
    while True:
        ended, reported = watch(scope, record, wanted, printer)
        newer = operations.follow.onward(ended, record, scope.transport) if scope.run is None else None
        if newer is not None:
            render.logs.show_onward(ended, newer)
        if newer is None or newer.record is None:
            finish(ended, printer, reported)
        run = newer.record.run
        record = (scope.started_here(run) if run else None) or newer.record
        tasks = chosen(record, selectors, exclude)
        wanted = dataclasses.replace(wanted, tasks=tasks, lines=None, since=None, previous=False)
        printer = printer_for(tasks)


def watch(
    scope: Scope,
    record: RunRecord,
    wanted: LogRequest,
    printer: LogPrinter | None,
    *,
    timeout_s: float | None = None,
    started: Cluster | None = None,
    fresh: bool = False,
) -> tuple[operations.snapshot.RunStatus, Container[tuple[str, str]]]:
    """Prints events as they come until the run has ended. Returns its end, and the causes of losses that were printed.

    A run that waits for machines is awaited, and so is the one that its job starts when it waits in the queue again.

    Hooks that are allowed run: those of `started`, or else of the run's cluster file.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        record = with_machines(scope, record, deadline)
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        found = _watch(scope, record, wanted, printer, timeout_s=left_s, started=started, fresh=fresh)
        if scope.run is not None or not operations.waiting.is_queued_again(found[0]):
            return found


def _watch(
    scope: Scope,
    record: RunRecord,
    wanted: LogRequest,
    printer: LogPrinter | None,
    *,
    timeout_s: float | None,
    started: Cluster | None,
    fresh: bool,
) -> tuple[operations.snapshot.RunStatus, Container[tuple[str, str]]]:
    from dtctl.agent.run.run_events import events_of

    directory = record.file.parent if record.file else Path()
    cluster = started or operations.hooks.cluster_with_hooks(record.file, record.cluster)
    hooks = allowed_hooks(cluster, operations.hooks.hooks_here(cluster.hooks.values() if cluster else ()))
    render.starting.show_hooks(hooks)
    allowed = functools.partial(is_allowed, cluster)
    commands = operations.hooks.CommandHooks(
        hooks, record.cluster, directory, render.starting.show_hook_failure, fresh=fresh, allowed=allowed
    )

    def ended(status: operations.snapshot.RunStatus) -> operations.snapshot.RunStatus:
        narrate.report_away()
        scope.memory.remember(status)
        commands.see(end_of(status))
        commands.finish()
        return status

    bottom = render.following.FollowedRun(shown=printer is None or printer.for_people)
    narrate = render.logs.Narrator(record.coordinator, printer, waits=not bottom.shown)
    with scope.detached("dtctl logs -f    follow it again", "dtctl stop       end it"), bottom:
        try:
            for event in operations.follow.follow_for(record, scope.transport, wanted, timeout_s):
                if isinstance(event, operations.snapshot.RunStatus):
                    bottom.see(event)
                if isinstance(event, operations.snapshot.RunStatus) and event.coordination:
                    commands.see(events_of(event.coordination.view))
                if isinstance(event, operations.follow.Ended):
                    return ended(event.status), narrate.reported
                narrate(event)
        except TimeoutError:
            errors.note("the timeout has expired; the run continues")
            raise typer.Exit(ExitCode.TIMEOUT) from None
    raise AssertionError("following ends with Ended")


def with_machines(scope: Scope, record: RunRecord, deadline: float | None = None) -> RunRecord:
    """The run as it is written down when an engine has lent it machines; others are returned as they are.

    `deadline`: on the monotonic clock; the command ends then.
    """
    shown = ""

    def show(held: Allocation) -> None:
        nonlocal shown
        line = render.allocation.line(dataclasses.replace(held, left_s=None))
        if line != shown:
            errors.note(f"{record.run or record.cluster}: {line}")
        shown = line

    def newer(record: RunRecord, held: Allocation) -> RunRecord | None:
        newest = scope.memory.newest_of(record.file) if record.file and scope.run is None else None
        return newest or (scope.memory.load(record.run) if record.run else None)

    with scope.detached("dtctl status    shows its place in the queue", "dtctl stop      takes it out"):
        try:
            return operations.waiting.await_machines(record, newer, show, deadline)
        except TimeoutError:
            errors.note("the timeout has expired; the run waits on")
            raise typer.Exit(ExitCode.TIMEOUT) from None


def end_of(status: RunStatus) -> Sequence[RunEvent]:
    """The events that hooks receive for a run that has ended, also without a coordinator."""
    from dtctl.agent.run.run_events import ENDED, cause_of, ended, events_of

    if status.coordination is not None:
        return events_of(status.coordination.view)
    verdict, run = status.verdict, status.record.run
    if run is None or verdict.outcome.value not in ENDED:
        return ()
    cause = str(verdict.cause) if verdict.cause else None
    failed = status.tasks.get(verdict.cause) if verdict.cause is not None and not verdict.hung else None
    text = cause_of(failed.entry) if failed is not None else ""
    why, hung = list(verdict.why), verdict.hung
    return [ended(run, verdict.outcome.value, why, cause, time.time(), hung=hung, cause=text)]


def finish(
    status: RunStatus, followed: LogPrinter | None = None, reported: Container[tuple[str, str]] = ()
) -> NoReturn:
    """Shows the end; raises Exit with the run's result. `followed` has shown the logs; `reported`: see `watch`."""
    render.result.show_ended(status, followed, reported)
    raise typer.Exit(render.result.ended_exit_code(status))


def chosen(record: RunRecord, selectors: list[str] | None, exclude: list[str] | None = None) -> tuple[TaskId, ...]:
    return operations.selection.select_tasks(record, selectors or [], exclude or [])


def require_consent(
    cluster: Cluster,
    overrides: Sequence[str] | None,
    *,
    local: bool,
    typed: bool = False,
    sends: Collection[str] = (),
) -> None:
    """Asks on a terminal for consent to the programs that are about to start here, without hooks, and to what is about
    to be sent. Raises PreflightError elsewhere.

    `typed`: the command line itself says that it is to run here (`up --local`), which is consent. What `overrides` say
    is typed, too: the file is what is asked about. `sends`: keys of the file (operations/sending.py).
    """

    consents = operations.consent.Consents()
    programs = consents.missing(operations.consent.programs_of_hosts(cluster, overrides or (), local=local))
    if not typed:
        _agree(cluster, programs, unallowed(cluster, sends, local=local), local=local)
    consents.allow(programs)


def require_sending(cluster: Cluster, *sends: str, local: bool = False) -> None:
    """Consent to what is about to be sent alone."""
    _agree(cluster, (), unallowed(cluster, sends, local=local), local=local)


def unallowed(cluster: Cluster, sends: Collection[str], *, local: bool) -> tuple[Sending, ...]:
    """What these keys send that the user has not allowed."""
    wanted = () if local else operations.sending.sendings(cluster, sends, os.environ)
    return operations.consent.Consents().missing(wanted)


def _agree(cluster: Cluster, programs: Sequence[LocalProgram], sendings: Sequence[Sending], *, local: bool) -> None:
    if not (programs or sendings):
        return
    if not sys.stdin.isatty() or console.speaks_json():
        if programs:
            raise render.starting.not_allowed(cluster, programs, local=local)
        raise operations.sending.not_allowed(sendings)
    render.starting.show_wanted(programs, sendings)
    what = " and ".join([*["start"] * bool(programs), *["send"] * bool(sendings)])
    console.confirm(f"Allow {cluster.file} to {what} this?", "nothing was started" if programs else "nothing was sent")
    operations.consent.Consents().allow([*programs, *sendings])


def require_to_write(cluster: Cluster, overrides: Sequence[str] | None = None) -> None:
    """Consent to writing to directories that the file names on hosts that it makes this machine."""
    local = operations.consent.programs_of_local_hosts(cluster, overrides or ())
    if operations.consent.Consents().missing(local):
        require_consent(cluster, overrides, local=False)


def allowed_hooks(cluster: Cluster | None, hooks: Sequence[Hook]) -> tuple[Hook, ...]:
    """The hooks of the cluster that may run here; each of the others is reported in one line."""
    if cluster is None or not hooks:
        return ()
    programs = operations.consent.hook_programs(cluster)
    refusals = operations.consent.Consents().missing(programs)
    refused = [hook.name for hook, program in zip(hooks, programs, strict=True) if program in refusals]
    allows = operations.consent.allow_command(cluster.file)
    for name in refused:
        errors.note(f"hook {name} will not run here, as you have not allowed it: {allows}")
    return tuple(hook for hook in hooks if hook.name not in refused)


def is_allowed(cluster: Cluster | None, hook: Hook) -> bool:
    """Whether a hook's command is allowed in its current form."""
    programs = operations.consent.hook_programs(cluster) if cluster else ()
    this = [one for one in programs if one.what == f"hook {hook.name}"]
    try:
        return bool(this) and not operations.consent.Consents().missing(this)
    except DtctlError:  # others may write there by now
        return False
