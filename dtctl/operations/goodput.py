"""Goodput: the share of the elapsed time that was spent on steps that were kept, the losses, and how to reduce them.

How each second is attributed says agent/run/goodput.py; it is the coordinator that keeps the account.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Protocol

from dtctl.agent.run import goodput as rules
from dtctl.agent.run.goodput import STALL_GAPS, STALL_S
from dtctl.dataclass import dataclass
from dtctl.model import TaskId
from dtctl.operations.snapshot import Outcome, RunStatus

if TYPE_CHECKING:
    from dtctl.agent.records.checkpoints import Checkpoint
    from dtctl.agent.records.whole_run import Account, Incident


class Point(Protocol):
    """A scalar that a trainer has written: the step, and when it was made, in Unix seconds."""

    @property
    def step(self) -> int: ...
    @property
    def time(self) -> float: ...


class Series(Protocol):
    """The points of one tag."""

    @property
    def points(self) -> Sequence[Point]: ...


@dataclass(frozen=True)
class Span:
    """One use of time, in seconds since the account began. `step`: the newest that was reported by its end."""

    what: str
    begin_s: float
    end_s: float
    step: int | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class Gain:
    """A change that would raise the goodput by this share of the elapsed time.

    `checkpoints`: that there were any, at most. `save`: a checkpoint every `to_s` in place of `from_s`.
    `stall`: a limit of `to_s` for what hangs, where it took `from_s` to notice.
    `losses`: that `task` had not been lost, `count` times.
    """

    kind: str
    share: float
    from_s: float = 0.0
    to_s: float = 0.0
    task: TaskId | None = None
    count: int = 0


@dataclass(frozen=True)
class Goodput:
    """`seconds` of each part (the keys of `rules.PARTS`), which add up to `elapsed_s`."""

    since: float
    """Epoch seconds of the coordinator's host."""
    elapsed_s: float
    seconds: Mapping[str, float]
    spans: tuple[Span, ...]
    gains: tuple[Gain, ...] = ()
    """The gains, the largest first."""
    by_scalars: bool = False
    """The steps come from event files, because the logs report none."""

    @property
    def share(self) -> float:
        return self.share_of("kept")

    @property
    def counted_s(self) -> float:
        """The elapsed time without the time in which the run was paused."""
        return self.elapsed_s - self.seconds.get("pause", 0.0)

    def share_of(self, what: str) -> float:
        return self.seconds.get(what, 0.0) / self.counted_s if self.counted_s else 0.0


def points_of(series: Iterable[Series]) -> list[Point]:
    """The points of the series that has the most, by time."""
    fullest = max(series, key=lambda one: len(one.points), default=None)
    return sorted(fullest.points, key=lambda point: point.time) if fullest is not None else []


def with_points(spans: Sequence[Span], points: Sequence[Point], since: float, outcome: Outcome) -> list[Span]:
    """Divides the `spans` of an account without steps at the points; their times are taken to be of the same clock."""
    gaps = [after.time - before.time for before, after in pairwise(points)]
    limit_s = max(STALL_S, STALL_GAPS * median(gaps)) if gaps else STALL_S
    found: list[Span] = []
    for number, one in enumerate(spans):
        inside = [point for point in points if one.begin_s <= point.time - since <= one.end_s]
        if one.what != "start" or not inside:
            found.append(one)
        else:
            last = number + 1 == len(spans)
            found += _divided(one, [(point.time - since, point.step) for point in inside], limit_s, outcome, last=last)
    return found


def _divided(
    span: Span, points: Sequence[tuple[float, int]], limit_s: float, outcome: Outcome, *, last: bool
) -> Iterator[Span]:
    at, step = points[0]
    yield Span("start", span.begin_s, at, step)
    for (before, _), (after, reached) in pairwise(points):
        if after > before:
            yield Span("kept" if after - before <= limit_s else "stall", before, after, reached)
    at, step = points[-1]
    if span.end_s > at:
        yield Span(_rest(span.end_s - at, limit_s, outcome) if last else "again", at, span.end_s, step)


def _rest(seconds: float, limit_s: float, outcome: Outcome) -> str:
    if outcome is Outcome.SUCCEEDED:
        return "end"
    if seconds > limit_s:
        return "stall"
    return "unsaved" if outcome is Outcome.FAILED else "kept"


LEAST_GAIN = 0.005
"""A gain below this share of the elapsed time is not shown."""

WRITE_BYTES_S = 100e6
LEAST_SAVE_S = 0.2
"""The assumed duration of a save that was not measured: its size at 100 MB/s, and at least 0.2 s."""

INTERVALS_S = (10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200)
LEAST_STALL_S = 30.0


