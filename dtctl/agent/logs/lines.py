"""Lines of a growing file, by offsets: forward in chunks, and backward from its end. Nothing is kept between calls."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress

from ..host import files, paths
from ..run.traceback import kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, List, Optional, Tuple

    from ..host.secrets import Masks

    Sample = Tuple[float, int]


CHUNK = 256 * 1024
LINE_LIMIT = 4 * 1024 * 1024
"""A line that is longer is cut: what writes it may never end it."""

_BLOCK = 64 * 1024


def forward(
    descriptor: int, offset: int, size: int, over: bool, at_returns: bool, cut_line: Callable[[bytes], int] = len
) -> Iterator[Tuple[int, bytes]]:
    """Chunks of complete lines of `[offset, size)`, with their offsets.

    An unfinished last line is included when the writing is `over`; with `at_returns` also its part up to the last
    carriage return, as of a progress bar. `cut_line` returns where a line beyond the limit may be cut.
    """
    while offset < size:
        data = os.pread(descriptor, min(CHUNK, size - offset), offset)
        cut = data.rfind(b"\n") + 1
        if not cut and data:
            data = _to_end_of_line(descriptor, offset, size, data)
            cut = data.find(b"\n") + 1
            if not cut and over and offset + len(data) == size:
                cut = len(data)
            elif not cut and len(data) >= LINE_LIMIT:
                cut = cut_line(data)
            elif not cut and at_returns:
                cut = data.rfind(b"\r") + 1
        if not cut:
            return
        yield offset, data[:cut]
        offset += cut


def _to_end_of_line(descriptor: int, offset: int, size: int, data: bytes) -> bytes:
    pieces = [data]
    length = len(data)
    while b"\n" not in pieces[-1] and length < LINE_LIMIT and offset + length < size:
        piece = os.pread(descriptor, min(CHUNK, size - offset - length, LINE_LIMIT - length), offset + length)
        if not piece:
            break  # it has become shorter
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def backward(descriptor: int, end: int) -> Iterator[Tuple[int, bytes]]:
    """The lines of `[0, end)` with their line ends and where they start, the last one first, as far back as to a line
    that is longer than the limit.
    """
    pieces: List[bytes] = []  # of a line that began before what has been read, the last one first
    length = 0
    while end > 0:
        if length >= LINE_LIMIT:
            return
        start = max(0, end - _BLOCK)
        block = os.pread(descriptor, end - start, start)
        if len(block) < end - start:
            return  # it has become shorter
        cut = len(block)
        while True:
            newline = block.rfind(b"\n", 0, cut if pieces else cut - 1)
            if newline < 0:
                pieces.append(block[:cut])
                length += cut
                break
            yield start + newline + 1, block[newline + 1 : cut] + b"".join(reversed(pieces))
            pieces, length = [], 0
            cut = newline + 1
        end = start
    if pieces:
        yield 0, b"".join(reversed(pieces))


def line_start(descriptor: int, offset: int, cut_line: Callable[[bytes], int] = len) -> int:
    """The start of the line that contains `offset`; `offset` itself if it is between two lines.

    Of a line that is longer than the limit only the last part counts.
    """
    lowest = offset - LINE_LIMIT
    while offset > 0:
        start = max(0, offset - _BLOCK)
        block = os.pread(descriptor, offset - start, start)
        if offset <= lowest:
            return start + cut_line(block)
        newline = block.rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        offset = start
    return 0


def tail_start(
    descriptor: int,
    end: int,
    lines: int,
    marks: Optional[Callable[[bytes], Optional[List[bool]]]] = None,
    cut_line: Callable[[bytes], int] = len,
) -> Tuple[int, int]:
    """The offset of the last `lines` wanted lines of `[0, end)`, and their number.

    `marks` returns for each of several lines whether it is wanted, None if none is; without it all are.
    """
    first, found = end, 0
    while end > 0 and found < lines:
        start = line_start(descriptor, max(0, end - CHUNK), cut_line)
        data = os.pread(descriptor, end - start, start)
        wanted = marks(data) if marks else None
        every = split(data) if wanted or not marks else []
        offset = start + len(data)
        for line, mark in zip(reversed(every), reversed(wanted or [True] * len(every))):
            offset -= len(line)
            if mark and found < lines:
                first, found = offset, found + 1
        if len(data) < end - start or (start and os.pread(descriptor, 1, start - 1) != b"\n"):
            break  # it has become shorter, or the line before has no end
        end = start
    return first, found


def front(descriptor: int) -> int:
    """The offset of the first complete line of a log whose front was removed, which leaves a hole."""
    try:
        start = os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return 0  # there is no data, or the file system does not report holes
    if not start:
        return 0
    newline = os.pread(descriptor, _BLOCK, start).find(b"\n")
    return start + newline + 1


def split(data: bytes) -> List[bytes]:
    """Lines with their line ends; unlike `splitlines`, only a newline ends one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


