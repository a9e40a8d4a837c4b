"""What is said of hooks that run commands here."""

from __future__ import annotations

from collections.abc import Sequence

from dtctl.agent.records.reasons import Fact, sentence
from dtctl.hooks import Hook
from dtctl.render.errors import note


def show_hooks(hooks: Sequence[Hook]) -> None:
    """Before any of them runs."""
    for hook in hooks:
        note(hook_line(hook))


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
