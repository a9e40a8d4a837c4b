"""Commands whose output a program reads: what cannot even be understood is told in JSON, too."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from typer import Abort, Typer

OTHERS_OPTIONS = frozenset({"ssh"})
"""Commands behind which stand the options of another program."""

_FORMS = ("json", "jsonl")


def wants_json(words: Sequence[str]) -> bool:
    """By the words of a command line, which may make no sense otherwise."""
    own = list(words[: words.index("--")]) if "--" in words else list(words)
    if next((word for word in own if not word.startswith("-")), None) in OTHERS_OPTIONS:
        return False
    pairs = zip(own, [*own[1:], ""], strict=False)  # no words at all make no pair
    return any(
        (word in ("-o", "--output") and value in _FORMS)
        or word in [f"{option}{form}" for option in ("-o", "--output=") for form in _FORMS]
        for word, value in pairs
    )


def in_json(app: Typer) -> NoReturn:
    """Runs the command, and ends the process as it does by itself, except that it tells in JSON how it has ended."""
    from dtctl.errors import ExitCode
    from dtctl.render.machine import speech

    speech.begin()
    try:
        code = app(prog_name="dtctl", standalone_mode=False)
    except Abort:
        sys.exit(ExitCode.RUN_FAILED)
    ended = code if isinstance(code, int) else int(ExitCode.OK)
    speech.end(ended)
    sys.exit(ended)
