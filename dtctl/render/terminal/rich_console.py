"""rich, with all text made safe on its way to the screen. Imported late, because it costs 100 ms at a start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dtctl.errors import ExitCode
from dtctl.render.terminal.moving import above, is_dead_terminal
from dtctl.render.terminal.safe import one_line
from dtctl.transport.group_errors import APART

_HANG = 2


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

    def prose(self, words: str, style: str | None = None, *, label: str = "", label_style: str | None = None) -> None:
        """Prints a sentence after a label, wrapped between words and indented to the first word on a terminal.

        Without a label and an indent of its own, its later lines are indented by two.

        A command is left whole, so that it can be copied; its explanation is then below it. `label_style`: if not
        that of the sentence.
        """
        indent = label or words[: len(words) - len(words.lstrip())]
        head = text((label, style or "" if label_style is None else label_style)) if label else text()
        command, apart, meaning = words.strip().partition(APART)
        if not self.is_terminal or cell_len(label + words) <= self.width:
            self.print(head + text((words, style or "")))
        elif apart:
            self.print((head or text(indent)) + text((command, style or "")))
            self.prose(" " * len(indent) + APART + meaning, style)
        else:
            head = head or text(indent)
            for line in in_lines(one_line(words.strip()), self.width, head.cell_len, len(indent) or _HANG):
                self.print(head + text((line, style or "")))
                head = text(" " * (len(indent) or _HANG))

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


def in_lines(words: str, width: int, first: int, hang: int) -> list[str]:
    """The words in lines of at most `width` columns; those that the first line and the others lack are given.

    A word that is longer than a line is left whole, in a line of its own.
    """
    lines, room = [""], width - first
    for piece in re.findall(r"\s*\S+", words):
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece) > room:
            lines.append("")
            room = width - hang
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return lines


def cropped(words: str, style: str = "") -> Text:
    """A line that is cut at the end of the terminal."""
    line = text((words, style))
    line.no_wrap, line.overflow = True, "crop"
    return line


def _with_line_ends(segment: str) -> str:
    return segment if segment == "\n" else "\n".join(map(one_line, segment.split("\n")))
