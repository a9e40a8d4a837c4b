"""Text from outside, made safe for a screen: characters that would move, hide or reorder text there are shown as marks.

Hosts, trainers, other users' files and libraries say what they like. A mark is Python's own escape, `\\x1b` or
`\\u202e`: plain ASCII, and the same as what a stdout that cannot show a character shows in its place.
"""

from __future__ import annotations

import re

_INVISIBLE = (
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they reorder what a reader sees (UAX #9)
    "\u2028\u2029"  # line ends to some programs
    "\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # no width, no use in a line
)
"""Joiners (U+200C, U+200D) and variation selectors are not among them: emoji and several scripts need them."""

_UNSAFE = "\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff" + _INVISIBLE
"""C0 but the tab, DEL, C1 (U+009B is what ESC [ is), lone surrogates, and what no reader sees."""

_MARKED = re.compile(f"[{_UNSAFE}]")
_COLOR = re.compile("\x1b\\[[0-9;:]{0,64}m")
"""SGR (ECMA-48, 8.3.117) with its parameters alone: `ESC [ > 4 ; 2 m` changes what a terminal's keyboard sends."""
_COLOR_OR_MARKED = re.compile(f"({_COLOR.pattern})|{_MARKED.pattern}")
_RESET = "\x1b[0m"
_RESETS = (_RESET, "\x1b[m")

_LEADS = (0xC2, 0xD8, 0xE2, 0xEF, 0xF3)
"""Bytes that begin the UTF-8 of all that is unsafe above ASCII; they begin much that is safe, too."""
_HARMLESS = bytes({*b"\t\n", *range(0x20, 0x7F), *range(0x80, 0x100)} - {*_LEADS})


def one_line(text: str) -> str:
    """For any text that should be one line: line ends are marked too, so that they cannot fake another line."""
    if text.isascii() and text.isprintable():
        return text
    return _MARKED.sub(_mark, text)


def lines_of(text: str) -> list[str]:
    """For text that may have several lines."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return [one_line(line) for line in lines]


def log_lines(data: bytes, *, color: bool) -> list[str]:
    """Lines of a log as a terminal would leave them; bytes that are no UTF-8 become U+FFFD.

    A progress bar that redraws itself with \\r leaves its last state. Colours stay, up to the end of their line, if
    `color`; else they are left out.
    """
    text = data.decode("utf-8", errors="replace")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not data.translate(None, _HARMLESS):  # nearly all logs; this takes a tenth of the time of a search
        return lines
    return [_log_line(line.rstrip("\r").rpartition("\r")[2], color=color) for line in lines]


def _log_line(line: str, *, color: bool) -> str:
    plain = _COLOR.sub("", line) if "\x1b" in line else line
    if not _MARKED.search(plain):
        if not color or plain == line:
            return plain
        safe = line
    elif color:
        safe = _COLOR_OR_MARKED.sub(lambda found: found[1] or _mark(found), line)
    else:
        safe = _COLOR_OR_MARKED.sub(lambda found: "" if found[1] else _mark(found), line)
    return safe + _RESET if "\x1b" in safe and not safe.endswith(_RESETS) else safe


def _mark(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
