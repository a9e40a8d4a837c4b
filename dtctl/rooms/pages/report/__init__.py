"""Collects the facts for a report of a run. Each host is asked over one connection, the coordinator's host first."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Any

from dtctl.agent.records.whole_run import HistoryEvent
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError
from dtctl.folder import Folder, open_regular, replace_file
from dtctl.model import TaskId
from dtctl.operations.client.persistent import NotAsked, PersistentTransport, RecordingTransport, for_one_command
from dtctl.operations.events import Attempted, EventHistory, in_order, read_events
from dtctl.operations.figures import Figures, figures_of
from dtctl.operations.goodput import Goodput, points_of
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.status import status, with_storage
from dtctl.rooms.metrics.operation import Metrics, Point, Series, rates_of, read_metrics
from dtctl.rooms.pages.report.configuration import Configuration, configuration_of
from dtctl.rooms.pages.report.logged import LoggedSteps
from dtctl.rooms.pages.report.timeline import Timeline
from dtctl.rooms.pages.report.timeline import timeline as timeline_of
from dtctl.rooms.speed.operation import Speed, speed
from dtctl.transport.seam import Transport

POINTS = 400
"""The most points of a series: more than a curve on a page can show."""

LINES = 20_000
"""The number of newest events that are shown."""

RATE_TAGS = ("global_step/sec", "steps_per_second", "steps_per_sec", "steps/s")


@dataclass(frozen=True)
class HostFacts:
    """The facts about a host. `gpus`: as in the cluster file; `greeting`: the agent's report; empty if it gave no
    answer.
    """

    name: str
    tasks: tuple[TaskId, ...]
    gpus: int
    greeting: Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """A snapshot of a run, and its past."""

    made: float
    """Epoch seconds of this machine."""
    python: str
    """The Python version of this machine."""
    status: RunStatus
    figures: Figures
    timeline: Timeline
    events: tuple[HistoryEvent, ...]
    """The events that are not in the timeline."""
    scalars: Metrics
    rates: tuple[Series, ...]
    """Steps per second, by the times of the scalars."""
    logged: tuple[Series, ...]
    """Loss and steps per second by the lead's log, where there are no scalars."""
    hosts: tuple[HostFacts, ...]
    configuration: Configuration
    speed: Speed | None = None
    """Why the run is not faster; None: nothing was measured."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    """Host -> why it did not answer completely."""
    unasked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Host -> the parts (`events`, `metrics`) that it was not asked for, because it had not finished an earlier answer.
    """

    @property
    def goodput(self) -> Goodput | None:
        return self.figures.goodput


def gather(record: RunRecord, transport: Transport, environ: Mapping[str, str]) -> Report:
    """Collects a report. Raises DtctlError if no host knows the run."""
    with Following(record, transport, environ, for_one_command) as following:
        return following.report()


SCALARS_EVERY_S = 10.0
SCALARS_SHARE = 0.05
"""The largest share of the time that is spent on scalars: each host reads its event files."""
SPEED_EVERY_S = 30.0
"""Whole minutes are judged."""


