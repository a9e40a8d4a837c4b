"""Figures of measurements as text."""

from __future__ import annotations

from collections.abc import Sequence

from dtctl.render.format import size


def named(tasks: Sequence[str]) -> str:
    """A few tasks by name."""
    some = [*tasks[:5], *([f"{len(tasks) - 5} others"] if len(tasks) > 5 else [])]
    return " and ".join(filter(None, [", ".join(some[:-1]), some[-1]]))


def number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def percent(value: object) -> str:
    return f"{100 * number(value):.0f} %"


def rate_of(value: object) -> str:
    return f"{size(number(value))}/s"


def bits(each_second: float) -> str:
    return f"{each_second / 1e9:.2f} Gbit/s" if each_second >= 1e9 else f"{each_second / 1e6:.1f} Mbit/s"
