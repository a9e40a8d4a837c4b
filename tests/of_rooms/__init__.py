"""What the tests of all commands have to know of each room: a file for each, tests/of_rooms/NAME.py.

A file has those of these names that it needs:

SPOKEN    rows of COMMANDS in tests/hostile/commands.py: `spoken("gpus", shows=True)`
HEARD     the frames that its commands hear, if these are not the result of the request of their own name
SILENT    its commands that hear nothing from a host, and why
ANSWERS   request -> a genuine host's answer to it, as the methods of `Host` in tests/hostile/host_answers.py
OWN       patterns of files that its commands may write to a home (tests/hostile/bench.py)
TYPED     what is typed in the cloned directory (tests/hostile/test_cloned_directory.py)
WORDS     what else has to be typed for a command to come as far as its mistake (tests/unit/test_commands.py)
WRONG     commands with a mistake, as in tests/unit/wrong_commands.txt
SHOWS     rows of SHOWS in tests/unit/render/test_safe_output.py; each function is given the poison

A file imports the standard library and `tests.hostile.host_answers` alone, as hosts of the tests read it, where dtctl
is not: what a row of SHOWS needs is imported in its function.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

Row = tuple[str, dict[str, bool]]


def spoken(words: str, *, endless: bool = False, shows: bool = False, partly: bool = False) -> Row:
    """A command on lying hosts; what these mean is said of `Spoken` in tests/hostile/commands.py."""
    return words, {"endless": endless, "shows": shows, "partly": partly}


def rows(part: str) -> list[Any]:
    """The rows of a part of all rooms, by the names of the rooms."""
    return [row for module in _modules() for row in getattr(module, part, ())]


def table(part: str) -> dict[str, Any]:
    """The same of a part that is a table."""
    return {key: row for module in _modules() for key, row in getattr(module, part, {}).items()}


def texts(part: str) -> list[str]:
    """The same of a part that is a text, one for each room that has it."""
    return [getattr(module, part) for module in _modules() if hasattr(module, part)]


def _modules() -> Iterator[ModuleType]:
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        yield import_module(f"{__name__}.{path.stem}")
