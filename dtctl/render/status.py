"""How a run is doing: one line on the whole, a table of its tasks, and what has happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import fact, sentence
from dtctl.model import TaskState
from dtctl.operations.asking.outcome import Outcome
from dtctl.operations.asking.tasks import TaskStatus, how_it_ended
from dtctl.operations.report.goodput import goodput_of
from dtctl.operations.status import RunStatus
from dtctl.render.checkpoints import age, checkpoint_lines
from dtctl.render.report.goodput import goodput_line
from dtctl.render.story import incident_lines
from dtctl.render.tables import print_table, styled, table
from dtctl.render.terminal import console
from dtctl.render.words import count, duration, fold

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

OUTCOME_STYLE = {
    Outcome.SUCCEEDED: "bold green",
    Outcome.FAILED: "bold red",
    Outcome.RESTARTING: "yellow",
    Outcome.RUNNING: "green",
}
_STATE_STYLE = {
    TaskState.RUNNING: "green",
    TaskState.SUCCEEDED: "bold green",
    TaskState.FAILED: "bold red",
    TaskState.BACKOFF: "yellow",
    TaskState.STALLED: "yellow",
    TaskState.LOST: "magenta",
    TaskState.STOPPED: "dim",
}
SHOWN_INCIDENTS = 3
"""The newest; `dtctl events` tells them all."""


def show_status(status: RunStatus) -> None:
    out = console.out()
    out.print(summary(status))
    print_table(status_table(status))
    for line in more_lines(status):
        out.print(line)


def summary(status: RunStatus) -> Text:
    """The answer first: the run and its outcome, then how far it is, how fast, when it is done; else the reason."""
    from dtctl.render.terminal.rich_console import text

    record, verdict = status.record, status.verdict
    return text(
        (record.run or record.cluster, "bold"),
        ": ",
        (verdict.outcome.value, OUTCOME_STYLE.get(verdict.outcome, "")),
        f" {_age(status)}" if verdict.outcome is Outcome.RUNNING and _age(status) else "",
        "".join(f"{SEPARATOR}{fact}" for fact in in_short(status)),
    )


SEPARATOR = " · "


def in_short(status: RunStatus) -> list[str]:
    """What stands in one line after the outcome."""
    verdict, progress = status.verdict, status.progress
    shown = [] if verdict.outcome is Outcome.RUNNING and progress.step is not None else [sentence(verdict.why)]
    if _age(status) and not (verdict.outcome.decided or verdict.outcome is Outcome.RUNNING):
        shown.append(f"{_age(status)} since the start")
    if progress.step is not None:
        shown.append(f"step {progress.step}" + (f"/{progress.target}" if progress.target is not None else ""))
    if not verdict.outcome.decided:
        shown += _pace(status)
    if progress.loss is not None:
        shown.append(f"loss {progress.loss}")
    newest = status.newest_checkpoint
    if newest is not None and newest.newest_complete is not None:
        shown.append(f"checkpoint {age(newest.newest_complete, status.time)} ago")
    return shown


def _age(status: RunStatus) -> str:
    """Empty where nobody can tell."""
    return duration(status.time - status.record.created) if status.record.created and status.time else ""


def _pace(status: RunStatus) -> list[str]:
    """How fast and for how long; of a run that has told no step for a while, for how long it has not."""
    progress, shown = status.progress, []
    if progress.step_time is not None and status.time - progress.step_time >= SILENT_S:
        shown.append(f"last step {duration(status.time - progress.step_time)} ago")
    elif progress.rate:
        shown.append(f"{progress.rate:.3g} steps/s")
        if progress.left_s:
            shown.append(f"done in {duration(progress.left_s)}")
    return shown


SILENT_S = 30.0
"""After this long without a step a rate says nothing about what is to come."""


def status_table(status: RunStatus) -> Table:
    with_steps = any(task.step is not None for task in status.tasks.values())
    steps = ("STEP",) if with_steps else ()
    grid = table("TASK", "HOST", "STATE", "FOR", *steps, "RESTARTS", "PID", "NOTE")
    for task in status.tasks.values():
        step = ("" if task.step is None else str(task.step),) if with_steps else ()
        grid.add_row(
            str(task.id),
            task.host,
            styled(task.state.value, _STATE_STYLE.get(task.state, "")),
            duration(status.time - task.since) if task.since and status.time else "",
            *step,
            str(task.restarts),
            str(task.pid) if task.pid and not task.state.final else "",
            _note(task, status),
        )
    return grid


def more_lines(status: RunStatus) -> list[str]:
    """What the table does not show: who is awaited, what was lost, what is odd, and the newest checkpoint."""
    told = status.coordination
    if told is None:
        return checkpoint_lines(status)
    lines = [f"waiting: {told.missing}"] if told.missing and not status.verdict.outcome.decided else []
    if status.going_on_after_the_end:
        lines.append(f"ending: {', '.join(map(str, status.going_on_after_the_end))}")
    lines += restarts_lines(status, SHOWN_INCIDENTS)
    lines += [f"warning: {text}" for text in told.warnings]
    lines += [goodput_line(goodput)] if (goodput := goodput_of(status)) else []
    if told.lost_hosts and status.verdict.outcome.decided:
        lines.append(f"away: {fold(told.lost_hosts)}; what runs there is ended as soon as it is back")
    return lines + checkpoint_lines(status)


def restarts_lines(status: RunStatus, most: int) -> list[str]:
    """The newest incidents, one below the other, and how many there were before."""
    told = status.coordination
    if told is None or not told.incidents:
        return []
    shown = told.incidents[-most:]
    earlier = len(told.incidents) - len(shown)
    lines = [f"{count(earlier, 'earlier loss')}: dtctl events"] if earlier else []
    for incident in shown:
        lines += incident_lines(incident, status.time or told.time)
    return lines


def _note(task: TaskStatus, status: RunStatus) -> str:
    if task.state is TaskState.BACKOFF:
        if task.next_start:
            wait = f"starts again in {duration(max(0.0, task.next_start - status.time))}"
        else:
            wait = "waits for the coordinator"
        return f"{sentence(how_it_ended(task))}; {wait}"
    if task.state is TaskState.FAILED:
        return sentence(how_it_ended(task))
    if task.state is TaskState.STOPPED:
        killed = [one for one in task.why if one["kind"] == "killed_after"]
        rest = [one for one in task.why if one["kind"] != "killed_after"]
        told = tuple(rest[1:]) == status.verdict.why  # it stands above the table already
        why = sentence([*killed, *(rest[:1] if told else rest)])
        how = sentence([fact("exited", code=task.code)]) if task.signal is None and task.code is not None else ""
        return f"{why} ({how})" if why and how else why or how
    if task.state is TaskState.SUCCEEDED:
        return left_behind(task)
    return sentence(task.why)


def left_behind(task: TaskStatus) -> str:
    """The processes that the trainer went away from; empty if there were none."""
    return sentence(one for one in task.why if one["kind"] == "left_behind")
