"""Tables, and the templates, the runs and the findings of `dtctl gc` that are shown in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from dtctl.render.terminal import console
from dtctl.render.terminal.safe import one_line
from dtctl.render.words import count, fold, local_time, size

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dtctl.agent.records import answers
    from dtctl.operations.gc import GcResult, Written
    from dtctl.operations.runs import KnownRun


_NUMBERS = (
    *("FOR", "RESTARTS", "PID", "STEP", "AGE", "SIZE", "SHARDS", "FREED"),
    *("LAST", "MIN", "MAX", "POINTS", "RATE", "LOSS", "OUTPUT", "CPU", "MEMORY"),
)
_WRAPPED = ("NOTE", "TASKS", "FOUND")


def show_templates(found: Mapping[str, str]) -> None:
    """Name -> when to choose it."""
    grid = table("TEMPLATE", "NOTE")
    for name, about in found.items():
        grid.add_row(name, about)
    print_table(grid)


def show_runs(runs: Sequence[KnownRun]) -> None:
    """A terminal that is too narrow gets fewer columns; the result is always among them."""
    cells: dict[str, list[str | Text]] = {
        "RUN": [run.run for run in runs],
        "RESULT": [_result(run) for run in runs],
        "STARTED": [local_time(run.created) for run in runs],
        "HOSTS": [fold(run.hosts) for run in runs],
        "TASKS": [_tasks(run) for run in runs],
    }
    names = list(cells)
    while True:
        grid = table(*names)
        for row in zip(*(cells[name] for name in names), strict=True):
            grid.add_row(*row)
        if len(names) == 2 or fits(grid):
            break
        names.remove("STARTED" if "STARTED" in names else names[-1])  # it stands in the run's name, too
    print_table(grid)


def run_result(run: KnownRun) -> str:
    """`ended`, or `live`, where nobody has told more."""
    if run.verdict is None:
        return "live" if run.live else "ended"
    return run.verdict.outcome.value


def _result(run: KnownRun) -> Text:
    """What still runs on a host after the end is said as well."""
    from dtctl.render.status import OUTCOME_STYLE

    going_on = run.live and run.verdict is not None and run.verdict.outcome.decided
    style = OUTCOME_STYLE.get(run.verdict.outcome, "") if run.verdict else ""
    return styled(run_result(run) + (", live" if going_on else ""), style)


def _tasks(run: KnownRun) -> str:
    states: dict[str, int] = {}
    for state in run.tasks.values():
        states[state.value] = states.get(state.value, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in states.items())


def fits(grid: Table) -> bool:
    """Whether no line has to be folded; a pipe takes any."""
    from rich.measure import Measurement

    out = console.out()
    return not out.is_terminal or Measurement.get(out, out.options.update(max_width=10_000), grid).minimum <= out.width


def print_table(grid: Table) -> None:
    """No column is cut: a terminal that is too narrow wraps the lines, and a pipe has no width."""
    from rich.measure import Measurement

    out = console.out()
    needed = Measurement.get(out, out.options.update(max_width=10_000), grid)
    width = max(out.width, needed.minimum) if out.is_terminal else needed.maximum
    console.out(width).print(grid)


def table(*columns: str) -> Table:
    """An empty one without lines; some columns are known to hold numbers, or text that may be wrapped."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in _NUMBERS else "left"
        grid.add_column(name, justify=justify, overflow="fold", no_wrap=name not in _WRAPPED)
    return grid


def styled(words: str, style: str) -> Text:
    from dtctl.render.terminal.rich_console import text

    return text((words, style))


_SHOWN_COMMAND = 60


def show_remains(found: GcResult, *, dry_run: bool) -> None:
    """Hosts with nothing to remove are one line; each process is named."""
    from dtctl.operations.gc import is_nothing

    busy = {host: one for host, one in found.remains.items() if not is_nothing(one)}
    clean = [host for host in found.remains if host not in busy]
    if busy:
        grid = table("HOST", "FOUND" if dry_run else "REMOVED", "FREED")
        for host, one in busy.items():
            grid.add_row(host, _words(one), size(one["freed_bytes"]))
        print_table(grid)
        for host, one in busy.items():
            for line in _details(host, one):
                console.say(line)
    for written in found.written:
        console.say(f"{'to be removed' if dry_run else 'removed'}: {_where(written)}")
    for kept in found.kept:
        console.say(written_line(kept))
    if clean:
        console.say(f"{fold(clean)}: nothing to remove")
    if found.kept:
        console.report("dtctl gc --written    removes what trainers wrote as well")
    if busy and dry_run:
        console.report("nothing has been removed yet")


def written_line(one: Written) -> str:
    return f"kept: {_where(one)}"


def _where(one: Written) -> str:
    each = " each" if one.directories > 1 else ""
    cluster = f" of {one.cluster}" if one.cluster else ""
    what = f"{size(one.size_bytes)}{each}, with {count(one.files, 'file')} that trainers{cluster} wrote"
    return f"{what}: {one_line(one.path)} on {fold(one.hosts)}"


def _words(one: answers.GcResult) -> str:
    counts = (
        (len(one["processes"]), "process"),
        (len(one["runs"]), "run"),
        (len(one["bundles"]), "bundle"),
        (len(one["files"]), "file"),
        (len(one["written"]), "working directory"),
    )
    return ", ".join(count(number, noun) for number, noun in counts if number)


def _details(host: str, one: answers.GcResult) -> list[str]:
    lines = [
        f"{host}: process {left['pid']} of {left['run']}{outlived}: {_short(left['command'])}"
        for outlived, group in (("", one["processes"]), (" outlived SIGKILL", one["survivors"]))
        for left in group
    ]
    return lines + [f"{host}: {run['run']}: {run['reason']}, {size(run['size_bytes'])}" for run in one["runs"]]


def _short(command: str) -> str:
    return command if len(command) <= _SHOWN_COMMAND else command[:_SHOWN_COMMAND] + "..."
