"""Scalars as a table, as curves, as lines, and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dtctl.operations.metrics import Metrics, Point, Series
from dtctl.operations.status import RunStatus
from dtctl.render import errors
from dtctl.render.metrics.plot import STYLES, Curve, mark, plot, sparkline
from dtctl.render.tables import print_table, table
from dtctl.render.terminal import console
from dtctl.render.words import count, duration, fold, local_time, size

if TYPE_CHECKING:
    from rich.table import Table

CURVE_WIDTH = 16
_LOWEST, _HIGHEST = 8, 18
"""Rows of one plot."""


def show_table(found: Metrics) -> None:
    """With a small curve of each, where the terminal has room for it."""
    from rich.measure import Measurement

    out = console.out()
    grid = _table(found, curves=True)
    if out.is_terminal:
        needed = Measurement.get(out, out.options.update(max_width=10_000), grid).maximum
        grid = grid if needed <= out.width else _table(found, curves=False)
    print_table(grid)


def _table(found: Metrics, *, curves: bool) -> Table:
    columns = ("TAG", "RUN", "STEP", "LAST", "MIN", "MAX", "POINTS", "AGE", *(("CURVE",) if curves else ()), "WHERE")
    grid = table(*columns)
    fine = console.can_show("▁▂▃▄▅▆▇█")
    for one in found.series:
        last = one.last
        if last is not None:
            numbers = (number(last.value), number(one.least), number(one.most), str(one.count))
            curve = sparkline([point.value for point in one.points], CURVE_WIDTH, fine=fine)
            grid.add_row(
                one.tag,
                one.name,
                str(last.step),
                *numbers,
                duration(one.now - last.time),
                *((curve,) if curves else ()),
                f"{one.host}:{one.directory}",
            )
    return grid


def show_plots(found: Metrics, *, log: bool) -> None:
    """One plot a tag, with a curve for each directory that has it."""
    by_tag: dict[str, list[Series]] = {}
    for one in found.series:
        by_tag.setdefault(one.tag, []).append(one)
    out = console.out()
    height = max(_LOWEST, min(_HIGHEST, (out.height - 2) // max(1, len(by_tag)) - 2)) if out.is_terminal else _HIGHEST
    for tag, several in by_tag.items():
        _show_plot(tag, several, min(out.width, 160), height, log=log)


def _show_plot(tag: str, several: Sequence[Series], width: int, height: int, *, log: bool) -> None:
    from dtctl.render.terminal.rich_console import text

    out = console.out()
    braille = console.can_show("⠁⣿│└─") and (len(several) == 1 or console.colored())
    names = _names(several)
    curves = [Curve(names[index], [(one.step, one.value) for one in each.points]) for index, each in enumerate(several)]
    pieces: list[tuple[str, str]] = []
    for index, each in enumerate(several):
        last = each.last
        shown = f"  {'' if braille else mark(index) + ' '}{names[index]} {number(last.value) if last else ''}"
        pieces.append((shown, STYLES[index % len(STYLES)]))
    out.print(text((tag, "bold"), *pieces, ("  log scale", "dim") if log else ""))
    lines = plot(curves, width, height, log=log, braille=braille)
    for line in lines:
        out.print(text(*line))
    if not lines:
        out.print("  nothing to draw")
    for index, each in enumerate(several):
        for words in _gaps(each, log=log):
            out.print(text((f"  {names[index]}: {words}", "yellow")))


def _names(several: Sequence[Series]) -> list[str]:
    """The shortest that tell them apart."""
    names = [one.name for one in several]
    return names if len(set(names)) == len(names) else [f"{one.host}:{one.directory}/{one.name}" for one in several]


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
    """RFC 4180, but for the line end."""
    written = io.StringIO()
    row = (point.step, repr(point.time), _plain(series.tag), _plain(series.name), repr(point.value))
    csv.writer(written, lineterminator="\n").writerow(row)
    return written.getvalue()


def _plain(text: str) -> str:
    """What a file of a host may be called is text of a host's, which may move the cursor, or be a formula."""
    from dtctl.render.terminal.safe import one_line

    safe = one_line(text)
    return f"'{safe}" if safe[:1] in ("=", "+", "-", "@") else safe


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def show_rest(found: Metrics) -> None:
    """What was not read, on stderr."""
    for one in found.unread:
        errors.show_warning(f"{one.host}:{one.path}: {one.problem}")
    for host, left in found.unread_bytes.items():
        if left >= 1 << 16:  # less is a record that is being written
            errors.note(f"{host} has read for as long as it may: {size(left)} are left")
    for host, omitted in found.omitted.items():
        errors.note(f"{host} has more tags than it keeps: {count(omitted, 'value')} left out")
    if found.without_run:
        errors.note(f"no run on {fold(found.without_run)}")


def show_what_logs_tell(found: Metrics, status: RunStatus | None, *, table_too: bool) -> None:
    """For a run without event files."""
    errors.note(f"no event files below {_places(found.looked_in)}")
    telling = [task for task in status.tasks.values() if task.step is not None] if status else []
    if telling and table_too:
        grid = table("TASK", "STEP", "RATE", "LOSS")
        for task in telling:
            rate = "" if task.rate is None else f"{task.rate:.3g}/s"
            grid.add_row(str(task.id), str(task.step), rate, task.loss or "")
        print_table(grid)
    errors.note(
        "a trainer writes some with any of",
        "TF2      tf.summary.create_file_writer(DIR), then tf.summary.scalar(TAG, VALUE, step=STEP)",
        "Keras    callbacks=[tf.keras.callbacks.TensorBoard(DIR)]",
        "TF1      tf.summary.FileWriter(DIR), or checkpoint_dir= of a MonitoredTrainingSession",
        "PyTorch  torch.utils.tensorboard.SummaryWriter(DIR)",
        "where DIR is in dirs.output, dirs.log, checkpoint.dir or the trainer's working directory",
    )


def _places(looked_in: Mapping[str, Sequence[str]]) -> str:
    places = list(dict.fromkeys(place for each in looked_in.values() for place in each))
    return ", ".join(places) or "any directory: the cluster file names none"
