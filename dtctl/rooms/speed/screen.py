"""Why a run is not faster, as people read it: the verdict with its evidence, what to change, and the figures."""

from __future__ import annotations

from dtctl.render.format import size
from dtctl.render.terminal import console
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.figures_screen import percent, rate_of
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.telling_screen import growth_lines, told, without_verdict

MOST_MATRIX = 10
"""The most tasks whose traffic is shown as a matrix; of larger runs the largest flows are listed."""
MOST_FLOWS = 20

NOT_MEASURED = (
    "nothing was measured yet: dtctl measures every 10 s from 10 s after the start on, and judges whole minutes"
)


def show_speed(speed: Speed) -> None:
    if speed.facts is None:
        console.say(NOT_MEASURED)
        return
    for line in lines_of(speed):
        console.out().prose(line)
    if speed.judged:
        _show_table(speed.facts)
    _show_traffic(speed.facts)


def lines_of(speed: Speed) -> list[str]:
    """The verdicts, and what more tasks would bring."""
    lines: list[str] = []
    for one in told(speed):
        lines += [one.head, *(f"  {line}" for line in one.evidence), f"what to change: {one.remedy}"]
        lines += [f"  expected: {one.expected}"] * bool(one.expected) + [""]
    if not lines:
        head, *more = without_verdict(speed)
        lines = [head, *(f"  {line}" for line in more), ""]
    grown = growth_lines(speed)
    return [*lines, *grown, ""] if grown else lines


def _show_table(facts: Facts) -> None:
    tasks = [*facts.servers, *facts.workers]
    rates = [facts.uses[task]["rate"] for task in tasks]
    console.print_table(
        console.table(
            {
                "TASK": tasks,
                "HOST": [facts.places[task] for task in tasks],
                "RATE": ["-" if rate is None else f"{rate:.3g}/s" for rate in rates],
                "CPU": [f"{facts.cpu(task):.2f}" for task in tasks],
                "BUSIEST THREAD": [percent(facts.thread(task)) for task in tasks],
                "NO CPU": [percent(facts.waits(task)) for task in tasks],
                "SENDS": [rate_of(_side(facts, task, 0)) for task in tasks],
                "RECEIVES": [rate_of(_side(facts, task, 1)) for task in tasks],
            },
            dropped=("NO CPU", "RATE"),
        )
    )


def _side(facts: Facts, task: str, end: int) -> float:
    return sum(carried for pair, carried in facts.matrix.items() if pair[end] == task)


def _show_traffic(facts: Facts) -> None:
    refused = [host for host, sample in facts.hosts.items() if sample["traffic"] != "measured"]
    if refused:
        console.say("")
        console.say(
            f"the kernel does not report the connections on {', '.join(refused[:6])}: only their interfaces count"
        )
    tasks = sorted({task for pair in facts.matrix for task in pair if task in facts.uses}, key=[*facts.uses].index)
    tasks = [task for task in [*facts.servers, *facts.workers] if task in tasks]
    if not tasks:
        return
    console.say("")
    if len(tasks) <= MOST_MATRIX:
        console.say("bytes a second, from the task of the row to that of the column:")
        cells = {task: [_cell(facts.matrix.get((one, task))) for one in tasks] for task in tasks}
        console.print_table(console.table({"FROM": tasks, **cells}))
        return
    pairs = sorted(facts.matrix.items(), key=lambda one: -one[1])[:MOST_FLOWS]
    columns = {
        "FROM": [pair[0] for pair, _ in pairs],
        "TO": [pair[1] for pair, _ in pairs],
        "CARRIES": [rate_of(carried) for _, carried in pairs],
    }
    console.print_table(console.table(columns))


def _cell(carried: float | None) -> str:
    return "-" if carried is None else size(carried)
