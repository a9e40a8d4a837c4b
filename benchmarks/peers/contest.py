"""Contenders that take turns, and their results."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.peers.doing import Contender, Field
from benchmarks.peers.gauge import Gauge, Outcome, Taken
from dtctl.transport.fanout import WIDTH


class Course:
    """The actions around the steps; none of them is measured."""

    def prepare(self, contender: Contender, step: str) -> None:
        """Prepares a step."""

    def verify(self, contender: Contender, step: str, printed: str) -> str:
        """The problem with the result; empty if there is none."""
        raise NotImplementedError

    def finish(self, contender: Contender) -> None:
        """Cleans up after the last step."""


@dataclass
class Standings:
    taken: dict[tuple[str, str], list[Taken]] = field(default_factory=dict)
    """By step and name; of the first round only the memory counts."""
    left_out: dict[str, str] = field(default_factory=dict)

    def medians(self, step: str) -> dict[str, Taken]:
        return {name: _median(some) for (of, name), some in self.taken.items() if of == step}

    def shortest_s(self, step: str) -> dict[str, float]:
        """The times of the shortest rounds, which one disturbance of the machine does not decide."""
        return {name: min(one.wall_s for one in some[1:]) for (of, name), some in self.taken.items() if of == step}


def _median(some: Sequence[Taken]) -> Taken:
    """The medians of the rounds that count, with the memory of the first one, which measured it."""
    rehearsal, *rounds = some
    wall, client, machine = (
        statistics.median(column) for column in zip(*((t.wall_s, t.client_s, t.machine_s) for t in rounds), strict=True)
    )
    return Taken(wall, client, machine, rehearsal.memory_mb)


class Failed(Exception):
    """A contender has not done what it should."""


def compete(field: Field, contenders: Sequence[Contender], rounds: int, course: Course) -> Standings:
    """Runs a rehearsal, which measures the memory, and then the rounds. A peer that fails once is left out."""
    standings = Standings(left_out={one.name: one.lacks for one in contenders if one.lacks})
    for at in range(rounds + 1):
        for contender in contenders:
            if contender.name in standings.left_out:
                continue
            try:
                _take_turn(field, contender, course, standings, rehearsal=at == 0)
            except Failed as failed:
                if contender.ours:
                    raise
                standings.left_out[contender.name] = str(failed)
                standings.taken = {key: some for key, some in standings.taken.items() if key[1] != contender.name}
    return standings


def _take_turn(field: Field, contender: Contender, course: Course, standings: Standings, *, rehearsal: bool) -> None:
    gauge = Gauge(field.servers.sshd.init, field.clients(kept=contender.kept))
    try:
        for step, argv in contender.steps.items():
            course.prepare(contender, step)
            outcome = gauge.measure(argv, field.directory, contender.env, memory=rehearsal)
            taken = outcome.taken
            told = f"{taken.wall_s:7.2f} s, {taken.client_s:6.2f} s CPU, {taken.machine_s:6.2f} s CPU of the machine"
            print(f"  {contender.name:<28} {step:<12} {told}{' (rehearsal)' * rehearsal}", file=sys.stderr, flush=True)
            if wrong := _wrong(outcome) or course.verify(contender, step, outcome.printed):
                print(outcome.printed[-3000:], file=sys.stderr)
                raise Failed(f"{step}: {wrong}")
            standings.taken.setdefault((step, contender.name), []).append(taken)
    finally:
        course.finish(contender)


def _wrong(outcome: Outcome) -> str:
    return f"it ended with {outcome.code}" if outcome.code else ""


@dataclass(frozen=True)
class Options:
    rounds: int = 3
    hosts: int | None = None
    """None: the number of each benchmark."""
    width: int = WIDTH
    """The number of hosts at once; dtctl's own cannot be changed."""


@dataclass(frozen=True)
class Report:
    hosts: int
    sections: Sequence[str]
    standings: Sequence[Standings]
