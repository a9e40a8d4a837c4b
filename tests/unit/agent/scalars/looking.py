"""What a reader of event files tells, in short."""

from __future__ import annotations

from dtctl.agent.scalars.reading import Reader


def points(reader: Reader, tag: str = "loss") -> list[tuple[int, float]]:
    """Steps and values of one tag, in all directories."""
    return [
        (step, float(value))
        for folder in reader.told(lambda name: name == tag, 2000)
        for series in folder["series"]
        for step, value in zip(series["steps"], series["values"], strict=True)
    ]


def values(reader: Reader, tag: str = "loss") -> list[float]:
    return [value for _, value in points(reader, tag)]
