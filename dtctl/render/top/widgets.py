"""What Textual draws: lines of text that are safe already. Nothing of it is markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from dtctl.render.top.snapshot import Line

_STYLES: dict[str, Style] = {}


def strip_of(line: Line, base: Style) -> Strip:
    return Strip([Segment(text, base + _style(style)) for text, style in line if text])


def _style(name: str) -> Style:
    if name not in _STYLES:
        _STYLES[name] = Style.parse(name) if name else Style()
    return _STYLES[name]


class Block(Widget):
    """Some lines, as high as they are many."""

    def __init__(self, *lines: Line, name: str) -> None:
        super().__init__(id=name)
        self._lines: tuple[Line, ...] = lines

    def show(self, lines: Sequence[Line]) -> None:
        higher = len(lines) != len(self._lines)
        if higher or tuple(lines) != self._lines:
            self._lines = tuple(lines)
            self.refresh(layout=higher)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        strip = strip_of(self._lines[y], self.rich_style) if y < len(self._lines) else Strip([])
        return strip.adjust_cell_length(width, self.rich_style)


class Lines(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines that may be more and longer than there is room for; one of them may be chosen. Screens bind the keys."""

    def __init__(self, *, name: str, choosing: bool) -> None:
        super().__init__(id=name)
        self._lines: Sequence[Line] = ()
        self._choosing = choosing
        self.chosen = 0

    def show(self, lines: Sequence[Line], width: int, chosen: int | None = None) -> None:
        """All of them anew. `width`: of the longest."""
        self._lines = lines
        self.virtual_size = Size(width, len(lines))
        if chosen is not None:
            self.chosen = chosen
        self.chosen = max(0, min(self.chosen, len(lines) - 1))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        left, above = self.scroll_offset
        width, row = self.size.width, above + y
        if row >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        strip = strip_of(self._lines[row], self.rich_style)
        if self._choosing and row == self.chosen:
            strip = strip.adjust_cell_length(max(width, strip.cell_length), self.rich_style)
            strip = strip.apply_style(Style(reverse=True))
        return strip.crop(left, left + width).adjust_cell_length(width, self.rich_style)

    def move(self, by: int) -> None:
        """The choice, which stays in sight; without one the view."""
        if not self._choosing:
            self.scroll_relative(y=by, animate=False, force=True)
            return
        self.chosen = max(0, min(self.chosen + by, len(self._lines) - 1))
        self.keep_in_sight()
        self.refresh()

    def keep_in_sight(self) -> None:
        height, above = self.size.height, self.scroll_offset.y
        if height and not above <= self.chosen < above + height:
            self.scroll_to(
                y=self.chosen if self.chosen < above else self.chosen - height + 1, animate=False, force=True
            )

    @property
    def at_end(self) -> bool:
        return self.scroll_offset.y >= len(self._lines) - self.size.height
