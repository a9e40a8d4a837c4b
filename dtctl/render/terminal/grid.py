"""Tables without lines for a terminal of any width, and for a pipe, which has none.

No word is broken while a narrower form is left: columns are dropped, then cells are wrapped between words with a
hanging indent, and at last each row is a block of lines. Imported late, as rich costs 100 ms at a start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from dtctl.render.terminal.rich_console import text

GAP = 2
HANG = 2
"""The indent of the later lines of a cell."""

_LEAST = 12
"""The columns of the terminal that a wrapped cell gets at least, unless it needs fewer."""

_READABLE = 24
"""The columns that a sentence gets before a column is dropped for it."""

_TALLEST = 4
"""The most lines of a row; blocks are easier to read than taller ones."""

_HEAD = "dim"
_PIECE = r"[^\s/,;=]*[/,;=]*\s*|\s+"
"""What is left whole in a cell: a word, a part of a path, an item of a list."""


class Column:
    """A column. `right`: its cells are numbers; `wraps`: they are sentences, which give way to the other columns."""

    def __init__(self, name: str, cells: Sequence[Text], *, right: bool = False, wraps: bool = False) -> None:
        self.name = name
        self.cells = tuple(cells)
        self.right = right
        self.wraps = wraps

    @cached_property
    def width(self) -> int:
        return max((cell.cell_len for cell in (text(self.name), *self.cells)), default=0)

    @cached_property
    def least(self) -> int:
        """The width below which a word would be broken."""
        if self.right:
            return self.width
        pieces = [len_of(piece) for cell in self.cells for piece in _pieces(cell.plain)]
        longest = max(pieces, default=0) + (HANG if any(len(_pieces(cell.plain)) > 1 for cell in self.cells) else 0)
        return min(self.width, max(longest, len_of(self.name), _LEAST))


class Grid:
    """A table of these columns. `dropped`: what a narrow terminal leaves out, in this order; `least_note`: the width
    of a column NOTE that the other columns give way to; `shared`: columns that are one line below the table on a
    narrow terminal, if all of their cells are the same.
    """

    def __init__(
        self,
        columns: Iterable[Column],
        *,
        dropped: Sequence[str] = (),
        least_note: int | None = None,
        shared: Sequence[str] = (),
    ) -> None:
        self._all = tuple(columns)
        self._dropped = dropped
        self._least_note = least_note
        self._shared = shared

    @property
    def names(self) -> list[str]:
        return [column.name for column in self._all]

    @property
    def rows(self) -> int:
        return len(self._all[0].cells) if self._all else 0

    def fits(self, width: int | None) -> bool:
        """Whether all columns fit with their cells in one line each."""
        return width is None or _wide(column.width for column in self._all) <= width

    def lines(self, width: int | None) -> list[Text]:
        """The table for a terminal of this width; None: for a pipe."""
        if self.fits(width) or width is None:
            return _rows(self._all, [column.width for column in self._all])
        shown, same = self._without_shared()
        below = [part for line in same for part in wrapped(line, width)]
        for name in (None, *self._dropped):
            shown = tuple(column for column in shown if column.name != name)
            if (widths := self._widths(shown, width, only_sentences=True)) is not None:
                return _rows(shown, widths) + below
        widths = self._widths(shown, width, only_sentences=False)
        if widths is not None and _tallest(shown, widths) <= _TALLEST:
            return _rows(shown, widths) + below
        return _blocks(shown, width) + below

    def _without_shared(self) -> tuple[tuple[Column, ...], list[Text]]:
        same = [one for one in self._all if one.name in self._shared and len({cell.plain for cell in one.cells}) == 1]
        lines = [text((f"{one.name} ", _HEAD), one.cells[0].plain) for one in same if one.cells[0].plain]
        return tuple(column for column in self._all if column not in same), lines

    def _widths(self, columns: Sequence[Column], width: int, *, only_sentences: bool) -> list[int] | None:
        """The widths that fit; None if there are none."""
        widths = [column.width for column in columns]
        least = [self._least_of(column, only_sentences=only_sentences) for column in columns]
        while _wide(widths) > width:
            free = [at for at in range(len(columns)) if widths[at] > least[at]]
            if not free:
                return None
            at = max(free, key=lambda one: (columns[one].wraps, widths[one]))
            widths[at] -= 1
        return widths

    def _least_of(self, column: Column, *, only_sentences: bool) -> int:
        if only_sentences and not column.wraps:
            return column.width
        return min(column.width, max(self._least_note or _READABLE, column.least)) if only_sentences else column.least

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)


def _tallest(columns: Sequence[Column], widths: Sequence[int]) -> int:
    cells = ((cell, width) for column, width in zip(columns, widths, strict=True) for cell in column.cells)
    return max((len(wrapped(cell, width)) for cell, width in cells), default=1)


def _wide(widths: Iterable[int]) -> int:
    every = list(widths)
    return sum(every) + GAP * (len(every) - 1)


def _rows(columns: Sequence[Column], widths: Sequence[int]) -> list[Text]:
    lines = [_row([[text((column.name, _HEAD))] for column in columns], columns, widths)] if _has_head(columns) else []
    cells = zip(*(column.cells for column in columns), strict=True)
    every = [[wrapped(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    return [line for rows in [*lines, *(_row(row, columns, widths) for row in every)] for line in rows]


def _has_head(columns: Sequence[Column]) -> bool:
    return any(column.name for column in columns)


def _row(cells: Sequence[Sequence[Text]], columns: Sequence[Column], widths: Sequence[int]) -> list[Text]:
    """The lines of a row, without blanks at their ends."""
    lines = []
    for number in range(max((len(cell) for cell in cells), default=1) or 1):
        line = text()
        line.no_wrap, line.overflow = True, "ignore"
        for cell, column, width in zip(cells, columns, widths, strict=True):
            part = cell[number] if number < len(cell) else text()
            blank = " " * max(0, width - part.cell_len)
            line.append_text(text(blank) + part if column.right else part + text(blank))
            line.append(" " * GAP)
        line.rstrip()
        lines.append(line)
    return lines


def _blocks(columns: Sequence[Column], width: int) -> list[Text]:
    """Each row as its first cell, and below it the other ones with their names."""
    lines: list[Text] = []
    rows = zip(*(column.cells for column in columns), strict=True)
    for first, *others in rows:
        lines += wrapped(first, width)
        line = text("  ")
        for column, cell in zip(columns[1:], others, strict=True):
            if not cell.plain:
                continue
            named = text((f"{column.name} " if column.name else "", _HEAD)) + cell
            if len(line.plain) > HANG and line.cell_len + GAP + named.cell_len > width:
                lines += wrapped(line, width, hang=2 * HANG)
                line = text("  ")
            line = line + (" " * GAP if len(line.plain) > HANG else "") + named
        lines += wrapped(line, width, hang=2 * HANG) if line.plain.strip() else []
    for line in lines:
        line.no_wrap, line.overflow = True, "ignore"
    return lines


def wrapped(cell: Text, width: int, hang: int = HANG) -> list[Text]:
    """The cell in lines of at most this width, broken between words; later ones are indented."""
    if cell.cell_len <= width:
        return [cell]
    lines: list[Text] = []
    begin, at, room = 0, 0, width
    for piece in _pieces(cell.plain):
        needed = len_of(piece.rstrip())
        if len_of(cell.plain[begin:at]) + needed > room and at > begin:
            lines.append(_part(cell, begin, at, hang if lines else 0))
            begin, room = at, width - hang
        at += len(piece)
        while len_of(cell.plain[begin:at].rstrip()) > room:  # a word that is longer than the line
            cut = begin + max(1, _fitting(cell.plain[begin:at], room))
            lines.append(_part(cell, begin, cut, hang if lines else 0))
            begin, room = cut, max(1, width - hang)
    if cell.plain[begin:].strip() or not lines:
        lines.append(_part(cell, begin, len(cell.plain), hang if lines else 0))
    return lines


def _part(cell: Text, begin: int, end: int, indent: int) -> Text:
    part = cell[begin:end]
    part.rstrip()
    return text(" " * indent) + part if indent else part


def _fitting(words: str, width: int) -> int:
    """How many characters are at most this wide."""
    used = 0
    for number, character in enumerate(words):
        used += len_of(character)
        if used > width:
            return number
    return len(words)


def _pieces(words: str) -> list[str]:
    return [piece for piece in re.findall(_PIECE, words) if piece]


def len_of(words: str) -> int:
    from rich.cells import cell_len

    return cell_len(words)


def columns_of(
    columns: Mapping[str, Sequence[str | Text]], numbers: Sequence[str], sentences: Sequence[str]
) -> list[Column]:
    """The columns with these headings and cells; `numbers` and `sentences` are those whose cells are that."""
    return [
        Column(
            name,
            [cell if isinstance(cell, Text) else text(cell) for cell in cells],
            right=name in numbers,
            wraps=name in sentences,
        )
        for name, cells in columns.items()
    ]
