"""When the lines of a log were written, by the samples of its size in the file `times` (see supervise/samples.py)."""

from __future__ import annotations

import os
from collections import deque

from ..host import files
from .lines import backward, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, List, Optional, Tuple

    Sample = Tuple[float, int]

_MOST_SAMPLES = 1_000_000
"""Several weeks' worth; older lines get the time of the oldest sample."""

_REFRESH_BYTES = 1024 * 1024
_LONGEST = 64
"""Bytes of a line."""

_LAST_TIME = 1e11

_SAMPLED_S = 1.0
"""Between a line and the sample that has it."""


class Times:
    """The samples of one attempt from an offset of its log on; a log that became shorter has only the later ones."""

    def __init__(self, path: str, offset: int) -> None:
        self._path = path
        samples, self._position = _last_samples(path, lambda sample: sample[1] <= offset)
        self._samples = deque(samples)

    def pieces(self, offset: int, data: bytes, last_write: float) -> Iterator[Tuple[int, bytes, float]]:
        """`data`, which is whole lines, cut where the time changes: offset, lines, time.

        What no sample covers yet was written just now, by the log's own time stamp. Offsets may only grow.
        """
        self._refresh()
        while self._samples and self._samples[0][1] <= offset:
            self._samples.popleft()
        start = 0
        for when, size in self._samples:
            cut = len(data) if size >= offset + len(data) else data.rfind(b"\n", start, max(start, size - offset)) + 1
            if cut > start:
                yield offset + start, data[start:cut], when
                start = cut
            if start == len(data):
                return
        yield offset + start, data[start:], last_write

    def _refresh(self) -> None:
        try:
            opened = files.descriptor(self._path)
        except OSError:
            return  # nothing was sampled yet, or something else is there
        try:
            data = os.pread(opened, _REFRESH_BYTES, self._position)
        finally:
            os.close(opened)
        for line in split(data):
            sample = _parse(line)
            if sample is None:
                break  # half written
            self._position += len(line)
            if self._samples and sample[1] < self._samples[-1][1]:
                self._samples.clear()
            self._samples.append(sample)


def offset_at(path: str, since: float) -> int:
    """The size that the log had before `since`, as far as the samples tell."""
    samples, _ = _last_samples(path, lambda sample: sample[0] < since)
    return samples[0][1] if samples and samples[0][0] < since else 0


def offset_until(path: str, until: float) -> int:
    """The size that the log had at `until`, as far as the samples tell; the supervisor takes one a second."""
    samples, _ = _last_samples(path, lambda sample: sample[0] <= until + _SAMPLED_S)
    return samples[0][1] if samples and samples[0][0] <= until + _SAMPLED_S else 0


def _last_samples(path: str, enough: Callable[[Sample], bool]) -> Tuple[List[Sample], int]:
    """Samples from the first one, going backward, that is `enough`, in order; and where the file's whole lines end."""
    samples: List[Sample] = []
    position: Optional[int] = None
    try:
        descriptor = files.descriptor(path)
    except OSError:
        return [], 0
    try:
        for start, line in backward(descriptor, os.fstat(descriptor).st_size):
            sample = _parse(line)
            if sample is None:
                continue
            if position is None:
                position = start + len(line)
            if samples and sample[1] > samples[-1][1]:
                break  # of what the log held before it became shorter
            samples.append(sample)
            if enough(sample) or len(samples) >= _MOST_SAMPLES:
                break
    finally:
        os.close(descriptor)
    return samples[::-1], position or 0


def _parse(line: bytes) -> Optional[Sample]:
    """None unless the line is one of ours: a plausible time, and a size."""
    if len(line) > _LONGEST or not line.endswith(b"\n"):
        return None
    words = line.split()
    try:
        when, size = float(words[0]), int(words[1])
    except (ValueError, IndexError):
        return None
    return (when, size) if 0 <= when < _LAST_TIME and size >= 0 else None
