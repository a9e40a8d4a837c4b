"""What pages say of each room: its name in docs/architecture.md, and its requests in docs/agent.md."""

from __future__ import annotations

import inspect
import re
import textwrap

from dtctl.agent.rooms import EXCHANGES, load
from dtctl.agent.rooms import ROOMS as AGENT_ROOMS
from dtctl.rooms import ROOMS

BEGIN = "<!-- docs/generate.py writes these from the docstrings of the functions that answer them. -->"
END = "<!-- The end of these requests. -->"
_NAMES = re.compile(r"^    rooms: (?:.|\n)*?(?=and dtctl/api)", re.MULTILINE)
_COLUMNS = 62
"""The width of a line of names: what follows the last one has room beside it."""


def with_names(page: str) -> str:
    """The page with the names of all rooms, by the alphabet."""
    names = "  ".join(sorted({*ROOMS, *AGENT_ROOMS}))
    lines = textwrap.wrap(names, _COLUMNS, initial_indent="    rooms:  ", subsequent_indent=" " * 12)
    return _NAMES.sub("\n".join(lines) + " " * 6, page)


def with_requests(page: str) -> str:
    """The page with a paragraph on each request that it does not describe elsewhere, between its marks."""
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    lacking = sorted(EXCHANGES.keys() - set(re.findall(r"\*\*(\w+)\*\*", head + tail)))
    texts = [f"**{name}**: {inspect.getdoc(load(EXCHANGES[name].handler)) or ''}" for name in lacking]
    return "\n\n".join([head + BEGIN, *texts, END]) + tail
