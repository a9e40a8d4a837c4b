"""What starts on this machine because a cluster file says so: hooks, and programs of local hosts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import Fact, sentence
from dtctl.model import Hook
from dtctl.render.errors import note
from dtctl.render.terminal import console
from dtctl.render.words import fold

if TYPE_CHECKING:
    from dtctl.operations.consent import Program


def show_hooks(hooks: Sequence[Hook]) -> None:
    """Before any of them runs."""
    for hook in hooks:
        note(hook_line(hook))


def show_programs(programs: Sequence[Program]) -> None:
    """Before they are allowed."""
    console.tell("this would start on this machine:")
    for line in program_lines(programs):
        console.tell(f"  {line}")


def program_lines(programs: Sequence[Program]) -> Iterator[str]:
    for one in programs:
        where = f" on {fold(one.hosts)}" if one.hosts else ""
        yield f"{one.what}{where}: {shlex.join(one.words)}"
        for name, value in one.settings.items():
            yield f"    {name}: {value}"


def show_hook_failure(name: str, why: Sequence[Fact]) -> None:
    note(f"hook {name} has failed: {sentence(why)}")


def hook_line(hook: Hook) -> str:
    """Without any value."""
    how = "the coordinator posts" if hook.post else f"{hook.run[0]} runs here"
    return f"hook {hook.name}: {how} when the run or a task of it {_when(hook)}"


_VERBS = {
    "succeeded": "has succeeded",
    "failed": "has failed",
    "stopped": "was stopped",
    "restarting": "is restarted",
    "recovered": "has recovered",
    "stalled": "stalls",
}


def _when(hook: Hook) -> str:
    verbs = [_VERBS[event] for event in hook.on]
    return " or ".join(filter(None, [", ".join(verbs[:-1]), verbs[-1]]))
