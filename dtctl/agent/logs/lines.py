"""Lines of a growing file, by offsets: forward in chunks, and backward from its end. Nothing is kept between calls."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, List, Optional, Tuple

CHUNK = 256 * 1024
LINE_LIMIT = 4 * 1024 * 1024
"""A line that is longer is cut: what writes it may never end it."""

_BLOCK = 64 * 1024


def forward(
    descriptor: int, offset: int, size: int, over: bool, at_returns: bool, cut_line: Callable[[bytes], int] = len
) -> Iterator[Tuple[int, bytes]]:
    """Chunks of whole lines of `[offset, size)` and where they start.

    An unfinished last line belongs to them when the writing is `over`; with `at_returns` also its part up to the
    last carriage return, as of a progress bar. `cut_line` says where a line beyond the limit may be cut.
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


def backward(descriptor: int, end: int, cut_line: Callable[[bytes], int] = len) -> Iterator[Tuple[int, bytes]]:
    """The lines of `[0, end)` with their line ends and where they start, the last one first.

    They end at a line that is longer than the limit; only the last part of that is given.
    """
    pieces: List[bytes] = []  # of a line that began before what has been read, the last one first
    length = 0
    while end > 0:
        if length >= LINE_LIMIT:
            start, data = _cut_before(descriptor, end, cut_line)
            yield start, data + b"".join(reversed(pieces))
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


def _cut_before(descriptor: int, end: int, cut_line: Callable[[bytes], int]) -> Tuple[int, bytes]:
    """Where a line that is too long may be cut at `end` or shortly before it, and what lies between."""
    start = max(0, end - _BLOCK)
    block = os.pread(descriptor, end - start, start)
    cut = cut_line(block)
    return start + cut, block[cut:]


def line_start(descriptor: int, offset: int, cut_line: Callable[[bytes], int] = len) -> int:
    """Where the line begins that `offset` lies in; `offset` itself when it is between two lines.

    Of a line that is longer than the limit only the last part counts.
    """
    lowest = offset - LINE_LIMIT
    while offset > 0:
        if offset <= lowest:
            return _cut_before(descriptor, offset, cut_line)[0]
        start = max(0, offset - _BLOCK)
        newline = os.pread(descriptor, offset - start, start).rfind(b"\n")
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
    """Where the last `lines` of the wanted lines of `[0, end)` begin, and how many there are.

    `marks` tells of each of several lines whether it is wanted, None if none is; without it all are.
    """
    start, found = end, 0
    if marks is not None:
        return _tail_of_wanted(descriptor, end, lines, marks, cut_line)
    if lines > 0:
        for offset, _ in backward(descriptor, end, cut_line):
            start, found = offset, found + 1
            if found == lines:
                break
    return start, found


def _tail_of_wanted(
    descriptor: int,
    end: int,
    lines: int,
    marks: Callable[[bytes], Optional[List[bool]]],
    cut_line: Callable[[bytes], int],
) -> Tuple[int, int]:
    first, found = end, 0
    while end > 0 and found < lines:
        start = line_start(descriptor, max(0, end - CHUNK), cut_line)
        data = os.pread(descriptor, end - start, start)
        wanted = marks(data) or []
        offset = start + len(data)
        for line, mark in zip(reversed(split(data) if wanted else []), reversed(wanted)):
            offset -= len(line)
            if mark and found < lines:
                first, found = offset, found + 1
        if len(data) < end - start or (start and os.pread(descriptor, 1, start - 1) != b"\n"):
            break  # it has become shorter, or the line before has no end
        end = start
    return first, found


def front(descriptor: int) -> int:
    """Where the first whole line begins of a log whose front was cut off: what is gone is a hole (cutting.py)."""
    try:
        start = os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return 0  # there is no data at all, or the file system cannot tell
    if not start:
        return 0
    newline = os.pread(descriptor, _BLOCK, start).find(b"\n")
    return start + newline + 1


def split(data: bytes) -> List[bytes]:
    """Lines with their line ends; unlike `splitlines`, only a newline ends one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
