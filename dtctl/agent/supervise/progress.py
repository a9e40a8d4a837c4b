"""What the growth of a log tells: that the trainer lives, and the step that it has come to."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from ..host import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

MOST_BYTES = 16 * 1024
"""The most bytes read at one look; the end of what is new is read, where the newest step is."""

_STEP = re.compile(
    rb"""(?<![\w/.-])(?<!max\ )(?<!total\ )(?:global[_\ ]?)?step["']?
         (?:\s{0,4}[:=]\s{0,8}|\s{1,4}\#?)
         ([0-9]{1,15})(?![\w%]|[.,][0-9])""",
    re.VERBOSE | re.IGNORECASE,
)


def last_step(data: bytes) -> Optional[int]:
    """The last training step that is told in a piece of a log.

    Written as `step 100`, `step = 100`, `global_step: 100`, `Step: 100/5000`, `loss = 0.1, step = 200 (0.3 sec)`.
    """
    step = None
    for found in _STEP.finditer(data):
        step = int(found.group(1))
    return step


class LogProgress:
    """Progress of one attempt by its log; only new parts are read."""

    def __init__(self, path: str, adopted: bool) -> None:
        """`adopted`: an earlier supervisor has seen what is there already."""
        self.step: Optional[int] = None
        self._path = path
        self._size = 0
        self._read_to = 0
        if adopted:
            self.look()

    def look(self) -> bool:
        """True when the log has changed since the last look; `step` is then up to date."""
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
        step = last_step(data[:whole])
        if step is not None:
            self.step = step
