"""Writes the results of a benchmark into a page of docs, between two marks; people write the rest of the page."""

from __future__ import annotations

import os
import platform
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.contest import Options, Report, Standings
from benchmarks.peers.doing import Contender, Environment
from benchmarks.peers.gauge import Taken
from tests.nightly.running import commit
from tests.tables import replace_part

HEAD = ("", "time", "CPU of the client", "memory of the client", "CPU of all", "how")


@dataclass(frozen=True)
class Measure:
    name: str
    of: Callable[[Taken], float]
    unit: str
    digits: int

    def told(self, taken: Taken) -> str:
        return f"{self.of(taken):.{self.digits}f} {self.unit}"


MEASURES = (
    Measure("time", lambda taken: taken.wall_s, "s", 2),
    Measure("CPU of the client", lambda taken: taken.client_s, "s", 2),
    Measure("memory of the client", lambda taken: taken.memory_mb, "MB", 0),
    Measure("CPU of all", lambda taken: taken.machine_s, "s", 1),
)


def table(contenders: Sequence[Contender], taken: Mapping[str, Taken]) -> str:
    """A table, the fastest first; the best value of each column is 1, with its absolute value."""
    by_name = {contender.name: contender for contender in contenders}
    best = {measure: min(map(measure.of, taken.values())) for measure in MEASURES}
    rows = [HEAD, ("---",) * len(HEAD)]
    for name in sorted(taken, key=lambda name: taken[name].wall_s):
        cells = [_cell(measure, taken[name], best[measure]) for measure in MEASURES]
        shown = f"**{name}**" if by_name[name].ours else name
        rows.append((shown, *cells, by_name[name].how))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(measure: Measure, taken: Taken, best: float) -> str:
    value = measure.of(taken)
    return f"1 ({measure.told(taken)})" if value == best else f"{_ratio(value, best):.2f}"


def _ratio(value: float, other: float) -> float:
    return value / other if other else float("inf")


@dataclass(frozen=True)
class Goal:
    """The limit for dtctl's cost as a multiple of a peer's, or of the best peer with new connections."""

    ours: str
    peer: str | None
    time: float | None = None
    client: float | None = None
    machine: float | None = None

    def line(self, contenders: Sequence[Contender], taken: Mapping[str, Taken]) -> str:
        """``- `dtctl` against paramiko: time 1.49 (goal 1.3)``"""
        new = [one.name for one in contenders if not (one.ours or one.kept)]
        peers = [taken[name] for name in ([self.peer] if self.peer else new) if name in taken]
        if not peers:
            return ""
        goals = dict(
            zip(("time", "CPU of the client", "CPU of all"), (self.time, self.client, self.machine), strict=True)
        )
        reached = [
            f"{measure.name} {_ratio(measure.of(taken[self.ours]), min(map(measure.of, peers))):.2f} (goal {goal:g})"
            for measure in MEASURES
            if (goal := goals.get(measure.name)) is not None
        ]
        return f"- `{self.ours}` against {self.peer or 'the best with new connections'}: {', '.join(reached)}."


def section(
    title: str, contenders: Sequence[Contender], standings: Standings, step: str, goals: Sequence[Goal] = ()
) -> str:
    taken = standings.medians(step)
    lines = [line for goal in goals if (line := goal.line(contenders, taken))]
    aims = ["", "Goals:", "", *lines] if lines else []
    return "\n".join([f"### {title}", "", table(contenders, taken), *aims])


def left_out(standings: Sequence[Standings]) -> str:
    reasons: dict[str, str] = {}
    for one in standings:
        reasons |= one.left_out
    listed = "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items()))
    return f"Excluded: {listed}." if listed else "No tool was excluded."


WIDTH = 100
"""The width of the page, except its tables."""


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by `make bench` -->", f"<!-- end of {name} -->"


@dataclass(frozen=True)
class Circumstances:
    """The circumstances of the measurement, as they are before it begins."""

    commit: str
    load: float

    @staticmethod
    def now() -> Circumstances:
        return Circumstances(commit(), os.getloadavg()[0])


def text(report: Report, options: Options, environment: Environment, begin: Circumstances) -> str:
    """The results in Markdown."""
    most = max(len(some) - 1 for one in report.standings for some in one.taken.values())
    rounds = f"medians of {most} rounds" if most > 1 else "one round"
    head = (
        f"{measured(begin)}: {report.hosts} hosts, {options.width} at once, {rounds}; "
        f"{machine(begin, environment)}. {left_out(report.standings)}"
    )
    return "\n\n".join([head, *report.sections])


def measured(begin: Circumstances) -> str:
    return f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())} at commit {begin.commit}"


def machine(begin: Circumstances, environment: Environment) -> str:
    """The system, its load, and the versions of all programs that take part."""
    versions = ", ".join([f"Python {platform.python_version()}", *environment.versions()])
    return f"{_system()}, {os.cpu_count()} cores, a load of {begin.load:.1f} before; {versions}"


def write(file: Path, name: str, text: str) -> None:
    begin, end = marks(name)
    replace_part(file, begin, end, "\n".join(map(_folded, text.splitlines())))


def _folded(line: str) -> str:
    if line.startswith(("|", "#")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()
