"""What a reader of event files tells, in short."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import files
from dtctl.agent.rooms.metrics.reading import Reader
from dtctl.agent.rooms.metrics.records import SeriesPoints


def points(reader: Reader, tag: str = "loss") -> list[tuple[int, float]]:
    """Steps and values of one tag, in all directories."""
    return [
        (step, float(value))
        for folder in reader.series(lambda name: name == tag, 2000)
        for series in folder["series"]
        for step, value in zip(series["steps"], series["values"], strict=True)
    ]


def values(reader: Reader, tag: str = "loss") -> list[float]:
    return [value for _, value in points(reader, tag)]


def agreed(out: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Points by directory and tag; fails the test where TensorBoard's own reader finds others."""
    reader = Reader([str(out)])
    reader.refresh()
    assert reader.problems() == []
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for folder in reader.series(lambda _: True, 2000):
        own = {one["tag"]: _points_of(one) for one in folder["series"]}
        found[folder["name"]] = own
        assert repr(own) == repr(_as_tensorboard_reads(out / folder["name"]))  # in which a NaN is another
    return found


def _points_of(series: SeriesPoints) -> list[tuple[int, float]]:
    return [(step, float(value)) for step, value in zip(series["steps"], series["values"], strict=True)]


def _as_tensorboard_reads(place: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator: Any = import_module("tensorboard.backend.event_processing.event_accumulator")
    make_ndarray = import_module("tensorboard.util.tensor_util").make_ndarray
    endless = {accumulator.SCALARS: 0, accumulator.TENSORS: 0}
    events = accumulator.EventAccumulator(str(place), size_guidance=endless)
    events.Reload()
    found = {tag: [(one.step, float(one.value)) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    for tag in events.Tags()["tensors"]:
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            found[tag] = [(one.step, float(make_ndarray(one.tensor_proto))) for one in events.Tensors(tag)]
    return dict(sorted(found.items()))


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of a file is for, from now on."""
    read: list[int] = []
    genuine = files.read_at

    def noted(opened: int, offset: int, size: int) -> bytes:
        read.append(size)
        return genuine(opened, offset, size)

    monkeypatch.setattr(files, "read_at", noted)
    return read