_MOST_SAMPLES = 1_000_000
"""Several weeks' worth; older lines get the time of the oldest sample."""

_REFRESH_BYTES = 1024 * 1024
_LONGEST = 64
"""Bytes of a line."""

_LAST_TIME = 1e11

SAMPLED_S = 1.0
"""The time between a line and the sample that includes it."""


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
        data = b""
        with suppress(OSError), files.opened(self._path) as times:  # if there is one
            data = os.pread(times, _REFRESH_BYTES, self._position)
        for line in split(data):
            sample = _sample(line)
            if sample is None:
                break  # half written
            self._position += len(line)
            if self._samples and sample[1] < self._samples[-1][1]:
                self._samples.clear()
            self._samples.append(sample)


def size_when(path: str, fits: Callable[[float], bool]) -> int:
    """The size of the log at the last sample whose time `fits`; 0 if there is none."""
    samples, _ = _last_samples(path, lambda sample: fits(sample[0]))
    return samples[0][1] if samples and fits(samples[0][0]) else 0


def _last_samples(path: str, enough: Callable[[Sample], bool]) -> Tuple[List[Sample], int]:
    """Samples from the first one, going backward, that is `enough`, in order; and where the file's whole lines end."""
    samples: List[Sample] = []
    position: Optional[int] = None
    with suppress(OSError), files.opened(path) as descriptor:
        for start, line in backward(descriptor, os.fstat(descriptor).st_size):
            sample = _sample(line)
            if sample is None:
                continue
            if position is None:
                position = start + len(line)
            if samples and sample[1] > samples[-1][1]:
                break  # of what the log held before it became shorter
            samples.append(sample)
            if enough(sample) or len(samples) >= _MOST_SAMPLES:
                break
    return samples[::-1], position or 0


def _sample(line: bytes) -> Optional[Sample]:
    """The sample in a line; None unless the line is valid: a plausible time, and a size."""
    if len(line) > _LONGEST or not line.endswith(b"\n"):
        return None
    words = line.split()
    try:
        when, size = float(words[0]), int(words[1])
    except (ValueError, IndexError):
        return None
    return (when, size) if 0 <= when < _LAST_TIME and size >= 0 else None


KEPT_BYTES = 2048
_READ_BYTES = 1 << 16
"""A cause may be followed by much output of a program that ends."""


def end_of(path: str, masks: Masks) -> str:
    """The last complete lines without secrets, at most 64 KiB; for a progress bar its last state."""
    text = paths.tail(path, _READ_BYTES).encode("utf-8", "surrogateescape")
    lines = [line.rsplit(b"\r", 1)[-1] for line in masks.hide(text).replace(b"\r\n", b"\n").rstrip().split(b"\n")]
    return b"\n".join(lines).decode("utf-8", "replace")


def last_lines(end: str) -> str:
    """The last complete lines, at most 2 KiB, of a result of `end_of`; a long traceback is without library frames."""
    return kept(end, KEPT_BYTES)
