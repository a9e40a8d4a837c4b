"""rich, with all text made safe on its way to the screen. Imported late, because it costs 100 ms at a start."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dtctl.errors import ExitCode
from dtctl.render.terminal.moving import above, is_dead_terminal
from dtctl.render.terminal.safe import one_line
from dtctl.transport.group_errors import APART


class SafeConsole(Console):
    """A console on which only rich itself moves the cursor: every string and every segment is made safe."""

    def __init__(self, reader_gone: Callable[..., None], **options: Any) -> None:
        super().__init__(**options)
        self._reader_gone = reader_gone

    def render_str(self, text: str, **options: Any) -> Text:
        """Makes strings safe before the layout, so that a table knows their width."""
        return super().render_str(one_line(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Makes other objects safe after the layout, so that no caller has to remember it."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_with_line_ends(segment.text), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        with above():
            super().print(*objects, **options)

    def written(self, line: Text) -> str:
        """The line as it is written to this stream, with the escape sequences of its styles."""
        system = None if self.no_color else self._color_system
        parts = []
        for segment in self.render(line, self.options.update(no_wrap=True, overflow="ignore")):
            if segment.text != "\n":
                parts.append(segment.style.render(segment.text, color_system=system) if segment.style else segment.text)
        return "".join(parts)

    def prose(self, words: str, style: str | None = None, *, label: str = "") -> None:
        """Prints a sentence after a label, wrapped between words and indented to the first word on a terminal.

        A command is left whole, so that it can be copied; its explanation is then below it.
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

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if not is_dead_terminal(error):
                raise
            del self._buffer[:]
            self._reader_gone(stderr=self.stderr, code=ExitCode.HUNG_UP)


def text(*parts: str | tuple[str, str]) -> Text:
    """A line of text and (text, style); the only way to make a styled one."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((one_line(words), style) for words, style in pairs))


def cropped(words: str, style: str = "") -> Text:
    """A line that is cut at the end of the terminal."""
    line = text((words, style))
    line.no_wrap, line.overflow = True, "crop"
    return line


def _with_line_ends(segment: str) -> str:
    return segment if segment == "\n" else "\n".join(map(one_line, segment.split("\n")))
