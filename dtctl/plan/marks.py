"""How the marks that an agent replaces on its host (dtctl/agent/records/marks.py) are shown."""

from __future__ import annotations

from dtctl.agent.records.marks import CODE, HOME, PATH

_SHOWN = {HOME: "~", CODE: "{code}", PATH: "$PATH"}


def shown(text: str) -> str:
    """`text` for a person: the marks as the words that stand for them in a plan."""
    for mark, words in _SHOWN.items():
        text = text.replace(mark, words)
    return text
