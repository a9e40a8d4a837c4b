"""Runs side by side as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dtctl.errors import clipped
from dtctl.render.checkpoints import position
from dtctl.render.failure import brief
from dtctl.render.format import duration, local_time, without_prefix
from dtctl.render.goodput import percent
from dtctl.render.terminal import console
from dtctl.render.terminal.console import print_table, table, table_fits
from dtctl.render.terminal.safe import one_line
from dtctl.rooms.pages.comparing import Between, Compared, Comparison, Metric

if TYPE_CHECKING:
    from dtctl.render.terminal.grid import Grid

_NOTHING = "-"


Row = tuple[str, list[str]]


def show_comparison(found: Comparison) -> None:
    """Shows a column for each run; on a narrow terminal their names are without the part that all have."""
    rows = comparison_rows(found)
    grid = comparison_table(rows, [one_line(run) for run in found.runs])
    if not table_fits(grid):
        shared, names = without_prefix([one_line(run) for run in found.runs])
        grid = comparison_table(rows, names)
        if shared:
            console.say(f"runs {shared}*")
    print_table(grid)
    for line in same_everywhere(found):
        console.out().prose(line)


def comparison_table(rows: list[Row], names: Sequence[str]) -> Grid:
    """A column for each of these runs; a setting is the head of its row."""
    columns = {"": [name for name, _ in rows]}
    for index, run in enumerate(names):
        columns[run] = [one_line(clipped(values[index])) for _, values in rows]
    return table(columns)


_MOST_COMMITS = 10
_MOST_LINES = 60


def show_code(code: Sequence[Between]) -> None:
    """The commits between the runs, and the files that differ."""
    for one in code:
        console.say(f"code of {one.new}, compared with {one.old}:")
        if one.added is None or one.removed is None:
            console.say("  commits between them: unknown (this repository lacks one of them)")
        for sign, commits in (("+", one.added or ()), ("-", one.removed or ())):
            for commit in commits[:_MOST_COMMITS]:
                console.say(f"  {sign} {commit}")
            if len(commits) > _MOST_COMMITS:
                console.say(f"  {sign} {len(commits) - _MOST_COMMITS} more")
        if one.files:
            more = [f"{len(one.files) - _MOST_COMMITS} more"] * (len(one.files) > _MOST_COMMITS)
            console.say(f"  files that differ: {', '.join([*one.files[:_MOST_COMMITS], *more])}")
        elif one.files is None:
            console.say("  files that differ: unknown (this machine did not start both runs, or they have very many)")
        for line in (one.difference or ())[:_MOST_LINES]:
            console.say(f"  {line}")
        if len(one.difference or ()) > _MOST_LINES:
            console.say(f"  {len(one.difference or ()) - _MOST_LINES} more lines: dtctl code RUN shows those of each")


def comparison_rows(found: Comparison) -> list[Row]:
    """The rows in which the runs differ, with a value for each run; of a run alone, all rows."""
    rows = [(name, values) for name, values in _facts(found) if len(set(values)) > 1 or len(found.runs) < _TWO]
    differences = found.differences
    rows += [(key, [_NOTHING if value is None else value for value in values]) for key, values in differences.items()]
    return rows


_TWO = 2


def same_everywhere(found: Comparison) -> list[str]:
    """A sentence on what all runs have in common, if there is anything."""
    shared = [f"{name} {values[0]}" for name, values in _facts(found) if len(set(values)) == 1 and len(values) >= _TWO]
    return [f"The same in all of them: {', '.join(shared)}."] if shared else []


def _facts(found: Comparison) -> list[Row]:
    runs = list(found.runs.values())
    return [*_results(runs), *_metrics(runs)]


def _results(runs: list[Compared]) -> Iterator[Row]:
    """The results of the runs, without those that no run has."""
    for name, shown in _RESULTS.items():
        values = [shown(one) for one in runs]
        if any(value != _NOTHING for value in values):
            yield name, values
    parts = [dict(one.parts.each()) if one.parts is not None else {} for one in runs]
    known = {name for each in parts for name, share in each.items() if share}
    for name in dict.fromkeys(name for each in parts for name in each if name in known):
        yield f"time of a step: {name}", [_part(one, each.get(name)) for one, each in zip(runs, parts, strict=True)]


def _part(one: Compared, share: float | None) -> str:
    """A part of a step, as in: 31 % (120 ms)."""
    if share is None or one.parts is None:
        return _NOTHING
    took = f" ({1000 * share * one.parts.step_s:.3g} ms)" if one.parts.step_s is not None else ""
    return f"{percent(share)}{took}"


def _step(one: Compared) -> str:
    progress = one.status.progress
    if progress.step is None:
        return _NOTHING
    return f"{progress.step}" + (f" of {progress.target}" if progress.target is not None else "")


def _checkpoint(one: Compared) -> str:
    newest = one.status.newest_complete
    return (position(newest) if newest is not None else "") or _NOTHING


_RESULTS: dict[str, Callable[[Compared], str]] = {
    "outcome": lambda one: one.status.verdict.outcome.value,
    "reason": lambda one: brief(one.status.verdict.why),
    "started": lambda one: local_time(one.status.record.created),
    "code": lambda one: revision.shown if (revision := one.status.record.revision) is not None else _NOTHING,
    "duration": lambda one: duration(one.duration_s) if one.duration_s is not None else _NOTHING,
    "steps": _step,
    "steps/s": lambda one: f"{one.steps_per_s:.3g}" if one.steps_per_s else _NOTHING,
    "goodput": lambda one: percent(one.goodput.share) if one.goodput is not None else _NOTHING,
    "restarts": lambda one: str(one.restarts),
    "checkpoint": _checkpoint,
    "loss (log)": lambda one: one.status.progress.loss or _NOTHING,
}


def _metrics(runs: list[Compared]) -> Iterator[Row]:
    names = dict.fromkeys(name for one in runs for name in one.metrics)
    for name in names:
        yield name if "(" in name else f"{name} (event files)", [_metric(one.metrics.get(name)) for one in runs]


def _metric(metric: Metric | None) -> str:
    if metric is None:
        return _NOTHING
    best = f", best {metric.best:.4g}" if metric.best is not None and metric.best != metric.last else ""
    return f"{metric.last:.4g}{best}"
