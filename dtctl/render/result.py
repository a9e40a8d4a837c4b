"""How stops, restarts and whole runs ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import sentence
from dtctl.errors import ExitCode
from dtctl.model import TaskId, TaskState
from dtctl.operations.snapshot import Outcome
from dtctl.render.errors import note, show_host_errors, show_warning
from dtctl.render.format import count, fold
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import log_lines

if TYPE_CHECKING:
    from dtctl.operations.events import EventHistory
    from dtctl.operations.gc import Written
    from dtctl.operations.restart import RestartResult
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.snapshot import RunStatus
    from dtctl.operations.stop import StopResult
    from dtctl.render.logs import LogPrinter


CAUSE_LINES = 20
_INCIDENTS = 8
_FOREGROUND = "dtctl watches what it starts itself: start the program without a daemon, nohup or &"


def show_kept(kept: Collection[Written]) -> None:
    """What `down` does not remove unasked."""
    from dtctl.render.gc import written_line

    for one in kept:
        note(written_line(one))
    if kept:
        note("  dtctl gc --written    removes what trainers wrote, once no run of their cluster is left")


def show_restarted(result: RestartResult) -> None:
    for task in result.tasks:
        again = f"{task.id} on {task.host}: attempt {task.entry['attempt']} {task.state.value} {sentence(task.why)}"
        console.say(again.rstrip())


def show_stop(result: StopResult) -> None:
    unknown = f", {count(len(result.errors), 'host')} could not be asked" if result.errors else ""
    console.say(f"{stopped_tasks(result)}{unknown}")
    _show_left_of(result)


def _show_left_of(result: StopResult) -> None:
    for survivor in result.survivors:
        show_warning(f"{survivor.task} on {survivor.host}: process {survivor.pid} is still there: {survivor.command}")
    show_away(result)
    show_host_errors(result.errors)
    if result.promised:
        note(f"the coordinator ends the tasks on {fold(result.promised)} as soon as it hears from them")


def show_drained(host: str, result: StopResult) -> None:
    if result.stopped:
        console.say(f"{host} is drained: {stopped_tasks(result)}")
    elif not result.errors:
        console.say(f"{host} is drained: nothing of the run was left there")
    _show_left_of(result)
    if result.stopped or result.already:
        note(f"dtctl undrain {host}    lets its tasks run again")


def show_without_run(record: RunRecord, hosts: Sequence[str]) -> None:
    """Where the run that is meant, or any of the cluster, is not."""
    if hosts:
        note(f"no run {record.run} on {fold(hosts)}" if record.run else f"no run of {record.cluster} on {fold(hosts)}")


def show_away(result: RunStatus | StopResult | RestartResult | EventHistory) -> None:
    """Why every host was asked; nothing where there is no run at all."""
    if result.away is not None and not result.away.elsewhere:
        note(f"{result.away.summary}: every host was asked")


def stop_exit_code(result: StopResult) -> ExitCode:
    if result.survivors:
        return ExitCode.SURVIVORS
    if result.errors:
        return ExitCode.PARTIAL if result.stopped or result.already else next(iter(result.errors.values())).exit_code
    return ExitCode.OK


def show_ended(status: RunStatus, followed: LogPrinter | None = None) -> None:
    """The first failure comes last, with the end of its log, unless `followed` has shown that just now."""
    from dtctl.render.checkpoints import checkpoint_lines
    from dtctl.render.diagnosis import advice_lines
    from dtctl.render.status import OUTCOME_STYLE, restarts_lines
    from dtctl.render.terminal.rich_console import text

    err = console.err()
    verdict, coordination = status.verdict, status.coordination
    for line in restarts_lines(status, _INCIDENTS):
        note(line)
    _show_others(status)
    for line in checkpoint_lines(status):
        note(line)
    for warning in coordination.view["warnings"] if coordination else ():
        show_warning(warning)
    _show_left(status)
    if verdict.cause is not None:
        tail = log_lines(status.tasks[verdict.cause].exit["tail"].encode(errors="replace"), color=False)[-CAUSE_LINES:]
        for line in () if followed is not None and followed.has_just_shown(verdict.cause, tail) else tail:
            note(f"  {verdict.cause} | {line}")
    if told_next := advice_lines(status):
        note(*told_next)
    if console.speaks_json():
        return note(f"run {status.record.run}: {verdict.outcome.value}, {sentence(verdict.why)}")
    style = OUTCOME_STYLE.get(verdict.outcome, "")
    err.print(text(f"run {status.record.run}: ", (verdict.outcome.value, style), f", {sentence(verdict.why)}"))
    return None


def ended_exit_code(status: RunStatus) -> ExitCode:
    if status.verdict.outcome is not Outcome.SUCCEEDED:
        return ExitCode.RUN_FAILED
    if any(task.entry["left"] for task in status.tasks.values()):
        return ExitCode.SURVIVORS
    return ExitCode.PARTIAL if status.errors or _lost(status) else ExitCode.OK


def stopped_tasks(result: StopResult) -> str:
    already = f", {len(result.already)} had ended before" if result.already else ""
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
        show_warning(f"{hosts} is away: {', '.join(map(str, lost))} will be ended there when it is back")


def _lost(status: RunStatus) -> list[TaskId]:
    return [task.id for task in status.tasks.values() if task.state is TaskState.LOST]
