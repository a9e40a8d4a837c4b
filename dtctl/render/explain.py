"""What `dtctl explain` shows."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping

from dtctl.render.manual.topics import Topic
from dtctl.render.terminal import console

_WIDTH = 100
_MARGIN = 4


def show(topics: Iterable[Topic]) -> None:
    for number, topic in enumerate(topics):
        if number:
            console.say("")
        console.say(f"{topic.name} ({topic.kind})")
        _paragraph(topic.text, _MARGIN)
        _table(topic.facts)
        _table(topic.inside, "")
        for sign, remedy in topic.causes.items():
            _paragraph(f"- {sign}", _MARGIN, hang=2)
            _paragraph(remedy, _MARGIN + 4)
        if topic.page:
            console.say(f"    more: {topic.page} of the documentation")


def show_list(groups: Mapping[str, Mapping[str, str]]) -> None:
    for number, (title, names) in enumerate(groups.items()):
        if number:
            console.say("")
        console.say(f"{title}:")
        width = max(map(len, names))
        for name, text in names.items():
            _paragraph(f"{name:<{width}}  {text}", 2, hang=width + 2)


def _table(facts: Mapping[str, str], mark: str = ":") -> None:
    width = max((len(name + mark) for name in facts), default=0)
    for name, text in facts.items():
        _paragraph(f"{name + mark:<{width}} {text}", _MARGIN, hang=width + 1)


def _paragraph(text: str, indent: int, hang: int = 0) -> None:
    width = min(_WIDTH, shutil.get_terminal_size().columns)
    first, later = " " * indent, " " * (indent + hang)
    lines = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
    for line in lines:
        console.say(line)
