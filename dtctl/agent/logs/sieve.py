"""Selects requested lines of one attempt's log, with the lines around them."""

from __future__ import annotations

from collections import deque

from .finding import ErrorFinder, Expression, Keywords, finder
from .lines import split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque, Iterable, Iterator, List, Optional, Tuple, Union

    from ..host.secrets import Masks
    from ..records.requests import LogsRequest
    from .finding import Marks

    Finder = Union[Keywords, Expression, ErrorFinder]
    Dated = Tuple[int, bytes, float]
    """Lines: where they start, and when they were written."""


_MOST_BEFORE_BYTES = 1 << 20
"""The most bytes of lines that are kept as context before a match."""

LAST_WORDS = 10
"""The number of last lines of an attempt that failed without an error message."""

_SAID_LATELY = 20
"""The number of last lines in which a failed attempt reports its error."""


class Sieve:
    """`context`: the number of lines before and after each. `last_words`: the finder searches for errors."""

    def __init__(self, finder: Finder, context: int, last_words: bool = False) -> None:
        self.match_from = 0
        """Lines before this offset are only context."""
        self._finder = finder
        self._context = context
        self._kept = max(context, LAST_WORDS if last_words else 0)
        self._last_words = last_words
        self._before: Deque[Dated] = deque()
        self._before_bytes = 0
        self._after = 0
        """Lines that still belong to what was found last."""
        self._since_found = _SAID_LATELY

    def through(self, data: bytes, pieces: Iterable[Dated]) -> Iterator[Dated]:
        """The selected lines of complete lines, in order; `pieces` are the same, dated."""
        marks = self._finder.marks(data)
        if marks is None and not self._after:
            self._pass_over(pieces)
            return
        index = 0
        for offset, piece, when in pieces:
            for line in split(piece):
                yield from self._one(marks, index, (offset, line, when))
                index += 1
                offset += len(line)

    def rest(self) -> Iterator[Dated]:
        """The last lines of an attempt that has failed, unless an error was among them."""
        if self._last_words and self._since_found >= _SAID_LATELY:
            yield from list(self._before)[-LAST_WORDS:]
            self._forget()

    def _one(self, marks: Marks, index: int, dated: Dated) -> Iterator[Dated]:
        if marks is not None and marks[index] and dated[0] >= self.match_from:
            yield from list(self._before)[-self._context :] if self._context else ()
            self._forget()
            self._after = self._context
            self._since_found = 0
            yield dated
            return
        self._since_found += 1
        if self._after:
            self._after -= 1
            yield dated
        else:
            self._keep(dated)

    def _pass_over(self, pieces: Iterable[Dated]) -> None:
        """Skips lines that are not selected; the last ones may be context of later ones."""
        if not self._kept:
            return
        for offset, piece, when in pieces:
            self._since_found += min(piece.count(b"\n"), _SAID_LATELY)
            start = _last_lines(piece, self._kept)
            offset += start
            for line in split(piece[start:]):
                self._keep((offset, line, when))
                offset += len(line)

    def _keep(self, dated: Dated) -> None:
        if self._kept:
            self._before.append(dated)
            self._before_bytes += len(dated[1])
            while len(self._before) > self._kept or self._before_bytes > _MOST_BEFORE_BYTES:
                self._before_bytes -= len(self._before.popleft()[1])

    def _forget(self) -> None:
        self._before.clear()
        self._before_bytes = 0


def _last_lines(data: bytes, lines: int) -> int:
    """The offset of the last `lines` lines."""
    start = len(data) - (1 if data.endswith(b"\n") else 0)
    for _ in range(lines):
        start = data.rfind(b"\n", 0, start)
        if start < 0:
            return 0
    return start + 1


class Blocks:
    """Finds the start of the last selected lines: at the start of a block, which is never cut."""

    def __init__(self, lines: int) -> None:
        self._most = lines
        self._blocks: Deque[List[int]] = deque()
        """Start, end and number of lines of each block."""
        self.lines = 0

    def add(self, dated: Dated) -> None:
        offset, line, _ = dated
        last: Optional[List[int]] = self._blocks[-1] if self._blocks else None
        if last is not None and last[1] == offset:
            last[1] = offset + len(line)
            last[2] += 1
        else:
            self._blocks.append([offset, offset + len(line), 1])
        self.lines += 1
        while len(self._blocks) > 1 and self.lines - self._blocks[0][2] >= self._most:
            self.lines -= self._blocks.popleft()[2]

    def start(self, end: int) -> int:
        return self._blocks[0][0] if self._blocks else end


class Selection:
    """The selection for all tasks of one request. `check` raises when the answer is no longer awaited."""

    def __init__(self, request: LogsRequest, masks: Masks, check: Callable[[], None]) -> None:
        self.lines = request["lines"]
        self.since = request["since"]
        self.until = request["until"]
        self.context = request["context"]
        self.errors = request["errors"]
        self.masks = masks
        self.check = check
        grep = request["grep"]
        self.finder = None if grep is None else finder(grep, masks)

    @property
    def all_lines(self) -> bool:
        """Whether all lines of the selected time are wanted."""
        return self.finder is None and not self.errors

    @property
    def remembers(self) -> bool:
        """Whether a line is meant depends on the lines before it."""
        return self.errors or self.context > 0

    def sieve(self) -> Optional[Sieve]:
        """The sieve for one attempt's log; None: all its lines."""
        if self.errors:
            return Sieve(ErrorFinder(self.masks), self.context, last_words=True)
        return None if self.finder is None else Sieve(self.finder, self.context)
