"""Runs side by side as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import sentence
from dtctl.errors import clipped
from dtctl.render.checkpoints import position
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
    """The rows of the comparison, with a value for each run."""
    rows = [*_results(list(found.runs.values())), *_metrics(list(found.runs.values()))]
    differences = found.differences
    rows += [(key, [_NOTHING if value is None else value for value in values]) for key, values in differences.items()]
    return rows


def _results(runs: list[Compared]) -> Iterator[Row]:
    """The results of the runs, without those that no run has."""
    for name, shown in _RESULTS.items():
        values = [shown(one) for one in runs]
        if any(value != _NOTHING for value in values):
            yield name, values


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
    "reason": lambda one: sentence(one.status.verdict.why),
    "started": lambda one: local_time(one.status.record.created),
    "code": lambda one: revision.shown if (revision := one.status.record.revision) is not None else _NOTHING,
    "duration": lambda one: duration(one.duration_s) if one.duration_s is not None else _NOTHING,
    "steps": _step,
    "steps/s": lambda one: f"{one.steps_per_s:.3g}" if one.steps_per_s else _NOTHING,
    "goodput": lambda one: percent(one.goodput.share) if one.goodput is not None else _NOTHING,
    "restarts": lambda one: str(one.restarts),
    "checkpoint": _checkpoint,
    "loss": lambda one: one.status.progress.loss or _NOTHING,
}


def _metrics(runs: list[Compared]) -> Iterator[Row]:
    names = dict.fromkeys(name for one in runs for name in one.metrics)
    for name in names:
        yield name, [_metric(one.metrics.get(name)) for one in runs]


def _metric(metric: Metric | None) -> str:
    if metric is None:
        return _NOTHING
    best = f", best {metric.best:.4g}" if metric.best is not None and metric.best != metric.last else ""
    return f"{metric.last:.4g}{best}"
