"""What the growth of a log tells: that the trainer lives, the step that it has come to, how fast, and its loss."""

from __future__ import annotations

import os
import re
from collections import deque
from contextlib import suppress

from ..host import files
from .complaints import last_complaint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, Optional, Tuple

MOST_BYTES = 16 * 1024
"""The most bytes read at one look; the end of what is new is read, where the newest step is."""

_STEP = re.compile(
    rb"""(?<![\w/.-])(?<!max\ )(?<!total\ )(?:global[_\ ]?)?step["']?
         (?:\s{0,4}[:=]\s{0,8}|\s{1,4}\#?)
         ([0-9]{1,15})(?![\w%]|[.,][0-9])""",
    re.VERBOSE | re.IGNORECASE,
)

_LOSS = re.compile(
    rb"""(?<![\w/.-])(?:training\ )?loss["']?(?:\s{0,4}[:=]\s{0,8}|\s{1,4})
         ([-+]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?(?:e[-+]?[0-9]{1,3})?|nan|inf))(?![\w%.])""",
    re.VERBOSE | re.IGNORECASE,
)

RATE_OVER_S = 60.0
"""How far back a rate looks."""


def last_step(data: bytes) -> Optional[int]:
    """The last training step that is told in a piece of a log.

    Written as `step 100`, `step = 100`, `global_step: 100`, `Step: 100/5000`, `loss = 0.1, step = 200 (0.3 sec)`.
    """
    step = None
    for found in _STEP.finditer(data):
        step = int(found.group(1))
    return step


def last_loss(data: bytes) -> Optional[str]:
    """The last loss that is told in a piece of a log, as it is told: `loss 0.041`, `loss = nan`, `"loss": 1.2e-05`."""
    loss = None
    for found in _LOSS.finditer(data):
        loss = found.group(1).decode().lower()
    return loss


class Rate:
    """Steps a second over the last minute, or between the last two that were told where they are further apart."""

    def __init__(self) -> None:
        self._seen: Deque[Tuple[float, int]] = deque(maxlen=200)

    def look(self, now: float, step: int) -> Optional[float]:
        """With a step that has just been told, on the monotonic clock. None until there are two, and after a return."""
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
        self.loss: Optional[str] = None
        self.complaint = b""
        """Of what was new at the last look: a line that complains, with no step after it."""
        self._path = path
        self._size = 0
        self._read_to = 0
        if adopted:
            self.look()

    def look(self) -> bool:
        """True when the log has changed since the last look; `step`, `loss` and `complaint` are then up to date."""
        self.complaint = b""
        try:
            size = files.look(self._path).st_size
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
        opened = files.descriptor(self._path)
        try:
            data = files.read_at(opened, start, size - start)
        finally:
            os.close(opened)
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1  # an unfinished number would be another one
        self._read_to = start + whole
        step, loss = last_step(data[:whole]), last_loss(data[:whole])
        line, after = last_complaint(data[:whole])
        self.complaint = line if last_step(after) is None else b""
        if step is not None:
            self.step = step
        if loss is not None:
            self.loss = loss