class Following(AbstractContextManager["Following"]):
    """The report of a run again and again, over one connection to each host; what has not changed is not asked again.

    A context manager: at its end its connections are closed. `keep`: see client/persistent.py.
    """

    def __init__(
        self,
        record: RunRecord,
        transport: Transport,
        environ: Mapping[str, str],
        keep: Callable[[Transport], PersistentTransport] = PersistentTransport,
    ) -> None:
        self._record = record
        self._environ = environ
        self._noting = RecordingTransport(transport)
        self._kept = keep(self._noting)
        self._events = EventHistory(())
        self._events_from = ""
        """The host whose coordinator reports the event history."""
        self._scalars = Metrics(None, ())
        self._logged = LoggedSteps()
        self._next_scalars = 0.0
        self._speed: Speed | None = None
        self._next_speed = 0.0
        self._was_over = False

    def __exit__(self, *_: object) -> None:
        self._kept.__exit__()

    @property
    def record(self) -> RunRecord:
        """The run as its hosts last reported it."""
        return self._record

    def report(self) -> Report:
        """The run's current state. Raises DtctlError where no host says anything of it."""
        found = with_storage(status(self._record, self._kept))
        if found.time:
            self._record = found.record
            has_just_ended = is_over(found) and not self._was_over
            self._read_events()
            self._read_scalars(now=has_just_ended)
            self._read_speed(now=has_just_ended)
            self._was_over = is_over(found)
        greetings = {host: one.facts for host, one in self._noting.greeted.items()}
        logged = () if self._scalars.series else self._logged.series(self._record)
        return put_together(found, self._events, self._scalars, greetings, self._environ, logged, self._speed)

    def _read_events(self) -> None:
        """The new events; all of them if the hosts report them in place of the coordinator."""
        record, known = self._record, self._events.lines
        goes_on = bool(known) and self._events.away is None and self._events_from == record.coordinator
        begin = known[-1]["n"] + 1 if goes_on else None
        try:
            new_events = read_events(record, self._kept, last=LINES, begin=begin)
        except DtctlError as error:
            self._events = dataclasses.replace(self._events, errors={record.coordinator: error})
            return
        new = (*known, *new_events.lines)[-LINES:] if goes_on and new_events.away is None else new_events.lines
        self._events, self._events_from = EventHistory(new, new_events.errors, new_events.away), record.coordinator

    def _read_scalars(self, *, now: bool) -> None:
        """Reads the scalars, or the log where there are none; those of a host without an answer stay unchanged."""
        began = time.monotonic()
        if began >= self._next_scalars or now:
            metrics = own_of(read_metrics(self._record, self._kept, [], points=POINTS), self._record)
            left = [one for one in self._scalars.series if one.host in metrics.errors]
            self._scalars = dataclasses.replace(metrics, series=(*metrics.series, *left))
            if not self._scalars.series:
                self._logged.read(self._record, self._kept)
            took = time.monotonic() - began
            self._next_scalars = began + max(SCALARS_EVERY_S, took / SCALARS_SHARE)

    def _read_speed(self, *, now: bool) -> None:
        """Agents of an earlier version measure nothing; a host without an answer is named where its state is read."""
        began = time.monotonic()
        if began >= self._next_speed or now:
            found = speed(self._record, self._kept)
            self._speed = found if found.facts is not None else self._speed
            self._next_speed = began + SPEED_EVERY_S


def own_of(metrics: Metrics, record: RunRecord) -> Metrics:
    """The scalars without those that a later run of the project has written into the directories of this one."""
    if (until := record.followed_at) is None:
        return metrics
    kept = [(one, tuple(point for point in one.points if point.time < until)) for one in metrics.series]
    series = (one if len(points) == len(one.points) else _shortened(one, points) for one, points in kept if points)
    return dataclasses.replace(metrics, series=tuple(series))


def _shortened(series: Series, points: tuple[Point, ...]) -> Series:
    values = [point.value for point in points if math.isfinite(point.value)]
    least, most = (min(values), max(values)) if values else (None, None)
    return dataclasses.replace(series, points=points, count=len(points), least=least, most=most)


def is_over(found: RunStatus) -> bool:
    """Whether the run is over, by its coordinator's report."""
    return found.coordination is not None and found.is_over


