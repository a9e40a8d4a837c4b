"""One attempt's log as `log` frames, from an offset on (docs/agent.md, "logs")."""

from __future__ import annotations

import os
import time

from ..host import files
from .lines import forward, line_start, split, tail_start
from .times import Times, offset_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Optional, Pattern, Tuple

    from ..host.secrets import Masks

    LogFrame = Tuple[Dict[str, Any], bytes]

_RETURNS_EVERY_S = 1.0


class Selection:
    """Which lines are asked for."""

    def __init__(
        self, lines: Optional[int], since: Optional[float], grep: Optional[Pattern[str]], masks: Masks
    ) -> None:
        self.lines = lines
        self.since = since
        self.grep = grep
        self.masks = masks

    def has(self, line: bytes) -> bool:
        """Searches only what may be shown: a search must not reveal what is masked."""
        return self.grep is None or bool(self.grep.search(self.masks.hide(line).decode("utf-8", "replace")))


class AttemptLog:
    """Reads on from where it was; a log that has become shorter is read again from its start.

    `offset` None: where the selection begins in what there is at the first look.
    """

    def __init__(self, directory: str, task: str, attempt: int, selection: Selection, offset: Optional[int]) -> None:
        self._log = os.path.join(directory, "log")
        self._times_path = os.path.join(directory, "times")
        self._name: Dict[str, Any] = {"type": "log", "task": task, "attempt": attempt}
        self._selection = selection
        self._offset = offset
        self._times: Optional[Times] = None
        self._looked: Any = None
        self._inode = 0
        self._next_return = 0.0
        self._truncated = False
        self._trouble = ""

    def read(self, over: bool) -> Iterator[LogFrame]:
        """Frames with the new lines. `over`: it was known before this call that nothing more will be written."""
        try:
            yield from self._read_new(over)
        except FileNotFoundError:
            return
        except files.Unfit as unfit:
            yield from self._tell("it %s" % unfit.strerror)
        except OSError as error:
            yield from self._tell(str(error.strerror))

    def _tell(self, trouble: str) -> Iterator[LogFrame]:
        """What is wrong with the log, as a line of it, once."""
        if trouble != self._trouble:
            self._trouble = trouble
            text = "dtctl: the log of attempt %d cannot be read: %s\n" % (self._name["attempt"], trouble)
            offset = self._offset or 0
            yield self._frame(offset, offset, text.encode("utf-8", "replace"), time.time())

    def _read_new(self, over: bool) -> Iterator[LogFrame]:
        found = files.look(self._log)
        at_returns = time.monotonic() >= self._next_return
        look = (found.st_size, found.st_ino, over, at_returns)
        if look == self._looked:
            return
        self._looked = look
        descriptor = files.descriptor(self._log)
        try:
            yield from self._read(descriptor, os.fstat(descriptor), over, at_returns)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, found: os.stat_result, over: bool, at_returns: bool) -> Iterator[LogFrame]:
        if self._offset is None:
            self._offset = self._start(descriptor, found, over)
        elif found.st_size < self._offset or (self._inode and found.st_ino != self._inode):
            self._offset = 0
            self._truncated = True
            self._times = None
        self._inode = found.st_ino
        if self._times is None:
            self._times = Times(self._times_path, self._offset)
        for offset, data in forward(
            descriptor, self._offset, found.st_size, over, at_returns, self._selection.masks.cut
        ):
            self._offset = offset + len(data)
            if data.endswith(b"\r"):
                self._next_return = time.monotonic() + _RETURNS_EVERY_S
            for start, piece, when in self._times.pieces(offset, data, found.st_mtime):
                yield from self._frames(start, piece, when)

    def _start(self, descriptor: int, found: os.stat_result, over: bool) -> int:
        cut = self._selection.masks.cut
        end = found.st_size if over else line_start(descriptor, found.st_size, cut)
        start = 0
        if self._selection.since is not None:
            if found.st_mtime < self._selection.since:
                return end
            start = line_start(descriptor, min(end, offset_at(self._times_path, self._selection.since)), cut)
        if self._selection.lines is not None:
            start = max(start, tail_start(descriptor, end, self._selection.lines, self._selection.has, cut))
        return start

    def _frames(self, offset: int, data: bytes, when: float) -> Iterator[LogFrame]:
        if self._selection.grep is None:
            yield self._frame(offset, offset + len(data), self._selection.masks.hide(data), when)
            return
        run = b""
        start = offset
        for line in split(data):
            if self._selection.has(line):
                if not run:
                    start = offset
                run += self._selection.masks.hide(line)
            elif run:
                yield self._frame(start, offset, run, when)
                run = b""
            offset += len(line)
        if run:
            yield self._frame(start, offset, run, when)

    def _frame(self, offset: int, end: int, data: bytes, when: float) -> LogFrame:
        fields = dict(self._name, offset=offset, end=end, time=when)
        if self._truncated:
            fields["truncated"] = True
            self._truncated = False
        return fields, data
