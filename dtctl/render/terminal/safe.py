"""Text from outside, made safe for a screen: characters that would move, hide or reorder text there are shown as marks.

Hosts, trainers, other users' files and libraries say what they like. A mark is Python's own escape, `\\x1b` or
`\\u202e`: plain ASCII, and the same as what a stdout that cannot show a character shows in its place.
"""

from __future__ import annotations

import re

from dtctl.agent.run.log_text import redrawn

_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_INVISIBLE = (
    # Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt), except the joiners and selectors above
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
    # line ends to some programs; annotation characters, hieroglyph format controls, and the blank braille pattern
    "\u2028\u2029\ufff9-\ufffb\U00013430-\U0001343f\u2800"
)
_UNSAFE = "\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff" + _INVISIBLE
"""C0 except the tab, DEL, C1 (U+009B is the same as ESC [), lone surrogates, and invisible characters."""

_SEEN = f"[^\x00-\x9f\\s{_UNSAFE}{_JOINERS}{_SELECTORS}]"
_IN_USE = f"[{_SELECTORS}](?<={_SEEN}.)[{_JOINERS}]?|[{_JOINERS}](?<={_SEEN}.)|\ufe0f(?<=[0-9#*].)"
"""Joiners and variation selectors where emoji and several scripts need them: after a visible character."""

_MARKED = f"({_IN_USE})|[{_UNSAFE}{_JOINERS}{_SELECTORS}]"
"""Compiled on first use, as all patterns here: it takes some ms, and most text is plain ASCII."""
_COLOR = "\x1b\\[[0-9;:]{0,64}m"
"""SGR (ECMA-48, 8.3.117) with only its parameters: `ESC [ > 4 ; 2 m` changes what a terminal's keyboard sends."""
_COLOR_OR_MARKED = f"({_COLOR})|{_MARKED}"
_RESET = "\x1b[0m"
_RESETS = (_RESET, "\x1b[m")
_CONCEALS = "8"
_FOLLOWED = {("38", "5"): 3, ("48", "5"): 3, ("58", "5"): 3, ("38", "2"): 5, ("48", "2"): 5, ("58", "2"): 5}
"""Parameters of SGR that begin a colour by number, or by red, green and blue, with the number of parameters of each."""

_LEADS = (0xC2, 0xCD, 0xD8, 0xE1, 0xE2, 0xE3, 0xEF, 0xF0, 0xF3)
"""The first bytes in the UTF-8 of all unsafe characters above ASCII; some safe characters begin with them, too."""
_HARMLESS = bytes({*b"\t\n", *range(0x20, 0x7F), *range(0x80, 0x100)} - {*_LEADS})


def one_line(text: str) -> str:
    """The text as one safe line: line ends are marked too, so that they cannot fake another line."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_MARKED, _mark, text)


def lines_of(text: str) -> list[str]:
    """The safe lines of a text."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return [one_line(line) for line in lines]


def log_lines(data: bytes, *, color: bool) -> list[str]:
    """Lines of a log as a terminal would leave them; invalid UTF-8 becomes U+FFFD.

    Of a progress bar that redraws itself with \\r or \\b the last state remains. If `color`, colours are kept up to the
    end of their line; otherwise they are removed.
    """
    text = data.decode("utf-8", errors="replace")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not data.translate(None, _HARMLESS):  # true for nearly all logs; this takes a tenth of the time of a search
        return lines
    return [_log_line(redrawn(line), color=color) for line in lines]


def _log_line(line: str, *, color: bool) -> str:
    if "\x1b" not in line:
        return re.sub(_MARKED, _mark, line)
    safe = re.sub(_COLOR_OR_MARKED, lambda found: _color(found[1], color) if found[1] else _mark(found, 2), line)
    return safe + _RESET if "\x1b" in safe and not safe.endswith(_RESETS) else safe


def _color(code: str, color: bool) -> str:
    if not color:
        return ""
    return code.encode("unicode_escape").decode("ascii") if _conceals(code) else code


def _conceals(code: str) -> bool:
    """Whether text after this code is invisible."""
    parameters, at = code[2:-1].split(";"), 0
    while at < len(parameters):
        if parameters[at].partition(":")[0].lstrip("0") == _CONCEALS:
            return True
        at += _FOLLOWED.get((parameters[at], "".join(parameters[at + 1 : at + 2])), 1)
    return False


def _mark(found: re.Match[str], kept: int = 1) -> str:
    return found[kept] or found[0].encode("unicode_escape").decode("ascii")
