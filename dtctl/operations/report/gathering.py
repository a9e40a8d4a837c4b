"""Asks the hosts for all that a report tells: by one conversation with each, and the coordinator's host first."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import dtctl
from dtctl.agent.records.reasons import why_of
from dtctl.agent.records.whole_run import StoryLine
from dtctl.errors import DtctlError
from dtctl.model import Host, TaskId, TaskState
from dtctl.operations.client.kept import NotAsked, for_one_look
from dtctl.operations.events import Story, read_events
from dtctl.operations.history.record import RunRecord
from dtctl.operations.metrics import Metrics, Point, Series, read_metrics
from dtctl.operations.report.configuration import read_configuration
from dtctl.operations.report.goodput import goodput_of, points_of
from dtctl.operations.report.tree import Attempt, Bar, HostFacts, Report, TaskLine, Timeline
from dtctl.operations.snapshot import RunStatus, TaskStatus
from dtctl.operations.status import status
from dtctl.transport.seam import Session, Transport, answering

MOST_ATTEMPTS = 100
"""Of one task; the newest."""

_WAITS = (TaskState.PENDING, TaskState.BACKOFF)


def timeline(story: Sequence[StoryLine], tasks: Iterable[TaskStatus], now: float, *, cut: bool) -> Timeline:
    """`story` in the order of its lines; `now` ends what goes on."""
    told: dict[str, list[StoryLine]] = {}
    for one in story:
        if one["kind"] == "task" and one["task"] is not None:
            told.setdefault(one["task"], []).append(one)
    lines = tuple(
        TaskLine(task.id, task.host, task.state, tuple(_attempts(task, told.get(str(task.id), []), now)))
        for task in tasks
    )
    begins = [story[0]["time"]] if story else [bar.begin for line in lines for one in line.attempts for bar in one.bars]
    ends = [one.end for line in lines for one in line.attempts]
    begin = min([*begins, *(one.begin for line in lines for one in line.attempts)], default=now)
    return Timeline(begin, max([begin, *ends]), lines, cut)


def _attempts(task: TaskStatus, told: list[StoryLine], now: float) -> list[Attempt]:
    moves = [one for one in told if one["from"] != one["to"] and one["to"] in set(TaskState)]
    found = _from_moves(task, moves, now) if moves else _from_history(task, now)
    return found[-MOST_ATTEMPTS:]


def _from_moves(task: TaskStatus, moves: list[StoryLine], now: float) -> list[Attempt]:
    """A wait stands with the attempt before it, and the first one with the first attempt."""
    over = max(now, moves[-1]["time"])
    bars: dict[int, list[Bar]] = {}
    ended: dict[int, StoryLine] = {}
    for number, one in enumerate(moves):
        state, attempt = TaskState(one["to"]), one["attempt"] or 0
        end = moves[number + 1]["time"] if number + 1 < len(moves) else over
        if not state.final:
            bars.setdefault(attempt, []).append(Bar(state, one["time"], max(one["time"], end)))
        else:
            bars.setdefault(attempt, []).append(Bar(state, one["time"], one["time"]))
        if state not in (TaskState.STARTING, TaskState.RUNNING) and one["from"] not in ("pending", "backoff"):
            ended.setdefault(attempt, one)
    bars = {number: several for number, several in bars.items() if number or len(bars) == 1}
    return [_attempt(task, number, several, ended.get(number)) for number, several in sorted(bars.items())]


def _attempt(task: TaskStatus, number: int, bars: list[Bar], end: StoryLine | None) -> Attempt:
    state = task.state if number == task.entry["attempt"] else bars[-1].state
    return Attempt(number, tuple(bars), state, why_of(end) if end is not None else ())


def _from_history(task: TaskStatus, now: float) -> list[Attempt]:
    """Where nobody can tell the story: from how the task stands."""
    found = []
    for past in task.entry["history"]:
        state = TaskState.SUCCEEDED if past["code"] == 0 else TaskState.STOPPED if past["asked"] else TaskState.FAILED
        bars = (Bar(TaskState.RUNNING, past["started"], past["ended"]), Bar(state, past["ended"], past["ended"]))
        found.append(Attempt(past["attempt"], bars, state))
    if task.entry["since"] is not None and not task.state.final and task.state not in _WAITS:
        found.append(
            Attempt(
                task.entry["attempt"],
                (Bar(task.state, task.entry["since"], max(now, task.entry["since"])),),
                task.state,
                task.why,
            )
        )
    return found


def restarted(line: TaskLine) -> bool:
    return len(line.attempts) > 1


def by_trouble(lines: Sequence[TaskLine], lead: TaskId) -> list[TaskLine]:
    """What did not go well first, and the lead; else in their order."""
    calm = (TaskState.RUNNING, TaskState.SUCCEEDED, TaskState.PENDING, TaskState.STARTING)
    return sorted(lines, key=lambda line: (line.state in calm and not restarted(line), line.task != lead))


POINTS = 400
"""Of each series: more than a curve on a page can show."""

LINES = 20_000
"""Of the story, the newest."""

RATE_TAGS = ("global_step/sec", "steps_per_second", "steps_per_sec", "steps/s")


def gather(record: RunRecord, transport: Transport, environ: Mapping[str, str]) -> Report:
    """Raises DtctlError where no host says anything of the run."""
    noting = Noting(transport)
    story, scalars = Story(()), Metrics(None, (), {})
    with for_one_look(noting) as kept:
        found = status(record, kept)
        if found.time:
            try:
                story = read_events(found.record, kept, last=LINES)
            except DtctlError as error:
                story = Story((), {found.record.coordinator: error})
            scalars = read_metrics(found.record, kept, [], points=POINTS)
    return put_together(found, story, scalars, noting.facts, environ)


def put_together(
    found: RunStatus, story: Story, scalars: Metrics, facts: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]
) -> Report:
    happenings = story.lines
    errors = _first_of_each_host(found.errors, story.errors, scalars.errors)
    return Report(
        made=time.time(),
        dtctl=dtctl.__version__,
        python=f"{platform.python_version()}, {platform.system()} {platform.release()}",
        status=found,
        goodput=goodput_of(found, points_of(scalars.series)),
        timeline=timeline(happenings, found.tasks.values(), found.time, cut=len(happenings) >= LINES),
        story=tuple(one for one in happenings if one["kind"] != "task"),
        scalars=scalars,
        rates=() if any(one.tag in RATE_TAGS for one in scalars.series) else tuple(rates(scalars.series)),
        hosts=tuple(_host(name, found.record, facts.get(name, {})) for name in _hosts(found.record)),
        configuration=read_configuration(found.record.file, environ),
        errors=errors,
        unasked=_unasked(errors, {"events": story.errors, "metrics": scalars.errors}),
    )


def _first_of_each_host(*told: Mapping[str, DtctlError]) -> dict[str, DtctlError]:
    """What has gone wrong there, rather than that it was not asked again."""
    errors: dict[str, DtctlError] = {}
    for failed in told:
        for host, error in failed.items():
            if host not in errors or isinstance(errors[host], NotAsked):
                errors[host] = error
    return errors


def _unasked(
    errors: Mapping[str, DtctlError], parts: Mapping[str, Mapping[str, DtctlError]]
) -> dict[str, tuple[str, ...]]:
    """Of hosts that have failed at something else."""
    failed = [host for host, error in errors.items() if not isinstance(error, NotAsked)]
    left = {
        host: tuple(what for what, told in parts.items() if isinstance(told.get(host), NotAsked)) for host in failed
    }
    return {host: what for host, what in left.items() if what}


def rates(series: Iterable[Series]) -> Iterable[Series]:
    """Of each directory one series: how fast the steps followed one another, by its tag with the most points."""
    fullest: dict[tuple[str, str, str], Series] = {}
    for one in series:
        key = (one.host, one.directory, one.name)
        if len(one.points) > len(fullest[key].points if key in fullest else ()):
            fullest[key] = one
    for one in fullest.values():
        points = [
            Point(after.step, after.time, (after.step - before.step) / (after.time - before.time))
            for before, after in pairwise(one.points)
            if after.step > before.step and after.time > before.time
        ]
        if points:
            values = [point.value for point in points]
            yield dataclasses.replace(
                one, tag="steps/s", points=tuple(points), count=len(points), least=min(values), most=max(values)
            )


def _hosts(record: RunRecord) -> list[str]:
    return list(dict.fromkeys(record.roster.values()))


def _host(name: str, record: RunRecord, facts: Mapping[str, Any]) -> HostFacts:
    known = record.hosts.get(name)
    return HostFacts(
        name=name,
        tasks=record.tasks_on(name),
        system=facts.get("system", ""),
        python=facts.get("python", ""),
        hostname=facts.get("hostname", ""),
        cpus=facts.get("cpus", 0),
        memory_bytes=facts.get("memory_bytes", 0),
        free_bytes=facts.get("free_bytes", 0),
        gpus=known.gpus if known is not None else 0,
    )


class Noting:
    """A transport that keeps what each host says of itself in its greeting."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.facts: dict[str, Mapping[str, Any]] = {}

    def open(self, host: Host) -> Session:
        session = answering(self._transport, host)
        self.facts[host.name] = session.facts
        return session