def goodput_of(status: RunStatus, points: Sequence[Point] = ()) -> Goodput | None:
    """The goodput; None if it is unknown: no step was reported, or the coordinator was not asked.

    `points`: of a scalar, for a run whose logs report no steps.
    """
    account = status.coordination.view["account"] if status.coordination else None
    by_scalars = not rules.is_known(account) and bool(points)
    if account is None or not account["seconds"] or not (rules.is_known(account) or by_scalars):
        return None
    spans = _spans(account)
    if by_scalars:
        spans = with_points(spans, points, account["since"], status.verdict.outcome)
    newest = status.newest_complete
    if (
        status.verdict.outcome in (Outcome.FAILED, Outcome.STOPPED)
        and newest is not None
        and newest["step"] is not None
        and status.progress.position is None
    ):
        spans = without_unsaved(spans, newest["step"])
    seconds: dict[str, float] = {what: account["before"].get(what, 0.0) for what in rules.PARTS}
    for span in spans:
        seconds[span.what] += span.seconds
    found = Goodput(account["since"], account["seconds"], seconds, tuple(spans))
    saves = status.newest_checkpoint.report["all"] if status.newest_checkpoint else ()
    incidents = status.coordination.view["incidents"] if status.coordination else ()
    gains = [*_by_saving(found, saves), *_by_noticing(found, incidents, account["gap_s"]), *_by_cause(found, incidents)]
    worth = sorted((gain for gain in gains if gain.share >= LEAST_GAIN), key=lambda one: -one.share)
    return dataclasses.replace(found, gains=tuple(worth), by_scalars=by_scalars)


def without_unsaved(spans: Sequence[Span], saved: int) -> list[Span]:
    """Counts steps past the last checkpoint of a run that did not succeed as not kept.

    When they were made is known for the ends of spans, and taken for even in between.
    """
    found: list[Span] = []
    step: int | None = None
    for number, one in enumerate(spans):
        last = all(later.what != "kept" for later in spans[number + 1 :])
        share = rules.saved_share(step, one.step, saved)
        if one.what == "kept" and last and share < 1.0:
            cut = one.begin_s + share * one.seconds
            found += [Span("kept", one.begin_s, cut, saved), Span("unsaved", cut, one.end_s, one.step)]
        else:
            found.append(one)
        step = one.step if one.step is not None else step
    return found


def _spans(account: Account) -> list[Span]:
    spans = []
    begin_s = sum(account["before"].values())
    for span in account["spans"]:
        spans.append(Span(span["what"], min(begin_s, span["end_s"]), span["end_s"], span["step"]))
        begin_s = span["end_s"]
    if account["seconds"] > begin_s:
        spans.append(Span(rules.unjudged(account), begin_s, account["seconds"]))
    return spans


def _by_saving(goodput: Goodput, saves: Sequence[Checkpoint]) -> list[Gain]:
    """The gain of another save interval, by Young's rule (1974): the best is the root of 2 * (cost of a save) * (time
    to a loss).
    """
    rollbacks = sum(span.what == "again" for span in goodput.spans)
    times = sorted(save["time"] for save in saves if save["complete"])
    gaps = [later - before for before, later in pairwise(times) if later > before]
    if rollbacks and not times:
        return [Gain("checkpoints", goodput.share_of("again"))]
    if not rollbacks or not gaps:
        return []
    now_s = median(gaps)
    cost_s = max(LEAST_SAVE_S, median(save["size_bytes"] for save in saves) / WRITE_BYTES_S)
    best_s = _rounded(math.sqrt(2 * cost_s * goodput.counted_s / rollbacks))
    saved_s = goodput.seconds["again"] * (1 - best_s / now_s) - cost_s * goodput.counted_s * (1 / best_s - 1 / now_s)
    return [Gain("save", saved_s / goodput.counted_s, from_s=now_s, to_s=best_s)] if best_s < now_s else []


def _by_noticing(found: Goodput, incidents: Sequence[Incident], gap_s: float) -> list[Gain]:
    hangs = sum(one["loss"] == "hung" for one in incidents)
    if not hangs:
        return []
    now_s = found.seconds["stall"] / hangs
    limit_s = _rounded(max(LEAST_STALL_S, rules.STALL_GAPS * gap_s))
    share = hangs * (now_s - limit_s) / found.counted_s
    return [Gain("stall", share, from_s=now_s, to_s=limit_s)] if limit_s < now_s else []


def _by_cause(goodput: Goodput, incidents: Sequence[Incident]) -> list[Gain]:
    """The cost of each task's losses: the time that was not kept from a loss until the training continued."""
    costs: dict[TaskId, float] = {}
    counts: dict[TaskId, int] = {}
    for number, one in enumerate(incidents):
        begin_s = one["noticed"] - goodput.since
        until_s = incidents[number + 1]["noticed"] - goodput.since if number + 1 < len(incidents) else math.inf
        task = TaskId.parse(one["task"])
        costs[task] = costs.get(task, 0.0) + _not_kept(goodput.spans, begin_s, until_s)
        counts[task] = counts.get(task, 0) + 1
    return [Gain("losses", cost / goodput.counted_s, task=task, count=counts[task]) for task, cost in costs.items()]


def _not_kept(spans: Sequence[Span], begin_s: float, until_s: float) -> float:
    """The seconds lost: from the span that the loss has begun, or that began with a hang, to the next kept one."""
    cost = 0.0
    for one in spans:
        if one.end_s < begin_s - 1.0 or one.begin_s >= until_s:
            continue
        if one.what == "kept":
            if cost and one.begin_s > begin_s:
                return cost
            continue
        cost += one.seconds if one.what in ("stall", "away") else min(one.end_s, until_s) - max(one.begin_s, begin_s)
    return cost


def _rounded(seconds: float) -> float:
    return float(next((one for one in INTERVALS_S if one >= seconds), INTERVALS_S[-1]))
