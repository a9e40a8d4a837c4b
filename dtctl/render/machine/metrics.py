"""Scalars for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtctl.render.machine import document
from dtctl.render.words import iso_utc

if TYPE_CHECKING:
    from dtctl.operations.metrics import Metrics, Point, Series
    from dtctl.operations.status import RunStatus


def metrics(found: Metrics, status: RunStatus | None) -> dict[str, Any]:
    """`tasks`: what logs tell, where there is no event file."""
    telling = [task for task in status.tasks.values() if task.step is not None] if status else []
    return {
        "run": found.run,
        "series": [_series(one) for one in found.series],
        "tasks": [{"task": str(task.id), "step": task.step, "rate": task.rate, "loss": task.loss} for task in telling],
        "lookedIn": {host: list(places) for host, places in found.looked_in.items()},
        "notRead": [{"host": one.host, "path": one.path, "problem": one.problem} for one in found.unread],
        "unreadBytes": dict(found.unread_bytes),
        "valuesLeftOut": dict(found.omitted),
        "errors": document.errors(found.errors),
    }


def _series(one: Series) -> Mapping[str, Any]:
    last = one.last
    return {
        "tag": one.tag,
        "run": one.name,
        "host": one.host,
        "directory": one.directory,
        "count": one.count,
        "min": one.least,
        "max": one.most,
        "last": point(last) if last else None,
        "points": [point(each) for each in one.points],
    }


def line(series: Series, each: Point) -> dict[str, Any]:
    """One point by itself."""
    return {"tag": series.tag, "run": series.name, "host": series.host, **point(each)}


def point(one: Point) -> dict[str, Any]:
    """A value that is no number is told as text: `nan`, `inf` or `-inf`."""
    value: float | str = one.value if math.isfinite(one.value) else repr(one.value)
    return {"step": one.step, "time": iso_utc(one.time), "value": value}
