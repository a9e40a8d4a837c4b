"""Scalars as a table, as lines, as CSV, and as curves: in dots of braille, or with letters on other terminals."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dtctl.dataclass import dataclass
from dtctl.model import grouped
from dtctl.operations.checkpoints import at
from dtctl.operations.snapshot import RunStatus
from dtctl.render import errors
from dtctl.render.format import count, duration, fold, local_time, share, size
from dtctl.render.terminal import console
from dtctl.render.terminal.console import print_table, table
from dtctl.render.terminal.safe import one_line
from dtctl.rooms.metrics.operation import Metrics, Point, Series

if TYPE_CHECKING:
    from dtctl.render.terminal.grid import Grid

STYLES = ("cyan", "yellow", "magenta", "green", "red", "blue")
_MARKS = "*+ox#@"
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=*#"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the dots of a braille character (U+2800), by row and column."""
_LEAST_WIDTH = 10


@dataclass(frozen=True)
class Curve:
    """The points of a series by their steps; values that are not finite are gaps."""

    label: str
    points: Sequence[tuple[float, float]]


Line = list[tuple[str, str]]
"""The text and style of each piece."""


def plot(
    curves: Sequence[Curve],
    width: int,
    height: int,
    *,
    log: bool = False,
    braille: bool = True,
    floor: float | None = None,
) -> list[Line]:
    """A frame with this many columns and rows in all, with the curves in it; empty if there is nothing to draw.

    `floor`: a value that the axis reaches down to, for curves on no log scale.
    """
    drawn = [[(step, _scaled(value, log=log)) for step, value in curve.points] for curve in curves]
    found = [point for points in drawn for point in points if point[1] is not None]
    if not found:
        return []
    values = [value for _, value in found if value is not None]
    low, high = min(values if floor is None else [*values, floor]), max(values)
    first, last = min(step for step, _ in found), max(step for step, _ in found)
    labels = _labels(low, high, height - 2, log=log)
    margin = max(map(len, labels.values()))
    canvas = _Canvas(max(_LEAST_WIDTH, width - margin - 3), max(2, height - 2), braille=braille)
    for number, points in enumerate(drawn):
        canvas.draw(number, points, (first, last), (low, high))
    bar, corner, dash = ("│", "└", "─") if braille else ("|", "+", "-")
    lines: list[Line] = []
    for row, pieces in enumerate(canvas.rows()):
        lines.append([(f"{labels.get(row, ''):>{margin}} {bar}", "dim"), *pieces])
    left, right = f"{first:g}" if first != int(first) else str(int(first)), str(int(last))
    lines.append([(" " * margin + f" {corner}" + dash * canvas.width, "dim")])
    lines.append([(" " * (margin + 2) + left + right.rjust(canvas.width - len(left)), "dim")])
    return lines


DECADES = 3
"""Positive values that span so many decades are drawn on a log scale."""


def on_log_scale(values: Iterable[float]) -> bool:
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and math.log10(max(finite)) - math.log10(min(finite)) >= DECADES


def mark(number: int) -> str:
    """The character that draws a curve without braille."""
    return _MARKS[number % len(_MARKS)]


