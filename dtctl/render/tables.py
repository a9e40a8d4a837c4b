"""Tables, and the plans and runs that are shown in them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from dtctl.operations.runs import KnownRun
from dtctl.plan.marks import shown
from dtctl.plan.values import RunPlan
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import lines_of
from dtctl.render.words import count, fold, local_time

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_NUMBERS = (
    *("FOR", "RESTARTS", "PID", "STEP", "AGE", "SIZE", "SHARDS", "FREED"),
    *("LAST", "MIN", "MAX", "POINTS", "RATE", "LOSS"),
)
_WRAPPED = ("NOTE", "TASKS", "FOUND")


def show_templates(found: Mapping[str, str]) -> None:
    """Name -> when to choose it."""
    grid = table("TEMPLATE", "NOTE")
    for name, about in found.items():
        grid.add_row(name, about)
    print_table(grid)


def show_plan(plan: RunPlan) -> None:
    from dtctl.render.terminal.rich_console import text

    out = console.out()
    cluster = plan.cluster
    out.print(f"{cluster.name}: {count(len(plan.tasks), 'task')} on {fold(plan.hosts)}, lead {plan.lead}")
    out.print(f"code from {cluster.trainer.code}")
    if cluster.trainer.setup:
        first, *more = lines_of(cluster.trainer.setup)
        out.print(f"setup, once per host and content: {first}")
        for line in more:
            out.print(f"  {line}")
    for line in order_lines(plan):
        out.print(line)
    for task in plan.tasks:
        gpus = "" if task.gpus is None else f", GPU {','.join(map(str, task.gpus))}" if task.gpus else ", no GPU"
        out.print()
        out.print(text((str(task.id), "bold"), f" on {task.host}, {task.address}{gpus}"))
        for name, value in task.env.items():
            out.print(f"  {name}={shlex.quote(shown(value))}")
        for name in task.secrets:
            out.print(f"  {name}=***")
        out.print("  " + " ".join(_quoted(shown(word)) for word in task.argv))


_LOSSES = {"task": "it alone", "with-lead": "it, then the lead", "gang": "every task"}


def order_lines(plan: RunPlan) -> list[str]:
    """Who starts after whom, what a loss restarts, and who decides all that."""
    steps = [_stage_words(index, plan) for index in range(len(plan.stages))]
    tasks: dict[str, list[str]] = {}
    for task in plan.tasks:
        tasks.setdefault(task.scope, []).append(str(task.id))
    losses = [f"{fold(names)} restarts {_LOSSES[scope]}" for scope, names in tasks.items()]
    return [
        f"trains as {plan.way.value}; coordinator on {plan.coordinator.host}, {plan.coordinator.address}",
        f"starts {', '.join(steps)}",
        f"a loss of {'; of '.join(losses)}",
    ]


def _stage_words(index: int, plan: RunPlan) -> str:
    stage = plan.stages[index]
    after = [fold(map(str, plan.stages[other].tasks)) for other in stage.after]
    return fold(map(str, stage.tasks)) + (f" after {' and '.join(after)}" if after else "")


def show_runs(runs: Sequence[KnownRun]) -> None:
    grid = table("RUN", "STARTED", "STATE", "HOSTS", "TASKS")
    for run in runs:
        states: dict[str, int] = {}
        for state in run.tasks.values():
            states[state.value] = states.get(state.value, 0) + 1
        tasks = ", ".join(f"{number} {state}" for state, number in states.items())
        live = styled("live", "green") if run.live else "ended"
        grid.add_row(run.run, local_time(run.created), live, fold(run.hosts), tasks)
    print_table(grid)


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


def _quoted(word: str) -> str:
    """Quoted for reading; a ~ of the host stays as it is."""
    return word if word.startswith("~/") and shlex.quote(word[2:]) == word[2:] else shlex.quote(word)
