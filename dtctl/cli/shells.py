"""Completion in zsh and fish: of `--run=ID` they replace the whole word, and zsh takes its words from an `eval`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout

SHELLS = ("complete_zsh", "complete_fish")


@contextmanager
def mended(environ: MutableMapping[str, str]) -> Iterator[None]:
    """For the process that zsh or fish has started to complete a word; nothing for any other."""
    shell = environ.get("_DTCTL_COMPLETE")
    if shell not in SHELLS:
        yield
        return
    option = begun(environ.get("_TYPER_COMPLETE_ARGS", ""))
    offered = io.StringIO()
    try:
        with redirect_stdout(offered):
            yield
    finally:
        from dtctl.render.terminal import console

        console.put(for_zsh(offered.getvalue(), option) if shell == SHELLS[0] else for_fish(offered.getvalue(), option))


def begun(line: str) -> str:
    """`--run=` where that is how the last word of a line begins, else nothing."""
    option, equals, _ = line.rpartition(" ")[2].partition("=")
    return option + equals if equals and option.startswith("--") else ""


def for_zsh(text: str, option: str) -> str:
    """`_arguments '*: :(("WORD":"HELP" ...))'`, a word a line. Typer doubles apostrophes, which zsh then leaves out."""
    text = text.replace("''", "'\\''")
    return re.sub(r"""^(_arguments '\*: :\(\()?"(?!:)""", rf'\1"{option}', text, flags=re.MULTILINE) if option else text


def for_fish(text: str, option: str) -> str:
    return "".join(option + line for line in text.splitlines(keepends=True) if line.strip()) if option else text
