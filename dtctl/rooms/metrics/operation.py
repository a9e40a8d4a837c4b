"""The scalars that trainers write for TensorBoard, as the hosts read them; a directory that hosts share counts once."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from dtctl import rooms
from dtctl.agent.rooms.metrics.records import FolderAt, FolderPoints, MetricsResult, Points, SeriesPoints
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Request, about, ask_hosts, final, frames_of, knows_no_run, request
from dtctl.operations.client.plausible import check_run
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams, Through
from dtctl.operations.run_record import RunRecord
from dtctl.transport.seam import Session, Transport

Key = tuple[str, str, str]
"""A directory, the name below it, and what makes it the same on all hosts that share it."""


class Point(NamedTuple):
    """One value of a scalar; `time` in epoch seconds of the host that wrote it."""

    step: int
    time: float
    value: float


@dataclass(frozen=True)
class Series:
    """One tag in one directory of event files. `name`: what TensorBoard calls a run, `.` for `directory` itself."""

    tag: str
    name: str
    host: str
    directory: str
    points: tuple[Point, ...]
    """The points by step, at most as many as requested."""
    count: int
    """The number of all its points."""
    least: float | None = None
    most: float | None = None
    now: float = 0.0
    """The time by the clock of its host."""

    @property
    def last(self) -> Point | None:
        return self.points[-1] if self.points else None


@dataclass(frozen=True)
class Metrics:
    """The result of a query; `run` None: no host has one."""

    run: str | None
    series: tuple[Series, ...]
    answers: Mapping[str, MetricsResult] = field(default_factory=dict)
    """Host -> its answer to `up`."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    without_run: tuple[str, ...] = ()


Put = Callable[[str, Sequence[FolderPoints], bool], None]
"""Receives a bucket, its new points, and whether these are its first."""


class ScalarsAtUrls(NamedTuple):
    """What another room knows of the scalars at the storage URLs of a run."""

    read: Callable[[RunRecord, str, Sequence[str], int], Mapping[str, MetricsResult]]
    """All: of the run, with these tags, and at most so many points of each series."""
    follow: Callable[[Sequence[str], Sequence[str], int, Streams, threading.Event, Put], None]
    """Passes on what is added at these URLs until the event: tags and points as for `read`."""


def read_metrics(record: RunRecord, transport: Transport, tags: Sequence[str], *, points: int) -> Metrics:
    """Reads scalars over one connection to each host. `tags`: names or patterns, none for all; `points`: the most of
    each series.
    """
    fields = {"tags": list(tags) or None, "points": points, "follow": False}
    wanted = Request("metrics", MetricsResult, lambda _: fields)
    outcomes = ask_hosts(record, ImpatientTransport(transport, record), wanted)
    errors = {host: error for host, error in outcomes.errors.items() if not knows_no_run(error)}
    run = _run_of(record, outcomes.results)
    answers = {host: answer for host, answer in outcomes.results.items() if answer["run"] == run}
    for host in outcomes.results.keys() - answers.keys():
        errors[host] = TransportError(f"{host} has another run than {run}: {outcomes.results[host]['run']}")
    if run is not None and record.event_urls:
        at_urls: Iterator[ScalarsAtUrls] = rooms.each("scalars")
        for one in at_urls:
            answers |= one.read(record, run, tags, points)
    return Metrics(
        run=run,
        series=tuple(_each_once(record, answers)),
        answers=answers,
        errors=errors,
        without_run=tuple(host for host, error in outcomes.errors.items() if knows_no_run(error)),
    )


def _run_of(record: RunRecord, answers: Mapping[str, MetricsResult]) -> str | None:
    """The run of the coordinator's host; if that is away, the one that most hosts have."""
    if record.coordinator in answers:
        return answers[record.coordinator]["run"]
    counted = Counter(answer["run"] for answer in answers.values())
    return counted.most_common(1)[0][0] if counted else None


def _each_once(record: RunRecord, answers: Mapping[str, MetricsResult]) -> Iterator[Series]:
    """A shared directory as the coordinator's host reports it, if it does."""
    seen: set[Key] = set()
    for host in sorted(answers, key=lambda name: (name != record.coordinator, name)):
        for folder in answers[host]["folders"]:
            if key_of(folder) not in seen:
                seen.add(key_of(folder))
                yield from series_of(host, folder, answers[host]["time"])


def rates_of(points: Sequence[Point]) -> list[Point]:
    """Steps per second from each point to the next; not a number where the step went back."""
    return [
        Point(after.step, after.time, (after.step - before.step) / (after.time - before.time))
        if after.step > before.step and after.time > before.time
        else Point(after.step, after.time, math.nan)
        for before, after in pairwise(points)
    ]


def key_of(folder: FolderAt) -> Key:
    return folder["dir"], folder["name"], folder["identity"]


def series_of(host: str, folder: FolderPoints, now: float) -> Iterator[Series]:
    for answer in folder["series"]:
        yield Series(
            tag=answer["tag"],
            name=folder["name"],
            host=host,
            directory=folder["dir"],
            points=tuple(_points(answer)),
            count=answer["count"],
            least=None if answer["least"] is None else float(answer["least"]),
            most=None if answer["most"] is None else float(answer["most"]),
            now=now,
        )


def _points(answer: SeriesPoints) -> Iterable[Point]:
    for step, time, value in zip(answer["steps"], answer["times"], answer["values"], strict=True):
        yield Point(step, time, float(value))


TICK_S = 0.25
_AT_URLS = "://"
"""The key, in place of a host's name, of the run's storage URLs; they are followed as long as any host is."""


