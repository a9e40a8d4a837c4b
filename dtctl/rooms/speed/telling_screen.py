"""What is said of the speed of a run, verdict by verdict: on a terminal, and on pages."""

from __future__ import annotations

from dtctl.dataclass import dataclass
from dtctl.render.format import duration
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.figures_screen import percent
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.verdict_screen import sentences

MOST_VERDICTS = 4
OLD_S = 120.0
"""A measurement that ended longer ago is shown with its age."""


@dataclass(frozen=True)
class Told:
    """A verdict in words."""

    head: str
    evidence: list[str]
    remedy: str
    expected: str
    """What the remedy should bring; empty if that is unknown."""


def told(speed: Speed) -> list[Told]:
    """The most expensive verdicts; empty if there are none."""
    if speed.facts is None:
        return []
    found = []
    for verdict in speed.verdicts[:MOST_VERDICTS]:
        head, evidence, remedy = sentences(verdict, speed.facts)
        of = "1" if speed.judged == 1 else f"{verdict.minutes} of the last {speed.judged}"
        when = f"measured in {of} {'minute' if speed.judged == 1 else 'minutes'}{_age(speed)}"
        expected = ""
        if verdict.expected is not None:
            expected = f"{_range(*verdict.expected)} times the steps/s{_rate(speed.facts)}"
        found.append(Told(head, [*evidence, when], remedy, expected))
    return found


def growth_lines(speed: Speed) -> list[str]:
    """What more workers or more ps tasks would bring; empty if that is unknown."""
    growth = speed.growth
    if growth is None:
        return []
    lines = [f"{one.tasks} workers: {_range(*one.gain)} times the examples/s" for one in growth.workers]
    lines += [f"{one.tasks} ps tasks, the variables spread evenly: {_range(*one.gain)} times" for one in growth.servers]
    if growth.limit is not None:
        most = _range(*growth.limit)
        lines.append(f"any number of workers: {most} times at most, because {growth.limited_by} is busy all the time")
    return ["with more tasks, each on a host of its own:", *(f"  {line}" for line in lines)] if lines else []


def without_verdict(speed: Speed) -> list[str]:
    """Why there is none, and what was measured."""
    assert speed.facts is not None
    if not speed.judged:
        measured = f"measured: less than a minute{_age(speed)}"
        return [f"no verdict: it takes a whole minute in which all tasks train ({measured})"]
    return [_nothing(speed.facts), f"measured: {speed.judged} of the last minutes{_age(speed)}"]


def _nothing(facts: Facts) -> str:
    if not facts.workers:
        return "no verdict: no task that trains was measured"
    least = min(facts.computes(task)[0] for task in facts.workers)
    most = max(facts.computes(task)[1] for task in facts.workers)
    spread = f"{percent(least)} to {percent(most)}" if round(100 * least) != round(100 * most) else percent(most)
    return f"nothing stands out: the workers compute {spread} of the time"


def _age(speed: Speed) -> str:
    is_old = speed.age_s is not None and speed.age_s > OLD_S
    return f", until {duration(speed.age_s or 0)} ago" if is_old else ""


def _range(least: float, most: float) -> str:
    return f"{least:.1f} to {most:.1f}" if f"{least:.1f}" != f"{most:.1f}" else f"{most:.1f}"


def _rate(facts: Facts) -> str:
    return "" if facts.rate is None else f" (now {facts.rate:.3g})"
