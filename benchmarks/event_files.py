"""What a look at large event files costs, and the next one, when a little has been added."""

from __future__ import annotations

import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import heading, show
from dtctl.agent.metrics.reading import Reader
from tests.event_files import event, piece, record, scalar, summary

SCALARS = 100_000
IMAGE_BYTES = 1 << 20
TOTAL_BYTES = 1 << 30
ADDED = 100
MOST_POINTS = 1000


@dataclass(frozen=True)
class Look:
    read_bytes: int
    cpu_s: float
    points: int


def run(rounds: int | None = None) -> None:
    with tempfile.TemporaryDirectory() as name:
        output, kept = Path(name, "output"), Path(name, "kept")
        output.mkdir()
        kept.mkdir()
        events = output / "events.out.tfevents.1700000000.host"
        size = _write(events)
        first = _look(output, kept)
        again = _look(output, kept)
        with events.open("ab") as file:
            file.write(b"".join(scalar(SCALARS + at, "loss", 0.5) for at in range(ADDED)))
        added = events.stat().st_size - size
        new = _look(output, kept)
    heading("events", f"an event file of {size / 1e9:.2f} GB, {SCALARS} scalars and images, each look by a new reader")
    show("first look", f"{first.read_bytes / 1e6:.1f} MB read", first.read_bytes / size, "the file")
    show("", f"{first.cpu_s:.2f} s CPU")
    for what, one in (("second look, nothing new", again), (f"third look, {added / 1000:.1f} kB new", new)):
        show(
            what, f"{one.read_bytes / 1000:.1f} kB read", one.read_bytes / first.read_bytes, "the first look's", "0.01"
        )
        show("", f"{one.cpu_s:.3f} s CPU", one.cpu_s / first.cpu_s, "the first look's", "0.01")
    if new.points < first.points:
        raise RuntimeError("the third look has told less than the first")


def _write(events: Path) -> int:
    image = record(event(0, summary(piece(1, b"image") + piece(4, b"\0" * IMAGE_BYTES)), wall=1.7e9))
    with events.open("wb") as file:
        size = 0
        step = 0
        while size < TOTAL_BYTES:
            size += file.write(image)
            for _ in range(SCALARS * IMAGE_BYTES // TOTAL_BYTES):
                size += file.write(scalar(step, "loss", 1.0 / (1 + step), wall=1.7e9 + step))
                step += 1
    return size


def _look(output: Path, kept: Path) -> Look:
    """As one `dtctl metrics` does it on a host."""
    reads, began = _read_bytes(), _cpu_s()
    reader = Reader([str(output)], str(kept))
    reader.look_until_all_is_read(600.0)
    reader.keep()
    told = reader.series(lambda _: True, MOST_POINTS)
    points = sum(len(series["steps"]) for folder in told for series in folder["series"])
    return Look(_read_bytes() - reads, _cpu_s() - began, points)


def _read_bytes() -> int:
    """What this process has read, whatever it was of: /proc/self/io."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"])


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
