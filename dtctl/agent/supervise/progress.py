"""What the growth of a log shows: that the trainer lives, its step and loss, how fast it trains, what it waits for."""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress

from ..host import files
from ..records.values import MOST_REASON
from . import step_reader
from .step_reader import StepReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, Optional, Tuple

    from ..records.vitals import Complaint


MOST_BYTES = 16 * 1024
"""The most bytes read at one look; the end of what is new is read, where the newest step is."""

HEAD_BYTES = 256 * 1024
"""So much of the beginning of a log is searched for the header of a table when its reader has started again."""

RATE_OVER_S = 60.0
"""How far back a rate looks."""


class Rate:
    """Steps a second over the last minute, or between the last two that were reported where they are further apart."""

    def __init__(self) -> None:
        self._seen: Deque[Tuple[float, int]] = deque(maxlen=200)

    def update(self, now: float, step: int) -> Optional[float]:
        """With a step reported at this monotonic time. None until there are two, and after a return."""
        if self._seen and step <= self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, step))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_OVER_S:
            self._seen.popleft()
        first_at, first = self._seen[0]
        return float("%.3g" % ((step - first) / (now - first_at))) if now > first_at else None


class LogProgress:
    """Progress of one attempt by its log; only new parts are read."""

    def __init__(self, path: str, adopted: bool) -> None:
        """`adopted`: an earlier supervisor has seen what is there already."""
        self.step: Optional[int] = None
        self.step_line = b""
        """In which the step was found."""
        self.loss: Optional[str] = None
        self.complaint = b""
        """Of what was new at the last look: a line that complains, with no step after it."""
        self._path = path
        self._size = 0
        self._read_to = 0
        self._reader = StepReader()
        if adopted:
            with suppress(OSError):
                self._reader.read(self._bytes(0, HEAD_BYTES))  # the header of a table, if it has one
            self.update()

    def update(self) -> bool:
        """True when the log has changed since the last look; `step`, `loss` and `complaint` are then up to date."""
        self.complaint = b""
        try:
            size = files.stat_regular(self._path).st_size
        except OSError:
            return False  # not begun, or no log
        if size == self._size:
            return False
        if size < self._read_to:
            self._read_to = 0  # it was truncated
        self._size = size
        with suppress(OSError):  # as of a stale file handle: it has grown all the same
            self._read(size)
        return True

    def _read(self, size: int) -> None:
        start = max(self._read_to, size - MOST_BYTES)
        data = self._bytes(start, size - start)
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1  # an unfinished number would be another one
        self._read_to = start + whole
        found = self._reader.read(data[:whole])
        line, after = last_complaint(data[:whole])
        self.complaint = line if line and step_reader.read(after).step is None else b""
        if found.step is not None:
            self.step, self.step_line = found.step, found.line
        if found.loss is not None:
            self.loss = found.loss

    def _bytes(self, start: int, count: int) -> bytes:
        with files.opened(self._path) as opened:
            return files.read_at(opened, start, count)


MARKS = (
    b"CreateSession still waiting for response",
    b"Waiting for model to be ready",
    b"tasks to connect",
    b"Example stragglers",
    b"stopped sending heartbeats",
    b"UNAVAILABLE",
    b"Unavailable:",
    b"UnavailableError",
    b"DeadlineExceeded",
    b"failed to connect",
    b"Connection refused",
    b"Connection timed out",
    b"Connection reset by peer",
    b"Socket closed",
    b"No route to host",
    b"Name or service not known",
    b"Temporary failure in name resolution",
    b"DNS resolution failed",
    b"Address already in use",
    b"Graph handle is not found",
    b"different incarnation",
    b"No space left on device",
    b"Disk quota exceeded",
    b"Permission denied",
    b"OOM when allocating",
    b"ran out of memory",
    b"loss = NaN",
    b"Invalid loss",
)
"""Looked for one by one, which costs less than a regular expression of them all."""

_HEAD = r"(?:\d{4}-\d\d-\d\d [\d:.]+: [IWEF]|[IWEF]\d{4} [\d:.]+ +\d+) \S+:\d+\] |(?:INFO|WARNING|ERROR):\w+:"
"""Of glog and of logging: when and where it was written."""

_LONGEST = min(400, MOST_REASON)
_CURRENT_S = 3600.0


def last_complaint(data: bytes) -> Tuple[bytes, bytes]:
    """The last line of whole ones with a mark in it, and what follows it; both empty where there is none."""
    at = max(data.rfind(mark) for mark in MARKS)
    if at < 0:
        return b"", b""
    begin = max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1
    end = data.find(b"\n", at)
    end = len(data) if end < 0 else end
    return data[begin:end].strip(), data[end:]


def complaint_after(before: Optional[Complaint], line: bytes, wall: float) -> Optional[Complaint]:
    """With a line that has come just now, or none. Complaints of one kind continue, even with other numbers in them."""
    if not line:
        return before
    text = re.sub(_HEAD, "", " ".join(line.decode("utf-8", "replace").split())).lstrip(": ")[:_LONGEST]
    goes_on = before is not None and wall - before["last"] < _CURRENT_S and kind(before["text"]) == kind(text)
    return {"text": text, "since": before["since"] if goes_on and before is not None else wall, "last": wall}


def kind(text: str) -> Optional[bytes]:
    """The mark by which it is known."""
    data = text.encode("utf-8", "replace")
    return next((mark for mark in MARKS if mark in data), None)
