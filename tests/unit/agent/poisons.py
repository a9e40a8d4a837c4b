"""What a host, a trainer or another user may write in order to meddle with the terminal of who reads it."""

from __future__ import annotations

import re

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
    "cut": "\x1b[",
}


def left_in(shown: str) -> set[str]:
    """Characters that no line of a screen may hold; dtctl's own colours do not count."""
    return {one for one in COLOR.sub("", shown) if one not in "\t\n" and _unsafe(ord(one))}


def _unsafe(code: int) -> bool:
    """Said a second time, and in another way, than in `dtctl.render.terminal.safe`."""
    if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or 0xE0000 <= code < 0xE0080:
        return True
    ranges = ((0x202A, 0x202E), (0x2060, 0x206F), (0x2028, 0x2029), (0x200E, 0x200F), (0xFFF9, 0xFFFB))
    return code in (0x061C, 0x200B, 0xFEFF) or any(first <= code <= last for first, last in ranges)
