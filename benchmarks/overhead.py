"""Whether a trainer that dtctl started is as fast as one that was started by hand."""

from __future__ import annotations

import functools
import importlib.util
import statistics
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import DTCTL, CannotRun, client_environment, heading, measure, show
from tests.training.by_hand import cluster_by_hand
from tests.training.nursery import Nursery, nursery

ROUNDS = 5
STEPS = 4000
WARM_UP_STEPS = 1000
"""Until every worker is at work."""


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("sklearn") is None:
        raise CannotRun("no tensorflow and scikit-learn")
    speeds: dict[str, list[float]] = {"by hand": [], "by dtctl": []}
    with tempfile.TemporaryDirectory() as directory, nursery() as trainers:
        for number in range(rounds):
            speeds["by hand"].append(_by_hand(trainers, Path(directory, f"hand-{number}")))
            speeds["by dtctl"].append(_by_dtctl(Path(directory, f"dtctl-{number}")))
    heading("overhead", f"2 ps and 2 workers of the first trainer, medians of {rounds} alternating runs")
    for how, some in speeds.items():
        # Neighbours in time are compared with each other, for the machine's own speed drifts.
        ratio = statistics.median(one / by_hand for one, by_hand in zip(some, speeds["by hand"], strict=True))
        spread = f"{min(some):.0f} to {max(some):.0f}"
        show(f"started {how}, {spread}", f"{statistics.median(some):.0f} steps/s", ratio, "by hand", "0.98")


def _by_hand(trainers: Nursery, directory: Path) -> float:
    # The same flags as in the template's cluster.yaml.
    with cluster_by_hand(trainers, directory, f"--train_steps={STEPS}", "--save_secs=10", ps=2, workers=2) as tasks:
        for worker in ("worker:0", "worker:1"):
            if tasks[worker].wait():
                raise RuntimeError(tasks[worker].printed())
    return steps_per_s(tasks["worker:0"].directory / "output")


def _by_dtctl(directory: Path) -> float:
    project, output = directory / "project", directory / "output"
    project.mkdir(parents=True)
    settings = [f"--set=dirs.output={output}", f"--set=trainer.args.train_steps={STEPS}"]
    dtctl = functools.partial(measure, cwd=project, env=client_environment(directory))
    try:
        dtctl([*DTCTL, "init"])
        dtctl([*DTCTL, "up", "-q", "--local", *settings])
        dtctl([*DTCTL, "wait"])
    finally:
        dtctl([*DTCTL, "down", "-y"])
    return steps_per_s(output)


def steps_per_s(directory: Path) -> float:
    """By the times of the summaries that the chief has written."""
    (events,) = directory.glob("events.out.tfevents.*")
    seen = [(step, when) for step, when in read_steps(events) if step >= WARM_UP_STEPS]
    (first, begin), (last, end) = seen[0], seen[-1]
    return (last - first) / (end - begin)


def read_steps(events: Path) -> Iterator[tuple[int, float]]:
    """(step, epoch seconds) of each event.

    A record is the event's length (8 bytes), a checksum (4), the event, and a checksum (4), as written by
    tensorflow/core/lib/io/record_writer.cc; of the event (tensorflow/core/util/event.proto) field 1, a double, is the
    time and field 2, a varint, the step.
    """
    data, at = events.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12 : at + 12 + length]
        at += length + 16
        if event[0] == 0x09 and event[9] == 0x10:
            (when,) = struct.unpack_from("<d", event, 1)
            yield _varint(event, 10), when


def _varint(data: bytes, at: int) -> int:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value
        at, shift = at + 1, shift + 7
