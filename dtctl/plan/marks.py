"""Marks that the agent replaces on the host. They hold a NUL, which no argument or variable of a user can."""

from __future__ import annotations

HOME = "\0HOME"
CODE = "\0CODE"
PATH = "\0PATH"

_SHOWN = {HOME: "~", CODE: "{code}", PATH: "$PATH"}


def shown(text: str) -> str:
    """`text` for a person: the marks as the words that stand for them in a plan."""
    for mark, words in _SHOWN.items():
        text = text.replace(mark, words)
    return text
