"""Completes words in the shell: those of the cluster that the command would mean. No host is asked."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from dtctl.cli.late import console
from dtctl.render.terminal.safe import one_line

if TYPE_CHECKING:
    from dtctl.cli.scope import Scope
    from dtctl.operations.run_record import RunRecord


T = TypeVar("T")


def complete_tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    record = _record(ctx.params)
    if record is None:
        return []
    tasks = [str(task) for task in record.roster]
    jobs = list(dict.fromkeys(task.job for task in record.roster))
    return _offered((*tasks, *jobs, *(f"@{host}" for host in record.hosts)), incomplete)


def complete_places(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes tasks and hosts before `--`; the words after it are a command for the hosts."""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return [] if "--" in typed.split() else complete_tasks(ctx, incomplete)


def complete_clusters(incomplete: str) -> list[str]:
    scope = _scope({})
    runs = _quietly(lambda: scope.memory.runs()) or ()
    return _offered(dict.fromkeys(one.cluster for one in runs), incomplete)


def complete_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Run ids of this directory's cluster, or else all."""
    record, scope = _record({**ctx.params, "run": None}), _scope(ctx.params)
    runs = _quietly(lambda: scope.memory.runs()) or ()
    own = [one for one in runs if record is not None and one.cluster == record.cluster]
    return _offered((one.run for one in own or runs if one.run), incomplete)


def _offered(words: Iterable[str], incomplete: str) -> list[str]:
    """The shell writes them into the command line as they are."""
    return [word for word in words if word.startswith(incomplete) and one_line(word) == word]


def _record(options: Mapping[str, Any]) -> RunRecord | None:
    """The run that the command line so far is about, as far as this machine knows it."""
    scope = _scope(options)

    def find() -> RunRecord | None:
        if scope.run is not None:
            return scope.memory.load(scope.run)  # finding another one would need a query of the hosts
        return scope.record(for_its_hosts=True)

    return _quietly(find)


def _scope(options: Mapping[str, Any]) -> Scope:
    from dtctl.cli.scope import DEFAULTS, Scope

    given = {name: options[name] for name in DEFAULTS if name != "command" and options.get(name) is not None}
    if "config" in given:
        given["config"] = Path(given["config"])  # still text here with Typer 0.21
    return Scope("status", **given)  # offering words changes nothing


def _quietly(find: Callable[[], T]) -> T | None:
    """None where there is an error, or something to note: completion shows nothing but words."""
    from dtctl.errors import DtctlError

    try:
        with redirect_stderr(io.StringIO()):
            return find()
    except DtctlError:
        return None


INSTRUCTION = "_DTCTL_COMPLETE"
BEHIND = ":="
"""Characters that belong to the word before them and to the next one."""
BEFORE = "@"
"""Characters that belong to the next word: TASK may be @HOST. Readline replaces it with that (rl_special_prefixes)."""


@contextmanager
def whole_words(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Joins the words that bash has split, in the process that bash starts to complete a word; does nothing in any
    other.
    """
    if environ.get(INSTRUCTION, "") != "complete_bash":
        yield
        return
    words = environ.get("COMP_WORDS", "").split("\n")
    joined, begun = rejoined([*words, ""][: int(environ.get("COMP_CWORD", "0")) + 1])
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    offered = io.StringIO()
    try:
        with redirect_stdout(offered):
            yield
    finally:
        console.put("".join(f"{one_line(line.removeprefix(begun))}\n" for line in offered.getvalue().splitlines()))


def rejoined(parts: Sequence[str]) -> tuple[list[str], str]:
    """Words up to the cursor as they were typed, and the part of the last one that bash does not replace."""
    made: list[str] = []
    begun = ""
    joins = False
    for number, part in enumerate(parts):
        breaks = bool(part) and not part.strip(BEHIND + BEFORE)
        joins = joins and bool(part)  # an empty word is new: a blank precedes it
        if made and number and (joins or (breaks and part[0] in BEHIND)):
            begun = made[-1] if not breaks else made[-1] + part
            made[-1] += part
        else:
            begun = ""
            made.append(part)
        if begun.endswith(BEFORE):
            begun = begun[:-1]
        joins = breaks
    return made, begun
