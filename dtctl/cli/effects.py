"""What each command does to a cluster, which decides how it may find out which one is meant."""

from __future__ import annotations

from enum import Enum

NAMES = {"execute": "exec"}
"""Modules of `commands` whose name is not the command's."""


class Effect(Enum):
    """The value is what docs/commands.md says of it."""

    NONE = "are about no cluster"
    FILE = "read a cluster file: the one that is named, or that of this directory"
    CHANGES = "change something: only in the cluster that is named, or in that of this directory"
    READS = "only look: without a name or a file, at the run that was started last from this machine, and say so"


EFFECTS = {
    "init": Effect.NONE,
    "schema": Effect.NONE,
    "explain": Effect.NONE,
    "validate": Effect.FILE,
    "plan": Effect.FILE,
    "check": Effect.FILE,
    "trust": Effect.FILE,
    "allow": Effect.FILE,
    "up": Effect.FILE,
    "push": Effect.FILE,
    "replace": Effect.FILE,
    "stop": Effect.CHANGES,
    "down": Effect.CHANGES,
    "restart": Effect.CHANGES,
    "gc": Effect.CHANGES,
    "exec": Effect.CHANGES,
    "ssh": Effect.CHANGES,
    "status": Effect.READS,
    "diagnose": Effect.READS,
    "top": Effect.READS,
    "logs": Effect.READS,
    "events": Effect.READS,
    "metrics": Effect.READS,
    "dump": Effect.READS,
    "tensorboard": Effect.READS,
    "report": Effect.READS,
    "dashboard": Effect.READS,
    "checkpoints": Effect.READS,
    "wait": Effect.READS,
    "runs": Effect.READS,
}
"""By the names in `dtctl --help`. `exec` and `ssh` count as changes, because nobody knows what is typed there."""


def may_guess(command: str) -> bool:
    """One that is not in the table may not."""
    return EFFECTS.get(command) is Effect.READS
