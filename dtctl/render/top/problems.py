"""What is wrong with a run: first what `dtctl status` says of it, then the rest, each in one line with its cause."""

from __future__ import annotations

from collections.abc import Iterator

from dtctl.agent.records.reasons import sentence
from dtctl.model import TaskId, TaskState
from dtctl.operations.client.outcome import Outcome
from dtctl.operations.client.tasks import TaskStatus, how_it_ended
from dtctl.render.events import incident_lines
from dtctl.render.health.roster import STATE_STYLE
from dtctl.render.top.columns import note
from dtctl.render.top.snapshot import WORST_FIRST, Line, Moment, safe
from dtctl.render.words import count, fold
from dtctl.transport.group_errors import rows

_WRONG = (TaskState.FAILED, TaskState.LOST, TaskState.STALLED, TaskState.BACKOFF)


def wrong(moment: Moment, most: int) -> list[Line]:
    """At most so many lines; the last of them counts those that have no room."""
    lines = [*_contacts(moment), *_cause(moment), *_problem(moment), *_tasks(moment), *_run(moment)]
    if len(lines) <= max(1, most):
        return lines
    if most <= 1:
        return lines[:1]
    return [*lines[: most - 1], [(f"and {count(len(lines) - most + 1, 'more line')}: dtctl status", "dim")]]


def _contacts(moment: Moment) -> Iterator[Line]:
    """What follows is old where nobody can be asked."""
    for host, away in moment.broken.items():
        again = "" if away.final else "; tried again"
        yield _line("bold red", f"{host} cannot be asked", f"{away.error.summary}{again}")
    for row in rows({host: error for host, error in moment.status.errors.items() if host not in moment.broken}):
        yield _line("bold red", "no answer", row.text)


def _cause(moment: Moment) -> Iterator[Line]:
    """The first failure of a run that has failed: the others followed from it."""
    status, cause = moment.status, moment.status.verdict.cause
    if cause is None or not _has_failed(moment) or cause in moment.problem.ended:
        return
    why = sentence(how_it_ended(status.tasks[cause])) or sentence(status.verdict.why)
    yield _line("bold red", f"{cause} on {status.tasks[cause].host} failed first", why, f"dtctl logs {cause}")


def _has_failed(moment: Moment) -> bool:
    return moment.status.verdict.outcome is Outcome.FAILED and moment.status.verdict.cause in moment.status.tasks


def _problem(moment: Moment) -> Iterator[Line]:
    for number, text in enumerate(moment.problem.lines):
        yield [(safe(text), "" if number else "bold red")]


def _tasks(moment: Moment) -> Iterator[Line]:
    """Tasks that tell the same in one line."""
    status = moment.status
    said = moment.problem.ended | ({status.verdict.cause} if _has_failed(moment) else set())
    alike: dict[tuple[TaskState, str], list[TaskStatus]] = {}
    for task in status.tasks.values():
        if task.state in _WRONG and task.id not in said:
            alike.setdefault((task.state, note(task, moment)), []).append(task)
    for (state, why), tasks in sorted(alike.items(), key=lambda pair: WORST_FIRST.index(pair[0][0])):
        who = ", ".join(map(str, _some([task.id for task in tasks])))
        where = fold(dict.fromkeys(task.host for task in tasks))
        yield _line(STATE_STYLE[state], f"{who} on {where} ({state.value})", why)


def _some(tasks: list[TaskId]) -> list[TaskId | str]:
    return [*tasks] if len(tasks) <= 4 else [*tasks[:3], f"{len(tasks) - 3} more"]


def _run(moment: Moment) -> Iterator[Line]:
    status, told = moment.status, moment.status.coordination
    if status.going_on_after_the_end:
        yield _line("", "ending", ", ".join(map(str, _some(list(status.going_on_after_the_end)))))
    if told is None:
        return
    if told.missing and not status.verdict.outcome.decided:
        yield _line("yellow", "waiting", told.missing)
    if told.lost_hosts:
        yield _line("magenta", f"{fold(told.lost_hosts)} away", "their agents do not answer the coordinator")
    named = {task.id for task in status.tasks.values() if task.state in _WRONG or task.id in moment.problem.ended}
    for incident in [one for one in told.incidents if one.recovered is None and one.closed is None][-2:]:
        if incident.task in named:
            continue  # its line says the same
        yield _line("yellow", "", incident_lines(incident, moment.now)[0])
    for text in told.warnings:
        yield _line("yellow", "warning", text)


def _line(style: str, what: str, why: str, command: str = "") -> Line:
    pieces = [(safe(what), style), (": " if what and why else "", ""), (safe(why), "" if what else style)]
    return [*pieces, *([(f"   {safe(command)}", "cyan")] if command else [])]
