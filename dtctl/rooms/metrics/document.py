"""The machine form of the scalars of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dtctl.operations.snapshot import RunStatus
from dtctl.render.machine import document
from dtctl.render.machine.document import picked
from dtctl.rooms.metrics.operation import Metrics, Point, Series


def metrics(found: Metrics, status: RunStatus | None) -> dict[str, Any]:
    """The metrics. `tasks`: from the logs, if there is no event file."""
    reporting = [task for task in status.tasks.values() if task.entry["step"] is not None] if status else []
    return {
        "run": found.run,
        "series": [_series(one) for one in found.series],
        "tasks": [{**picked(task, "id=task"), **picked(task.entry, "step rate loss")} for task in reporting],
        "lookedIn": {host: answer["dirs"] for host, answer in found.answers.items()},
        "notRead": [
            {"host": host, **picked(problem, "path problem")}
            for host, answer in found.answers.items()
            for problem in answer["problems"]
        ],
        "unreadBytes": {host: one["unread_bytes"] for host, one in found.answers.items() if one["unread_bytes"]},
        "valuesLeftOut": {host: one["omitted"] for host, one in found.answers.items() if one["omitted"]},
        "errors": document.errors(found.errors),
    }


def _series(one: Series) -> Mapping[str, Any]:
    last = one.last
    return {
        **picked(one, "tag name=run host directory count least=min most=max"),
        "last": point(last) if last else None,
        "points": [point(each) for each in one.points],
    }


def line(series: Series, each: Point) -> dict[str, Any]:
    """One point with its series."""
    return {**picked(series, "tag name=run host"), **point(each)}


def point(one: Point) -> dict[str, Any]:
    """A point. A value that is not finite is a text: `nan`, `inf` or `-inf`."""
    value: float | str = one.value if math.isfinite(one.value) else repr(one.value)
    return {**picked(one, "step time@"), "value": value}
