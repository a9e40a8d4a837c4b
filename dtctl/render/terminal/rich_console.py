"""rich, with all text made safe on its way to the screen. Imported late: rich costs a start 100 ms."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dtctl.render.terminal.moving import above
from dtctl.render.terminal.safe import one_line
from dtctl.transport.group_errors import APART


class SafeConsole(Console):
    """Nothing but what rich itself draws moves the cursor: every string and every segment is made safe."""

    def __init__(self, reader_gone: Callable[..., None], **options: Any) -> None:
        super().__init__(**options)
        self._reader_gone = reader_gone

    def render_str(self, text: str, **options: Any) -> Text:
        """Before the layout, so that a table knows how wide the marks are."""
        return super().render_str(one_line(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """After the layout, for what was no string, so that no caller has to remember it."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_with_line_ends(segment.text), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        with above():
            super().print(*objects, **options)

    def prose(self, words: str, style: str | None = None, *, label: str = "") -> None:
        """A sentence behind a label; a terminal's line ends between words, and the next begins below the first word.

        A command is left whole, so that it can be copied; what it does is then shown below it.
        """
        indent = label or words[: len(words) - len(words.lstrip())]
        command, apart, meaning = words.strip().partition(APART)
        if not self.is_terminal or len(label + words) <= self.width:
            self.print(label + words, style=style)
        elif apart:
            self.print(indent + command, style=style)
            self.prose(" " * len(indent) + APART + meaning, style)
        else:
            lines = textwrap.TextWrapper(self.width, one_line(indent), " " * len(indent), break_long_words=False)
            lines.break_on_hyphens = False
            for line in lines.wrap(one_line(words.strip())):
                self.print(line, style=style)

    def on_broken_pipe(self) -> None:
        del self._buffer[:]
        self._reader_gone(stderr=self.stderr)


def text(*parts: str | tuple[str, str]) -> Text:
    """A line of text and (text, style); the only way to make a styled one."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((one_line(words), style) for words, style in pairs))


def cropped(words: str, style: str = "") -> Text:
    """A line that is cut where the terminal ends."""
    line = text((words, style))
    line.no_wrap, line.overflow = True, "crop"
    return line


def _with_line_ends(segment: str) -> str:
    return segment if segment == "\n" else "\n".join(map(one_line, segment.split("\n")))
