"""What a person sees of a command on a terminal at some moment, with its colours, and pictures of that."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_STEP = re.compile(r"\x1b\[(?P<number>[\d;?]*)(?P<what>[A-Za-z])|\r|\n|[^\x1b\r\n]+")
_FONT_FACE = re.compile(r"[ \t]*@font-face \{.*?\}\n?", re.DOTALL)


class Screen:
    """The lines of a terminal, as far as dtctl moves in them: it erases lines, goes up, and writes below."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0

    def feed(self, text: str) -> None:
        for found in _STEP.finditer(text):
            what = found["what"]
            if found[0] == "\n":
                self._row += 1
                self.lines += [""] * (self._row - len(self.lines) + 1)
            elif what == "K":
                self.lines[self._row] = ""
            elif what == "A":
                self._row = max(0, self._row - int(found["number"] or 1))
            elif what == "m" or (what is None and found[0] != "\r"):
                self.lines[self._row] += found[0]

    @property
    def shown(self) -> list[str]:
        lines = [line.rstrip() for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def seen(
    words: Sequence[str],
    directory: str,
    environment: Mapping[str, str],
    size: tuple[int, int],
    is_worth_it: Callable[[list[str]], bool],
) -> list[str]:
    """The lines of the first moment that is worth a picture, or of the end. `size`: columns and rows."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    own = {"TERM": "xterm-256color", **environment}
    streams = {"stdin": follower, "stdout": follower, "stderr": follower}
    process = subprocess.Popen(words, cwd=directory, env=own, start_new_session=True, **streams)
    os.close(follower)
    screen, chosen = Screen(), None
    with os.fdopen(leader, "rb", buffering=0) as output:
        while data := _read(output):
            screen.feed(data.decode(errors="replace"))
            if chosen is None and is_worth_it(screen.shown):
                chosen = screen.shown
    assert process.wait() == 0, screen.shown
    return chosen if chosen is not None else screen.shown


def _read(output: io.RawIOBase) -> bytes:
    try:
        return output.read(65536) or b""
    except OSError:  # the program has closed its end
        return b""


def draw(lines: Sequence[str], columns: int, title: str, name: str) -> str:
    """The lines as an SVG. `name`: by which a page may hold several."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=columns, force_terminal=True, file=io.StringIO())
    for line in lines:
        console.print(Text.from_ansi(line), overflow="ellipsis", no_wrap=True)
    return tidy(console.export_svg(title=title, unique_id=name, font_aspect_ratio=0.61))


def tidy(svg: str) -> str:
    """Without fonts of a foreign server, which no reader's browser is to ask, and blanks at the ends of lines."""
    local = _FONT_FACE.sub("", svg).replace("font-family: Fira Code, monospace", "font-family: monospace")
    return "\n".join(line.rstrip() for line in local.splitlines()) + "\n"


def write(path: Path, svg: str) -> None:
    path.write_text(svg, "utf-8")