def put_together(
    found: RunStatus,
    events: EventHistory,
    scalars: Metrics,
    greetings: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    logged: Sequence[Series] = (),
    judged: Speed | None = None,
) -> Report:
    happenings = events.lines
    errors = _first_of_each_host(found.errors, events.errors, scalars.errors)
    return Report(
        made=time.time(),
        python=f"{platform.python_version()}, {platform.system()} {platform.release()}",
        status=found,
        figures=figures_of(found, points_of(scalars.series)),
        timeline=timeline_of(happenings, found.tasks.values(), found.time, cut=len(happenings) >= LINES),
        events=tuple(one for one in in_order(happenings) if not isinstance(one, Attempted) and one["kind"] != "task"),
        scalars=scalars,
        rates=() if any(one.tag in RATE_TAGS for one in scalars.series) else tuple(rates(scalars.series)),
        logged=tuple(logged),
        hosts=tuple(
            _host(name, found.record, greetings.get(name, {})) for name in dict.fromkeys(found.record.roster.values())
        ),
        configuration=configuration_of(found.record, environ),
        speed=judged,
        errors=errors,
        unasked=_unasked(errors, {"events": events.errors, "metrics": scalars.errors}),
    )


def _first_of_each_host(*parts: Mapping[str, DtctlError]) -> dict[str, DtctlError]:
    """The first error of each host, rather than the note that it was not asked again."""
    errors: dict[str, DtctlError] = {}
    for failed in parts:
        for host, error in failed.items():
            if host not in errors or isinstance(errors[host], NotAsked):
                errors[host] = error
    return errors


def _unasked(
    errors: Mapping[str, DtctlError], parts: Mapping[str, Mapping[str, DtctlError]]
) -> dict[str, tuple[str, ...]]:
    """The parts that were not asked of hosts that had failed before."""
    failed = [host for host, error in errors.items() if not isinstance(error, NotAsked)]
    left = {host: tuple(what for what, one in parts.items() if isinstance(one.get(host), NotAsked)) for host in failed}
    return {host: what for host, what in left.items() if what}


def rates(series: Iterable[Series]) -> Iterable[Series]:
    """The step rate of each directory as one series, by its tag with the most points."""
    fullest: dict[tuple[str, str, str], Series] = {}
    for one in series:
        key = (one.host, one.directory, one.name)
        if len(one.points) > len(fullest[key].points if key in fullest else ()):
            fullest[key] = one
    for one in fullest.values():
        points = [point for point in rates_of(one.points) if math.isfinite(point.value)]
        if points:
            values = [point.value for point in points]
            yield dataclasses.replace(
                one, tag="steps/s", points=tuple(points), count=len(points), least=min(values), most=max(values)
            )


def _host(name: str, record: RunRecord, greeting: Mapping[str, Any]) -> HostFacts:
    gpus = record.hosts[name].gpus if name in record.hosts else 0
    return HostFacts(name, record.tasks_on(name), gpus, greeting)


MARK = "<!-- dtctl report"
"""The first line of a report, or its second."""

_HEAD_BYTES = 200


def check_place(path: Path, project: Path | None = None, *, force: bool) -> None:
    """Raises UsageError if the path exists, or if no file can be written there."""
    try:
        with Folder(path.parent, project) as folder:
            found = folder.find(path.name)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path.parent} is not a directory", hint="-O names a file in an existing directory") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="-O names another file") from None
    if found is None:
        return
    if stat.S_ISLNK(found.st_mode):
        raise UsageError(f"{path} is a link; dtctl does not follow it", hint="-O names a file")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is not a file", hint="-O names one")
    if not force and found.st_size and not _is_report(path):
        hint = "-O names another file; --force writes over this one"
        raise UsageError(f"{path} exists and is not a report of dtctl", hint=hint)


def write_report(path: Path, text: str, project: Path | None = None, *, force: bool) -> int:
    """Writes the report and returns its size in bytes. It is replaced as a whole, with mode 0600."""
    check_place(path, project, force=force)
    content = text.encode("utf-8", "replace")
    try:
        replace_file(path, content, project=project)
    except OSError as error:
        raise DtctlError(f"cannot write {path}: {error.strerror}", hint="-O names another file") from error
    return len(content)


def _is_report(path: Path) -> bool:
    try:
        with os.fdopen(open_regular(path, follow=False), "rb") as file:
            return MARK.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False
