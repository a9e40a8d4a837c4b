"""HTML by templates: what they fill in is text, and is escaped. What a host says cannot become a tag.

Texts are masked once more: the agent of an older run may have shown more than this one would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dtctl.agent.host.secrets import hide_text
from dtctl.agent.records.reasons import sentence
from dtctl.render.format import count, share
from dtctl.render.terminal.safe import lines_of, one_line

_KEY = (
    '<svg viewBox="0 0 10 10" aria-hidden="true" focusable="false">'
    '<rect x="0" y="0" width="10" height="10" class="f-{}"></rect></svg>'
)


@cache
def templates() -> Environment:
    """Those of reports, and of the dashboard."""
    here = Path(__file__).parent
    made = Environment(
        loader=FileSystemLoader([here, here.parent]),
        autoescape=True,
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(across=across, count=count, key=key, path=path, preformatted=preformatted, sentence=sentence)
    return made


def _safe(value: object) -> object:
    """What is no HTML yet, line by line."""
    if isinstance(value, Markup | int):
        return value
    return "\n".join(map(one_line, hide_text(str(value)).split("\n")))


def escape(text: str) -> Markup:
    return Markup("{}").format(_safe(text))


def preformatted(text: str) -> str:
    """Lines as they are, without the end of the last."""
    return "\n".join(lines_of(text))


def key(kind: str) -> Markup:
    """The colour of a kind, for a legend."""
    return Markup(_KEY).format(kind)


def colored(text: str, state: str) -> Markup:
    """A cell in the colour of a task's state."""
    return Markup('<span class="s-{}">{}</span>').format(state, escape(text))


WIDTH, HEIGHT = 1000.0, 100.0
_THINNEST = 1.5
"""Of a bar that has to be seen."""


def across(begin: float, end: float) -> tuple[Markup, Markup, bool]:
    """Of a bar between two points, each between 0 and 1: where it begins, its width, and whether a gap fits in it."""
    x = min(max(begin, 0.0), 1.0) * WIDTH
    width = max(_THINNEST, min(max(end, 0.0), 1.0) * WIDTH - x)
    return _number(min(x, WIDTH - width)), _number(width), width > 8


def scaled(value: float, low: float, high: float) -> float | None:
    """Where a number lies between two others; None of what is no finite number."""
    if not math.isfinite(value):
        return None
    return min(1.0, max(0.0, share(value, low, high, 0.5)))


def path(points: Sequence[tuple[float, float | None]]) -> Markup:
    """Of a curve; None is a gap. A single point between gaps is a dot: a line of no length with round ends."""
    words: list[str] = []
    pen = False
    for x, y in points:
        if y is None:
            pen = False
            continue
        place = f"{_number(x * WIDTH)} {_number(HEIGHT * (0.96 - 0.92 * y))}"
        words.append(f"L{place}" if pen else f"M{place}L{place}")
        pen = True
    return Markup("".join(words))


def _number(value: float) -> Markup:
    return Markup(f"{value:.2f}".rstrip("0").rstrip("."))
