"""The two streams: results on stdout, progress and errors on stderr. rich honours NO_COLOR and FORCE_COLOR."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

ColorChoice = Literal["auto", "always", "never"]

_choice: ColorChoice = "auto"


def choose_color(choice: ColorChoice) -> None:
    """For the whole process; `auto` leaves it to the terminal and the environment."""
    global _choice
    _choice = choice


def out(width: int | None = None) -> Console:
    """`width` in columns, in place of the terminal's."""
    return _console(stderr=False, width=width)


def err() -> Console:
    return _console(stderr=True)


def say(text: str) -> None:
    """A line of the result, without style: rich, which costs a start 100 ms, is not needed for it."""
    print(text, flush=True)


def tell(text: str) -> None:
    """A line about the work, without style, on stderr."""
    print(text, file=sys.stderr, flush=True)


def colored(*, stderr: bool = False) -> bool:
    """Whether escape sequences may be written to the stream."""
    return _console(stderr=stderr).color_system is not None


def interactive() -> bool:
    """Whether something that moves may be drawn on stderr."""
    return sys.stderr.isatty() and "CI" not in os.environ and os.environ.get("TERM") != "dumb"


def _console(*, stderr: bool, width: int | None = None) -> Console:
    from rich.console import Console

    off = _choice == "never" or (_choice == "auto" and os.environ.get("CLICOLOR") == "0")
    console = Console(
        stderr=stderr,
        width=width,
        no_color=True if off else None,
        color_system=None if off else "auto",
        force_terminal=True if _choice == "always" else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )
    # no_color leaves bold and dim in place; off a terminal or without colour the text is to be plain.
    if console.no_color:
        console._color_system = None
    return console
