"""Scalars for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtctl.render.machine import document

if TYPE_CHECKING:
    from dtctl.operations.metrics import Metrics, Point, Series
    from dtctl.operations.status import RunStatus


def metrics(found: Metrics, status: RunStatus | None) -> dict[str, Any]:
    """`tasks`: what logs tell, where there is no event file."""
    telling = [task for task in status.tasks.values() if task.step is not None] if status else []
    return {
        "run": found.run,
        "series": [_series(one) for one in found.series],
        "tasks": [document.picked(task, "id=task step rate loss") for task in telling],
        **document.picked(found, "looked_in"),
        "notRead": [document.picked(one, "host path problem") for one in found.unread],
        **document.picked(found, "unread_bytes omitted=valuesLeftOut"),
        "errors": document.errors(found.errors),
    }


def _series(one: Series) -> Mapping[str, Any]:
    last = one.last
    return {
        **document.picked(one, "tag name=run host directory count least=min most=max"),
        "last": point(last) if last else None,
        "points": [point(each) for each in one.points],
    }


def line(series: Series, each: Point) -> dict[str, Any]:
    """One point by itself."""
    return {**document.picked(series, "tag name=run host"), **point(each)}


def point(one: Point) -> dict[str, Any]:
    """A value that is no number is told as text: `nan`, `inf` or `-inf`."""
    value: float | str = one.value if math.isfinite(one.value) else repr(one.value)
    return {**document.picked(one, "step time@"), "value": value}