def follow_metrics(
    record: RunRecord, transport: Transport, tags: Sequence[str], *, points: int
) -> Iterator[Series | Disconnected | Reconnected | None]:
    """The existing points, at most so many of each series, and then new points as they come, until the run has ended;
    None whenever nothing came for a while.

    Raises DtctlError where no host can be followed.
    """
    hosts, unknown = record.routes_to(record.task_hosts)
    following, failed = {host.name for host in hosts}, dict[str, DtctlError](unknown)
    ended = threading.Event()
    without_repeats = _WithoutRepeats()
    with Streams(transport) as streams:
        for host in hosts:
            streams.begin(host, partial(_converse, record, tags, points, streams))
        if record.event_urls:
            following.add(_AT_URLS)
            streams.work(_AT_URLS, partial(_follow_urls, record, tags, points, streams, ended))
        for answer in streams.all(TICK_S):
            if isinstance(answer, _FolderReport):
                yield from without_repeats.new_of(answer)
            elif isinstance(answer, Through):
                following.discard(answer.host)
            elif isinstance(answer, Disconnected):
                without_repeats.release(answer.host)
                if answer.final:
                    following.discard(answer.host)
                    failed[answer.host] = answer.error
                if not answer.final or not knows_no_run(answer.error):
                    yield answer
            elif answer is None or isinstance(answer, Reconnected):
                yield answer
            if following <= {_AT_URLS}:
                ended.set()
            if not following or len(failed) == len(record.hosts):
                break
    if failed and len(failed) == len(record.task_hosts):
        raise next(iter(failed.values()))


@dataclass(frozen=True)
class _FolderReport:
    """`whole`: the first report of a conversation, which may repeat points."""

    host: str
    folders: Sequence[FolderPoints]
    whole: bool


def _follow_urls(record: RunRecord, tags: Sequence[str], points: int, streams: Streams, ended: threading.Event) -> None:
    def put(bucket: str, folders: Sequence[FolderPoints], first: bool) -> None:
        streams.put(_FolderReport(bucket, folders, first))

    at_urls: Iterator[ScalarsAtUrls] = rooms.each("scalars")
    for one in at_urls:
        one.follow(record.event_urls, tags, points, streams, ended, put)
    streams.put(Through(_AT_URLS))


def _converse(record: RunRecord, tags: Sequence[str], points: int, streams: Streams, session: Session) -> bool:
    host = session.host
    fields = {"tags": list(tags) or None, "points": points, "follow": True}
    session.send({**request(record, host, "metrics"), **fields})
    whole = True
    for message in frames_of(session, "points", most_bytes=None):
        if message.type == "points":
            answer = message.of(Points)
            with about(host.name, "sent invalid `points`"):
                check_run(record.cluster, record.run, answer["run"])
            streams.put(_FolderReport(host.name, answer["folders"], whole), message.size)
            whole = False
    final(record, session, "metrics", message, MetricsResult)
    streams.put(Through(host.name))
    return False


class _WithoutRepeats:
    """Removes repeated points: a shared directory is taken from the host that reports it first."""

    def __init__(self) -> None:
        self._owner: dict[Key, str] = {}
        self._latest: dict[tuple[Key, str], float] = {}

    def release(self, host: str) -> None:
        self._owner = {key: owner for key, owner in self._owner.items() if owner != host}

    def new_of(self, answer: _FolderReport) -> Iterator[Series]:
        for folder in answer.folders:
            key = key_of(folder)
            known = key in self._owner
            if self._owner.setdefault(key, answer.host) != answer.host:
                continue
            for series in series_of(answer.host, folder, 0.0):
                since = self._latest.get((key, series.tag))
                again = since is not None and (answer.whole or not known)
                points = tuple(one for one in series.points if not again or one.time > (since or 0.0))
                if points:
                    self._latest[key, series.tag] = max(point.time for point in points)
                    yield Series(series.tag, series.name, series.host, series.directory, points, series.count)


TAGS = ("loss", "*/loss", "loss_*", "*_loss", "*/loss_*")
POINTS = 200
"""The number of past points of each series."""

_MOST_NAMES = 200

_OF_OTHERS = ("eval", "valid", "test")
"""Words in the names of losses that are not the training loss."""

Name = tuple[str, str, str]
"""Directory, name below it, and tag."""


def follow_loss(record: RunRecord, transport: Transport) -> Generator[Series | None, None, None]:
    """The points of every loss, beginning with past ones; ends if there is nothing to follow. None now and then."""
    host = record.coordinator
    lead_alone = dataclasses.replace(record, hosts={host: record.route_to(host)}, others={})
    for reported in follow_metrics(lead_alone, transport, TAGS, points=POINTS):
        if isinstance(reported, Disconnected):
            if reported.final:
                return
        elif reported is None or isinstance(reported, Series):
            yield reported


class Losses:
    """All losses that were reported; `best` is the one of the training."""

    def __init__(self) -> None:
        self._points: dict[Name, list[Point]] = {}

    def add(self, series: Series) -> None:
        name = (series.directory, series.name, series.tag)
        if name not in self._points and len(self._points) >= _MOST_NAMES:
            return
        points = self._points.setdefault(name, [])
        points.extend(series.points)
        if len(points) > 4 * POINTS:  # a curve has no room for more points points
            points[:] = [*points[:-1:2], points[-1]]

    def best(self) -> list[Point]:
        """The points of the best loss; empty if there is none."""
        if not self._points:
            return []
        return self._points[min(self._points, key=_rank)]


def _rank(name: Name) -> tuple[bool, bool, int, Name]:
    _, run, tag = name
    of_others = any(word in part.lower() for part in (run, tag) for word in _OF_OTHERS)
    return of_others, tag != "loss", len(tag), name
