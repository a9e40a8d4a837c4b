"""The loss of a run as it trains, from the event files of the lead's host."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator

from dtctl.operations.client.streams import Disconnected
from dtctl.operations.metrics import Point, Series, follow_metrics
from dtctl.operations.run_record import RunRecord
from dtctl.transport.seam import Transport

TAGS = ("loss", "*/loss", "loss_*", "*_loss", "*/loss_*")
POINTS = 200
"""Of the past."""

_MOST_NAMES = 200

_OF_OTHERS = ("eval", "valid", "test")
"""What is in the names of losses that the training does not make."""

Name = tuple[str, str, str]
"""Directory, name below it, and tag."""


def follow_loss(record: RunRecord, transport: Transport) -> Generator[Series | None, None, None]:
    """The points of every loss, first those of the past; ends where there is nothing to follow. None now and then."""
    host = record.coordinator
    lead_alone = dataclasses.replace(record, hosts={host: record.route_to(host)}, others={})
    for reported in follow_metrics(lead_alone, transport, TAGS, points=POINTS):
        if isinstance(reported, Disconnected):
            if reported.final:
                return
        elif reported is None or isinstance(reported, Series):
            yield reported


class Losses:
    """All losses that were reported; `best` is the one of the training."""

    def __init__(self) -> None:
        self._points: dict[Name, list[Point]] = {}

    def add(self, series: Series) -> None:
        name = (series.directory, series.name, series.tag)
        if name not in self._points and len(self._points) >= _MOST_NAMES:
            return
        points = self._points.setdefault(name, [])
        points.extend(series.points)
        if len(points) > 4 * POINTS:  # a curve has no room for more
            points[:] = [*points[:-1:2], points[-1]]

    def best(self) -> list[Point]:
        """Empty where there is none."""
        if not self._points:
            return []
        return self._points[min(self._points, key=_rank)]


def _rank(name: Name) -> tuple[bool, bool, int, Name]:
    _, run, tag = name
    of_others = any(word in part.lower() for part in (run, tag) for word in _OF_OTHERS)
    return of_others, tag != "loss", len(tag), name
