"""What a host, a trainer or another user may write in order to meddle with the terminal of who reads it."""

from __future__ import annotations

import re
import unicodedata

COLOR = re.compile(r"\x1b\[[0-9;:]*m")

POISONS = {
    "title": "\x1b]0;pwned\x07",
    "title, ended by ST": "\x1b]2;pwned\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "link": "\x1b]8;;http://evil\x1b\\safe\x1b]8;;\x1b\\",
    "clear": "\x1b[2J\x1b[H",
    "reset": "\x1bc",
    "cursor up": "\x1b[3A\x1b[2K",
    "alternate screen": "\x1b[?1049h",
    "report": "\x1b[6n\x1b[c",
    "keyboard": "\x1b[>4;2m",
    "device control": "\x1bP$qm\x1b\\",
    "8-bit CSI": "\x9b2J",
    "8-bit OSC": "\x9d0;pwned\x9c",
    "backspace": "harm\b\b\b\bgood",
    "carriage return": "error\rfine ",
    "bell and shifts": "\x07\x0e\x0f\x00\x7f",
    "right to left": "\u202egnp.exe\u202c \u2067x\u2069 \u200e\u061c",
    "line ends": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "surrogate": "\udc9b2J \ud800",
    "nothing to see": "rm\u200b -rf\u2060 \ufeff\U000e0041",
    "nothing to see either": "a\xadb\u034f\u115f\u180e\u2800\u3164\uffa0\U000e01f0",
    "joiners that join nothing": "rm\u200d -rf\ufe0f \u200c\U000e0100\u2764\ufe0f\ufe0f\ufe0f",
    "conceal": "\x1b[31;8mrm -rf\x1b[0m",
    "conceal, written otherwise": "\x1b[38;5;1;008mrm -rf\x1b[0m",
    "cut": "\x1b[",
}


def left_in(shown: str) -> set[str]:
    """Characters that no line of a screen may hold; dtctl's own colours do not count, unless they conceal."""
    text = COLOR.sub("", shown)
    pairs = zip(" " + text, text, strict=False)
    unsafe = {one for before, one in pairs if one not in "\t\n" and _is_unsafe(one, before)}
    return unsafe | set(re.findall(r"\x1b\[(?:[0-79][0-9]*;)*0*8[;m]", shown))


def _is_unsafe(one: str, before: str) -> bool:
    """Said a second time, and in another way, than in `dtctl.render.terminal.safe`."""
    if one in JOINERS or _selects(one):
        return not _is_in_use(one, before)
    if one in SEEN:
        return False
    return unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") or one in UNSEEN or 0xE0000 <= ord(one) < 0xE1000


def _is_in_use(one: str, before: str) -> bool:
    """A joiner behind a selector, or either behind a character that is seen; only an emoji is joined to ASCII."""
    if (one == "\ufe0f" and before in "0123456789#*") or (one in JOINERS and _selects(before)):
        return True
    joined = before in JOINERS or _selects(before)
    return before >= "\xa0" and not (before.isspace() or joined or _is_unsafe(before, " "))


def _selects(one: str) -> bool:
    return "\ufe00" <= one <= "\ufe0f" or "\U000e0100" <= one <= "\U000e01ef"


JOINERS = "\u200c\u200d"
SEEN = {*map(chr, range(0x600, 0x606)), *"\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"}
"""Format characters that have a shape: Prepended_Concatenation_Mark."""
UNSEEN = {*"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u3164\uffa0\u2800"}
UNSEEN |= {*map(chr, range(0xFFF0, 0xFFF9))}
"""Those of other categories."""