def sparkline(values: Sequence[float], width: int, *, fine: bool = True) -> str:
    """A line of bars; a value that is not finite is a gap."""
    bars = _BARS if fine else _ASCII_BARS
    some = _some(values, width)
    finite = [value for value in some if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    heights = [share(value, low, high) if math.isfinite(value) else None for value in some]
    return "".join(" " if height is None else bars[min(len(bars) - 1, int(height * len(bars)))] for height in heights)


def _some(values: Sequence[float], most: int) -> Sequence[float]:
    if len(values) <= most:
        return values
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def _scaled(value: float, *, log: bool) -> float | None:
    if not math.isfinite(value) or (log and value <= 0):
        return None
    return math.log10(value) if log else value


def _labels(low: float, high: float, rows: int, *, log: bool) -> dict[int, str]:
    """The labels by their rows."""
    shown = {rows - 1: low, rows // 2: high - (high / 2 - low / 2), 0: high}
    if low == high or rows < 3:
        shown = {rows - 1: low}
    return {row: f"{_unscaled(value) if log else value:.4g}" for row, value in shown.items()}


def _unscaled(exponent: float) -> float:
    try:
        return float(10**exponent)
    except OverflowError:  # the logarithm of the largest float was rounded up
        return sys.float_info.max


class _Canvas:
    """Dots in character cells: 2 by 4 of them in one of braille, one in any other."""

    def __init__(self, width: int, height: int, *, braille: bool) -> None:
        self.width = width
        self._height = height
        self._across, self._down = (2, 4) if braille else (1, 1)
        self._braille = braille
        self._cells: dict[tuple[int, int], tuple[int, int]] = {}
        """Row and column -> dots, and the last curve drawn there."""

    def draw(
        self,
        number: int,
        points: Sequence[tuple[float, float | None]],
        steps: tuple[float, float],
        values: tuple[float, float],
    ) -> None:
        before: tuple[int, int] | None = None
        for step, value in points:
            if value is None:
                before = None
                continue
            x = round(share(step, *steps) * (self.width * self._across - 1))
            y = round((1 - share(value, *values)) * (self._height * self._down - 1))
            for dot in _line(before or (x, y), (x, y)):
                self._dot(number, *dot)
            before = (x, y)

    def rows(self) -> Iterator[Line]:
        for row in range(self._height):
            yield [self._cell(row, column) for column in range(self.width)]

    def _dot(self, number: int, x: int, y: int) -> None:
        place = y // self._down, x // self._across
        dots = self._cells.get(place, (0, 0))[0]
        self._cells[place] = dots | _DOTS[y % self._down][x % self._across], number

    def _cell(self, row: int, column: int) -> tuple[str, str]:
        if (row, column) not in self._cells:
            return " ", ""
        dots, number = self._cells[row, column]
        return (chr(0x2800 + dots) if self._braille else mark(number)), STYLES[number % len(STYLES)]


def _line(begin: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The dots from one point to the other."""
    count = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    for index in range(count + 1):
        yield (
            begin[0] + round((end[0] - begin[0]) * index / count),
            begin[1] + round((end[1] - begin[1]) * index / count),
        )


_TOP = "."
"""The name of a series whose files are in the directory itself, as TensorBoard calls it."""

CURVE_WIDTH = 16
_LOWEST, _HIGHEST = 8, 18
"""Rows of one plot."""


def show_table(metrics: Metrics) -> None:
    print_table(metrics_table(metrics.series))


def metrics_table(series: Iterable[Series]) -> Grid:
    """A table with a small curve of each series, if the terminal has room for it."""
    fine = console.can_show("▁▂▃▄▅▆▇█")
    known = [(one, one.last) for one in series if one.last is not None]
    columns = {
        "TAG": [one.tag for one, _ in known],
        **({} if all(one.name == _TOP for one, _ in known) else {"RUN": [one.name for one, _ in known]}),
        "STEP": [str(last.step) for _, last in known],
        "LAST": [number(last.value) for _, last in known],
        "MIN": [number(one.least) for one, _ in known],
        "MAX": [number(one.most) for one, _ in known],
        "POINTS": [str(one.count) for one, _ in known],
        "AGE": [duration(one.now - last.time) for one, last in known],
        "CURVE": [sparkline([point.value for point in one.points], CURVE_WIDTH, fine=fine) for one, _ in known],
        "WHERE": [at(one.host, one.directory) for one, _ in known],
    }
    return table(columns, dropped=("CURVE", "POINTS", "AGE", "MIN", "MAX"), shared=("RUN", "WHERE"))


def show_plots(found: Metrics, *, log: bool) -> None:
    """Shows one plot per tag, with a curve for each directory that has it."""
    by_tag = grouped((one.tag, one) for one in found.series)
    out = console.out()
    height = max(_LOWEST, min(_HIGHEST, (out.height - 2) // max(1, len(by_tag)) - 2)) if out.is_terminal else _HIGHEST
    for tag, several in by_tag.items():
        _show_plot(tag, several, min(out.width, 160), height, log=log)


def _show_plot(tag: str, several: Sequence[Series], width: int, height: int, *, log: bool) -> None:
    from dtctl.render.terminal.rich_console import text

    out = console.out()
    braille = console.can_show("⠁⣿│└─") and (len(several) == 1 or console.colored())
    labels = names(several)
    curves = [
        Curve(label, [(point.step, point.value) for point in each.points])
        for label, each in zip(labels, several, strict=True)
    ]
    pieces: list[tuple[str, str]] = []
    for index, each in enumerate(several):
        last = each.last
        name = "" if labels[index] == _TOP else f"{labels[index]} "
        value = f"{number(last.value)} at step {last.step}" if last else ""
        shown = f"  {'' if braille else mark(index) + ' '}{name}{value}"
        pieces.append((shown, STYLES[index % len(STYLES)]))
    log = log or on_log_scale(value for curve in curves for _, value in curve.points)
    out.print(text((tag, "bold"), *pieces, ("  log scale", "dim") if log else ""))
    lines = plot(curves, width, height, log=log, braille=braille)
    for line in lines:
        drawn = text(*line)
        drawn.rstrip()
        out.print(drawn)
    if not lines:
        out.print("  nothing to draw")
    for index, each in enumerate(several):
        for words in _gaps(each, log=log):
            out.print(text((f"  {labels[index]}: {words}", "yellow")))


def names(several: Sequence[Series]) -> list[str]:
    """The shortest names by which the series of one tag differ."""
    for name in (lambda one: one.name, lambda one: f"{one.host} {one.name}", lambda one: at(one.host, one.directory)):
        found = [name(one) for one in several]
        if len(set(found)) == len(found):
            return found
    return [f"{at(one.host, one.directory)}/{one.name}" for one in several]


def _gaps(series: Series, *, log: bool) -> Iterable[str]:
    unfit = [point for point in series.points if not math.isfinite(point.value)]
    if unfit:
        yield f"{number(unfit[0].value)} at step {unfit[0].step}, and {count(len(unfit), 'such point')} in all"
    if log and any(math.isfinite(point.value) and point.value <= 0 for point in series.points):
        yield "values of 0 and below are left out on a log scale"


def line_of(series: Series, point: Point) -> str:
    return f"{local_time(point.time, '%H:%M:%S')} {series.name} {series.tag} step {point.step} {number(point.value)}"


def put_csv_head() -> None:
    console.put("step,time,tag,run,value\n")


def put_csv(series: Series, point: Point) -> None:
    console.put(csv_line(series, point))


def say_point(series: Series, point: Point) -> None:
    console.say(line_of(series, point))


def csv_line(series: Series, point: Point) -> str:
    """A line of RFC 4180, except for the line end."""
    written = io.StringIO()
    row = (point.step, repr(point.time), _plain(series.tag), _plain(series.name), repr(point.value))
    csv.writer(written, lineterminator="\n").writerow(row)
    return written.getvalue()


def _plain(text: str) -> str:
    """The text made safe: a name from a host may contain control characters, or be a formula."""

    safe = one_line(text)
    return f"'{safe}" if safe[:1] in ("=", "+", "-", "@") else safe


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def show_rest(metrics: Metrics) -> None:
    """Shows on stderr which files were not read."""
    for host, answer in metrics.answers.items():
        for problem in answer["problems"]:
            errors.show_warning(f"{at(host, problem['path'])}: {problem['problem']}")
    for host, answer in metrics.answers.items():
        if answer["unread_bytes"] >= 1 << 16:  # less is a record that is being written
            errors.note(f"{host} has read for as long as it may: {size(answer['unread_bytes'])} are left")
        if answer["omitted"]:
            errors.note(f"{host} has more tags than it keeps: {count(answer['omitted'], 'value')} left out")
    if metrics.without_run:
        errors.note(f"no run on {fold(metrics.without_run)}")


def show_log_metrics(metrics: Metrics, status: RunStatus | None, *, table_too: bool) -> None:
    """Shows steps and losses from the logs, for a run without event files."""
    errors.note(f"no event files below {_places(metrics)}")
    reporting = [task for task in status.tasks.values() if task.entry["step"] is not None] if status else []
    if reporting and table_too:
        columns = {
            "TASK": [str(task.id) for task in reporting],
            "STEP": [str(task.entry["step"]) for task in reporting],
            "RATE": ["" if (rate := task.entry["rate"]) is None else f"{rate:.3g}/s" for task in reporting],
            "LOSS": [task.entry["loss"] or "" for task in reporting],
        }
        print_table(table(columns))
    errors.note(
        "a trainer writes some with any of",
        "TF2      tf.summary.create_file_writer(DIR), then tf.summary.scalar(TAG, VALUE, step=STEP)",
        "Keras    callbacks=[tf.keras.callbacks.TensorBoard(DIR)]",
        "TF1      tf.summary.FileWriter(DIR), or checkpoint_dir= of a MonitoredTrainingSession",
        "PyTorch  torch.utils.tensorboard.SummaryWriter(DIR)",
        "where DIR is in dirs.output, dirs.log, checkpoint.dir or the trainer's working directory",
    )


def _places(found: Metrics) -> str:
    """The directories that were read; `show_rest` has the others."""
    unread = {one["path"] for answer in found.answers.values() for one in answer["problems"]}
    places = list(dict.fromkeys(place for answer in found.answers.values() for place in answer["dirs"]))
    if places and unread >= set(places):
        return "the directories that could be read"
    return ", ".join(one for one in places if one not in unread) or "any directory: the cluster file names none"
