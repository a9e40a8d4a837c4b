"""The results of stops, restarts and whole runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Container, Mapping, Sequence
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import sentence, why_of
from dtctl.errors import ExitCode, clipped
from dtctl.model import TaskId, TaskState
from dtctl.operations.snapshot import Outcome, RunStatus
from dtctl.render.errors import note, show_host_errors, show_strong, show_styled, show_warning
from dtctl.render.format import count, fold, size
from dtctl.render.terminal import console
from dtctl.render.terminal.console import print_table, table
from dtctl.render.terminal.safe import one_line

if TYPE_CHECKING:
    from dtctl.agent.records import gc as records
    from dtctl.operations.down import Waiters
    from dtctl.operations.drain import Scaled, Scaling
    from dtctl.operations.events import EventHistory
    from dtctl.operations.gc import GcResult, Written
    from dtctl.operations.restart import RestartResult
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.stop import Ending, StopResult
    from dtctl.render.logs import LogPrinter

_INCIDENTS = 8
_FOREGROUND = "dtctl watches what it starts itself: start the program without a daemon, nohup or &"


def show_kept(kept: Collection[Written]) -> None:
    """Reports files that `down` removes only on request."""
    for one in kept:
        note(written_line(one))
    if kept:
        note("  dtctl gc --written    removes files that trainers wrote, once no run of their cluster is left")


def show_restarted(result: RestartResult) -> None:
    for task in result.tasks:
        again = f"{task.id} on {task.host}: attempt {task.entry['attempt']} {task.state.value} {sentence(task.why)}"
        console.say(again.rstrip())


def show_stop(result: StopResult) -> None:
    unknown = f", {count(len(result.errors), 'host')} did not answer" if result.errors else ""
    console.say(f"{stopped_tasks(result)}{unknown}")
    _show_left_of(result)


def _show_left_of(result: StopResult) -> None:
    for survivor in result.survivors:
        show_warning(f"{survivor.task} on {survivor.host}: process {survivor.pid} is still there: {survivor.command}")
    show_away(result)
    show_host_errors(result.errors)
    if result.unwritten:
        hosts = fold(result.unwritten)
        show_warning(
            f"the disk of {hosts} is full, and the stop is not written there: "
            "if the host or its agent restarts before there is room, the tasks start again"
        )
        note(f"dtctl exec @{result.unwritten[0]} -- df -h    shows its disks; the stop is written once there is room")
    if result.promised:
        note(f"the coordinator ends the tasks on {fold(result.promised)} as soon as they are connected")


def show_awaited(awaited: Mapping[str, Waiters], errors: Collection[str]) -> None:
    """Says who ends what is left on hosts that gave no answer to `down`."""
    waited_for = {host: one.waiting for host, one in awaited.items() if one.waiting}
    for host, hosts in waited_for.items():
        note(f"an agent on {fold(hosts)} ends the tasks on {host} if it returns within a day")
    left = [host for host in errors if host not in waited_for]
    if left:
        note(f"what is left on {fold(left)} stays", "dtctl down    again removes it, once it answers")


def show_draining(host: str, ending: Ending) -> None:
    """Shows other consequences of a drain, before it."""
    if ending.spares is not None:
        left = f"remaining spares: {fold(ending.spares)}" if ending.spares else "no spare is left"
        note(f"{host} has no task, and replaces no host until dtctl undrain {host}; {left}")
    if ending.is_idle:
        note("dtctl plan    names the voters: one that is shut down counts as a lost one")
    elif set(ending.hosts) - {host}:
        note("the whole run pauses: it cannot continue without this host", f"dtctl undrain {host}    ends the pause")
    _show_restarts(ending, "without the tasks of this host, and again after dtctl undrain")


def show_undraining(host: str, found: Ending) -> None:
    if found.spares is not None:
        note(f"{host} has no task, and is available as a spare again")
    _show_restarts(found, "with the tasks of this host")


def _show_restarts(found: Ending, how: str) -> None:
    if found.restarts:
        note(f"{fold(map(str, found.restarts))} restart from the newest checkpoint {how}")


def show_drained(host: str, result: StopResult) -> None:
    if result.stopped:
        console.say(f"{host} is drained: {stopped_tasks(result)}")
    elif not result.errors:
        console.say(f"{host} is drained: nothing of the run was left there")
    _show_left_of(result)
    if result.stopped or result.already:
        note(f"dtctl undrain {host}    starts its tasks again")


def show_scaled(scaling: Scaling, scaled: Scaled, *, dry_run: bool) -> None:
    """Shows the result. The number comes from the coordinator: another command may have changed it meanwhile."""
    job, now = scaling.job, f"{scaled.number} of {scaling.places}"
    if not (scaling.starts or scaling.stops):
        return console.say(f"{job}: {now}: nothing to change")
    if dry_run:
        now = f"{scaling.before} -> {scaling.count}"
        lines = {"start": scaling.starts, "stop": scaling.stops}
        what = "; ".join(f"{fold(map(str, tasks))} would {verb}" for verb, tasks in lines.items() if tasks)
        others = f"{fold(map(str, scaling.restarts))} would restart" if scaling.restarts else "no other task restarts"
        return console.say(f"{job}: {now}: {what}; {others}")
    if scaled.stopped is not None:
        console.say(f"{job}: {now}: {stopped_tasks(scaled.stopped)}")
        _show_left_of(dataclasses.replace(scaled.stopped, errors={}))
    if scaled.started is not None:
        console.say(f"{job}: {now}")
        show_restarted(scaled.started)
    if scaled.number != scaling.count:
        return note(f"another command has scaled {job} to {scaled.number} meanwhile")
    if scaling.restarts:
        console.say(f"{fold(map(str, scaling.restarts))} restart with {scaling.count} of {job}")
    note(f"jobs.{job}.replicas: {scaling.count}    in the cluster file keeps it for the next run")
    return None


def show_without_run(record: RunRecord, hosts: Sequence[str]) -> None:
    """Reports the hosts without the requested run, or without any of the cluster."""
    if hosts:
        note(f"no run {record.run} on {fold(hosts)}" if record.run else f"no run of {record.cluster} on {fold(hosts)}")


def show_away(result: RunStatus | StopResult | RestartResult | EventHistory) -> None:
    """Reports why every host was queried; nothing if there is no run at all."""
    if result.away is not None and not result.away.elsewhere:
        note(f"{result.away.summary}: every host was asked")


def stop_exit_code(result: StopResult) -> ExitCode:
    if result.survivors:
        return ExitCode.SURVIVORS
    if result.errors:
        return ExitCode.PARTIAL if result.stopped or result.already else next(iter(result.errors.values())).exit_code
    return ExitCode.OK


def show_ended(
    status: RunStatus, followed: LogPrinter | None = None, reported: Container[tuple[str, str]] = ()
) -> None:
    """Shows the end of a run. `reported`: causes of losses that were reported as they came.

    The first failure comes last, with the end of its log unless `followed` has just shown it.
    """
    from dtctl.operations.failures import failure_of
    from dtctl.render.checkpoints import checkpoint_lines
    from dtctl.render.events import warnings
    from dtctl.render.failure import brief
    from dtctl.render.status import OUTCOME_STYLE, restarts_lines

    verdict, coordination = status.verdict, status.coordination
    for line in restarts_lines(status, _INCIDENTS, reported):
        note(line)
    _show_others(status)
    for line in checkpoint_lines(status):
        note(line)
    for warning in warnings(coordination.view) if coordination else ():
        show_warning(warning)
    _show_left(status)
    _show_failure(status, followed)
    why = brief(verdict.why) if failure_of(status) is not None else sentence(verdict.why)
    if console.speaks_json():
        return note(f"run {status.record.run}: {verdict.outcome.value}, {why}")
    style = OUTCOME_STYLE.get(verdict.outcome, "")
    said = f"{verdict.outcome.value.lower()} "
    after = f" {why.removeprefix(said)}" if why.startswith(said) else f", {why}"
    show_styled(f"run {status.record.run}: ", (verdict.outcome.value, style), after, whole_words=True)
    return None


def _show_failure(status: RunStatus, followed: LogPrinter | None) -> None:
    """Shows in full, and once, why a run has failed; without the excerpt if `followed` has just shown these lines."""
    from dtctl.operations.failures import failure_of
    from dtctl.render.failure import excerpt
    from dtctl.render.findings import advice_lines, failure_lines

    cause, failure = status.verdict.cause, failure_of(status)
    log = status.tasks[cause].exit["tail"] if cause is not None else ""
    lines = excerpt(log)
    just_shown = cause is not None and followed is not None and followed.has_just_shown(cause, log.splitlines(), lines)
    if failure is None:
        for line in () if just_shown else lines:
            note(f"  {cause} | {line}")
        if advice := advice_lines(status):
            note(*advice)
        return
    first, *rest = failure_lines(failure, status, with_excerpt=not just_shown)
    show_strong(first)
    for line in rest:
        note(f"  {line}")


def ended_exit_code(status: RunStatus) -> ExitCode:
    if status.verdict.outcome is not Outcome.SUCCEEDED:
        return ExitCode.RUN_FAILED
    if any(task.entry["left"] for task in status.tasks.values()):
        return ExitCode.SURVIVORS
    return ExitCode.PARTIAL if status.errors or _lost(status) else ExitCode.OK


def stopped_tasks(result: StopResult) -> str:
    if result.already and not result.stopped:
        return f"{count(len(result.already), 'task')} had already ended, {len(result.survivors)} left"
    already = f", {len(result.already)} had already ended" if result.already else ""
    killed = f", {len(result.killed)} of them killed after {max(result.killed.values()):.0f} s" if result.killed else ""
    return f"{count(len(result.stopped), 'task')} stopped{killed}{already}, {len(result.survivors)} left"


def _show_others(status: RunStatus) -> None:
    failed = [task for task in status.tasks.values() if task.state is TaskState.FAILED]
    after = [str(task.id) for task in failed if task.id != status.verdict.cause]
    again = [
        f"{task.id} {count(task.entry['restarts'], 'time')}" for task in status.tasks.values() if task.entry["restarts"]
    ]
    if after:
        note(f"failed after that: {', '.join(after)}")
    if again and status.coordination is None:
        note(f"started again: {', '.join(again)}")


def _show_left(status: RunStatus) -> None:
    from dtctl.render.roster import left_behind

    show_away(status)
    show_host_errors(status.errors)
    for task in status.tasks.values():
        if task.entry["left"]:
            show_warning(
                f"{task.id} on {task.host}: {count(len(task.entry['left']), 'process')} outlived SIGKILL",
                hint="dtctl stop",
            )
        if gone := left_behind(task):
            show_warning(f"{task.id} on {task.host} {gone}", hint=_FOREGROUND)
    if lost := _lost(status):
        hosts = fold(dict.fromkeys(status.tasks[task].host for task in lost))
        show_warning(f"{hosts} is unreachable: {', '.join(map(str, lost))} will be ended there when it is back")


def _lost(status: RunStatus) -> list[TaskId]:
    return [task.id for task in status.tasks.values() if task.state is TaskState.LOST]


def show_remains(result: GcResult, *, dry_run: bool) -> None:
    """Shows hosts with nothing to remove in one line, and each process by name."""
    from dtctl.operations.gc import is_nothing

    busy = {host: one for host, one in result.remains.items() if not is_nothing(one)}
    clean = [host for host in result.remains if host not in busy]
    if busy:
        found_words = [_text(one) for one in busy.values()]
        freed = [size(one["freed_bytes"]) for one in busy.values()]
        print_table(table({"HOST": [*busy], "FOUND" if dry_run else "REMOVED": found_words, "FREED": freed}))
        for host, one in busy.items():
            for line in _details(host, one):
                console.out().prose(line)
    for written in result.written:
        console.out().prose(f"{'to be removed' if dry_run else 'removed'}: {_where(written)}")
    for kept in result.kept:
        console.out().prose(written_line(kept))
    if clean:
        console.say(f"{fold(clean)}: nothing to remove")
    if result.kept:
        console.report("dtctl gc --written    also removes files that trainers wrote")
    if busy and dry_run:
        console.report("nothing has been removed yet")


def written_line(one: Written) -> str:
    return f"kept: {_where(one)}"


def _where(one: Written) -> str:
    each = " each" if one.directories > 1 else ""
    cluster = f" of {one.cluster}" if one.cluster else ""
    what = f"{size(one.size_bytes)}{each}, with {count(one.files, 'file')} that trainers{cluster} wrote"
    return f"{what}: {one_line(one.path)} on {fold(one.hosts)}"


def _text(gc_result: records.GcResult) -> str:
    counts = (
        (len(gc_result["processes"]), "process"),
        (len(gc_result["runs"]), "run"),
        (len(gc_result["bundles"]), "bundle"),
        (len(gc_result["environments"]), "environment"),
        (len(gc_result["files"]), "file"),
        (len(gc_result["written"]), "working directory"),
    )
    return ", ".join(count(number, noun) for number, noun in counts if number)


def _details(host: str, one: records.GcResult) -> list[str]:
    lines = [
        f"{host}: process {left['pid']} of {left['run']}{outlived}: {clipped(left['command'], 63)}"
        for outlived, group in (("", one["processes"]), (" outlived SIGKILL", one["survivors"]))
        for left in group
    ]
    return lines + [f"{host}: {run['run']}: {sentence(why_of(run))}, {size(run['size_bytes'])}" for run in one["runs"]]
