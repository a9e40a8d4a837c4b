"""One attempt's log as `log` frames, from an offset on (docs/agent.md, "logs")."""

from __future__ import annotations

import os
import time

from ..host import files
from .lines import SAMPLED_S, Times, forward, front, line_start, size_when, tail_start
from .sieve import Blocks, Selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Tuple

    from .sieve import Dated

    LogFrame = Tuple[Dict[str, Any], bytes]

_RETURNS_EVERY_S = 1.0

_LOOKED_BACK = 64 * 1024
"""Bytes before the position to continue from that are read again, for matches that depend on the lines before."""


class AttemptLog:
    """Reads a log in steps; a log that has become shorter is read again from its start.

    `offset` None: the start of the selection at the first read. `badly`: whether the attempt, once it is over, has
    failed.
    """

    def __init__(
        self,
        directory: str,
        task: str,
        attempt: int,
        selection: Selection,
        offset: Optional[int],
        badly: Callable[[], bool] = bool,
        *,
        without_gpus: bool = False,
    ) -> None:
        self._log = os.path.join(directory, "log")
        self._times_path = os.path.join(directory, "times")
        self._name: Dict[str, Any] = {"type": "log", "task": task, "attempt": attempt}
        if without_gpus:
            self._name["without_gpus"] = True
        self._selection = selection
        self._offset = offset
        self._resumes = offset is not None and offset > 0
        self._hidden_until = 0
        """Lines that begin before were already sent."""
        self._badly = badly
        self._sieve = selection.sieve()
        self._times: Optional[Times] = None
        self._looked: Any = None
        self._inode = 0
        self._next_return = 0.0
        self._truncated = False
        self._trouble = ""

    def begin(self, over: bool, lines: int) -> int:
        """Chooses the last `lines` of the selection as what is read first; how many there are."""
        try:
            with files.opened(self._log) as log:
                self._offset, found = self._begin(log, os.fstat(log), over, lines)
        except OSError:
            return 0  # that is reported when it is read
        return found

    def has_grown(self) -> bool:
        """Whether its length has changed since the last read; `read` reports problems of the log."""
        try:
            return self._looked is not None and os.lstat(self._log).st_size != self._looked[0]
        except OSError:
            return False

    def read(self, over: bool) -> Iterator[LogFrame]:
        """Frames with the new lines. `over`: it was known before this call that nothing more will be written."""
        try:
            yield from self._read_new(over)
        except FileNotFoundError:
            return
        except files.Unfit as unfit:
            yield from self._report("it %s" % unfit.strerror)
        except OSError as error:
            yield from self._report(str(error.strerror))

    def _report(self, trouble: str) -> Iterator[LogFrame]:
        """Reports a problem of the log, as a line of it, once."""
        if trouble != self._trouble:
            self._trouble = trouble
            text = "dtctl: the log of attempt %d cannot be read: %s\n" % (self._name["attempt"], trouble)
            offset = self._offset or 0
            yield self._frame(offset, offset, text.encode("utf-8", "replace"), time.time())

    def _read_new(self, over: bool) -> Iterator[LogFrame]:
        found = files.stat_regular(self._log)
        at_returns = time.monotonic() >= self._next_return
        look = (found.st_size, found.st_ino, over, at_returns)
        if look == self._looked:
            return
        self._looked = look
        with files.opened(self._log) as log:
            yield from self._read(log, os.fstat(log), over, at_returns)

    def _read(self, descriptor: int, found: os.stat_result, over: bool, at_returns: bool) -> Iterator[LogFrame]:
        self._find_place(descriptor, found, over)
        offset = self._offset or 0
        if self._times is None:
            self._times = Times(self._times_path, offset)
        end = self._end(descriptor, found)
        if offset < front(descriptor):
            yield from self._pass_hole(descriptor, found)
        for offset, data in forward(descriptor, self._offset or 0, end, over, at_returns, self._selection.masks.cut):
            self._selection.check()
            if data[0] == 0 and offset < front(descriptor):  # cut off while it was read
                yield from self._read(descriptor, found, over, at_returns)
                return
            self._offset = offset + len(data)
            if data.endswith(b"\r"):
                self._next_return = time.monotonic() + _RETURNS_EVERY_S
            yield from self._chosen(data, self._times.pieces(offset, data, found.st_mtime))
        if over and self._sieve is not None and self._offset == end and self._badly():
            yield from self._gathered(self._sieve.rest())

    def _find_place(self, descriptor: int, found: os.stat_result, over: bool) -> None:
        """Sets the offset to read from, at the first read and if the log was replaced or has become shorter."""
        if self._offset is None:
            self._offset, _ = self._begin(descriptor, found, over, self._selection.lines)
        elif found.st_size < self._offset or (self._inode and found.st_ino != self._inode):
            self._offset = 0
            self._truncated = True
            self._times = None
            self._sieve = self._selection.sieve()
        elif self._resumes and self._selection.remembers:
            self._hidden_until = self._offset
            back = max(0, self._offset - _LOOKED_BACK)
            self._offset = line_start(descriptor, back, self._selection.masks.cut)
        self._resumes = False
        self._inode = found.st_ino

    def _pass_hole(self, descriptor: int, found: os.stat_result) -> Iterator[LogFrame]:
        """Moves to the current start of the log, and reports that if all lines were requested."""
        start, self._offset = self._offset or 0, front(descriptor)
        self._times = Times(self._times_path, self._offset)
        if self._selection.all_lines:
            text = "dtctl: here %d bytes are missing, which were removed to keep to logs.limit\n"
            yield self._frame(start, self._offset, (text % (self._offset - start)).encode(), found.st_mtime)

    def _begin(self, descriptor: int, found: os.stat_result, over: bool, lines: Optional[int]) -> Tuple[int, int]:
        """The start of the selection's last `lines`, and their number."""
        cut = self._selection.masks.cut
        end = self._end(descriptor, found)
        if not over and end == found.st_size:
            end = line_start(descriptor, end, cut)
        start = 0
        since = self._selection.since
        if since is not None:
            if found.st_mtime < since:
                return end, 0
            start = line_start(descriptor, min(end, size_when(self._times_path, lambda when: when < since)), cut)
        if lines is None:
            return start, 0
        if self._selection.errors:
            return self._last_errors(descriptor, max(start, front(descriptor)), end, over, lines)
        finder = self._selection.finder
        first, number = tail_start(descriptor, end, lines, finder.marks if finder else None, cut)
        if self._sieve is not None:
            self._sieve.match_from = first
            first, _ = tail_start(descriptor, first, self._selection.context, None, cut)
        return max(start, first), number

    def _last_errors(self, descriptor: int, start: int, end: int, over: bool, lines: int) -> Tuple[int, int]:
        """An error begins somewhere before its lines, so all is read."""
        sieve, blocks = self._selection.sieve(), Blocks(lines)
        assert sieve is not None
        for offset, data in forward(descriptor, start, end, over, False, self._selection.masks.cut):
            self._selection.check()
            for dated in sieve.through(data, [(offset, data, 0.0)]):
                blocks.add(dated)
        if over and self._badly():
            for dated in sieve.rest():
                blocks.add(dated)
        return blocks.start(end) if lines else end, blocks.lines

    def _end(self, descriptor: int, found: os.stat_result) -> int:
        """The end of the selection, as far as it is written."""
        until = self._selection.until
        if until is None or found.st_mtime <= until:
            return found.st_size
        size = min(found.st_size, size_when(self._times_path, lambda when: when <= until + SAMPLED_S))
        return line_start(descriptor, size, self._selection.masks.cut)

    def _chosen(self, data: bytes, pieces: Iterable[Dated]) -> Iterator[LogFrame]:
        if self._sieve is not None:
            yield from self._gathered(self._sieve.through(data, pieces))
            return
        for offset, piece, when in pieces:
            yield self._frame(offset, offset + len(piece), self._selection.masks.hide(piece), when)

    def _gathered(self, lines: Iterable[Dated]) -> Iterator[LogFrame]:
        """Lines that follow each other, and were written at the same time, in one frame."""
        start, end, run, time_of_run = 0, 0, bytearray(), 0.0
        for offset, line, when in lines:
            if offset < self._hidden_until:
                continue
            if run and (offset != end or when != time_of_run):
                yield self._frame(start, end, self._selection.masks.hide_lines(bytes(run)), time_of_run)
                run.clear()
            if not run:
                start, time_of_run = offset, when
            run += line
            end = offset + len(line)
        if run:
            yield self._frame(start, end, self._selection.masks.hide_lines(bytes(run)), time_of_run)

    def _frame(self, offset: int, end: int, data: bytes, when: float) -> LogFrame:
        fields = dict(self._name, offset=offset, end=end, time=when)
        if self._truncated:
            fields["truncated"] = True
            self._truncated = False
        return fields, data
