"""What shells do to words as they complete them, undone.

bash takes `worker:1` for three words: `:`, `=` and `@` are in its COMP_WORDBREAKS by default. The words are joined
again, and bash is offered what follows the last of those characters. zsh and fish replace the whole word `--run=ID`,
and zsh takes its words from an `eval`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, redirect_stdout

INSTRUCTION = ("_DTCTL_COMPLETE", "complete_bash")
BEHIND = ":="
"""They belong to the word before them and to the one behind."""
BEFORE = "@"
"""It belongs to the word behind it: TASK may be @HOST. Readline replaces it with that (rl_special_prefixes)."""


@contextmanager
def whole_words(environ: MutableMapping[str, str]) -> Iterator[None]:
    """For the process that bash has started to complete a word; nothing for any other."""
    if environ.get(INSTRUCTION[0]) != INSTRUCTION[1]:
        yield
        return
    words = environ.get("COMP_WORDS", "").split("\n")
    cursor = int(environ.get("COMP_CWORD", "0"))
    joined, begun = rejoined([*words, ""][: cursor + 1])
    environ["COMP_WORDS"] = "\n".join(joined)
    environ["COMP_CWORD"] = str(len(joined) - 1)
    offered = io.StringIO()
    try:
        with redirect_stdout(offered):
            yield
    finally:
        from dtctl.render.terminal import console

        for line in offered.getvalue().splitlines():
            console.say(line.removeprefix(begun))


def rejoined(words: Sequence[str]) -> tuple[list[str], str]:
    """Words up to the cursor as they were typed, and the part of the last one that bash does not replace."""
    made: list[str] = []
    begun = ""
    joins = False
    for number, word in enumerate(words):
        breaks = bool(word) and not word.strip(BEHIND + BEFORE)
        joins = joins and bool(word)  # an empty one is new: a blank stands before it
        if made and number and (joins or (breaks and word[0] in BEHIND)):
            begun = made[-1] if not breaks else made[-1] + word
            made[-1] += word
        else:
            begun = ""
            made.append(word)
        if begun.endswith(BEFORE):
            begun = begun[:-1]
        joins = breaks
    return made, begun


SHELLS = ("complete_zsh", "complete_fish")


@contextmanager
def whole_options(environ: MutableMapping[str, str]) -> Iterator[None]:
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
