"""The commands, in the groups of `dtctl --help`: the module of each, and its effect on a cluster.

The table imports none of them: one is run, and there are thirty.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from dtctl.rooms import ROOMS


class Effect(Enum):
    """Decides how a command may find out which cluster is meant. The value is what docs/commands.md says of it."""

    NONE = "are about no cluster"
    FILE = "read a cluster file: the one that is named, or that of this directory"
    CHANGES = "change something: only in the cluster that is named, or in that of this directory"
    READS = "only look: without a name or a file, at the run that was started last from this machine, and say so"


class Entry(NamedTuple):
    """`module` of dtctl has a function of the command's name. `here`: as in rooms.Command."""

    module: str
    effect: Effect
    help: str
    here: bool = False


_CORE = {
    "Start": {
        "trust": Entry("cli.commands.hosts", Effect.FILE, "Pin the hosts' keys after showing their fingerprints"),
        "allow": Entry("cli.commands.hosts", Effect.FILE, "Allow what a cluster file would run on this machine"),
        "up": Entry("cli.commands.up", Effect.FILE, "Push the code and start every task"),
        "push": Entry("cli.commands.up", Effect.FILE, "Push the code and start nothing"),
    },
    "Watch": {
        "status": Entry("cli.commands.status", Effect.READS, "Show the state of the run and what is wrong"),
        "logs": Entry("cli.commands.logs", Effect.READS, "Show what tasks print"),
        "events": Entry("cli.commands.logs", Effect.READS, "List what happened, attempt by attempt"),
        "wait": Entry("cli.commands.status", Effect.READS, "Wait for the run to finish; its result is the exit code"),
        "runs": Entry("cli.commands.status", Effect.READS, "List the cluster's runs"),
    },
    "Repair": {
        "restart": Entry("cli.commands.restart", Effect.CHANGES, "Restart tasks within their run"),
        "scale": Entry("cli.commands.restart", Effect.CHANGES, "Let more or fewer workers run while the others train"),
        "drain": Entry("cli.commands.restart", Effect.CHANGES, "Take a host out of the run for its maintenance"),
        "undrain": Entry("cli.commands.restart", Effect.CHANGES, "Let the tasks of a drained host run again"),
        "replace": Entry("cli.commands.up", Effect.FILE, "Move the tasks of a host to another one"),
    },
    "Stop and clean up": {
        "stop": Entry("cli.commands.stop", Effect.CHANGES, "Stop tasks, and make sure that nothing is left"),
        "down": Entry("cli.commands.stop", Effect.CHANGES, "Stop the run and remove its files"),
        "gc": Entry("cli.commands.stop", Effect.CHANGES, "Remove what finished runs have left on the hosts"),
    },
    "Cluster file": {
        "validate": Entry("cli.commands.cluster_file", Effect.FILE, "Check the cluster file"),
        "plan": Entry("cli.commands.cluster_file", Effect.FILE, "Show what `up` would run, and where"),
        "explain": Entry("cli.commands.cluster_file", Effect.NONE, "Explain a key, an exit code or a term"),
        "schema": Entry("cli.commands.cluster_file", Effect.NONE, "Print the JSON Schema, for editors"),
    },
}


def _with_rooms(group: str, own: Mapping[str, Entry]) -> dict[str, Entry]:
    """The commands of a group, those of rooms among them."""
    names = list(own)
    entries = dict(own)
    for room, row in ROOMS.items():
        for name, command in row.commands.items():
            if command.group == group:
                entries[name] = Entry(f"rooms.{room}.command", Effect[command.effect], command.help, command.here)
                names.insert(names.index(command.before) if command.before else len(names), name)
    return {name: entries[name] for name in names}


GROUPS = {group: _with_rooms(group, own) for group, own in _CORE.items()}

COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
"""`exec` and `ssh` count as changes, as the command may be anything."""


def asks_hosts(command: str) -> bool:
    """Whether the command is about a run, or starts one; others of the table are about the file alone."""
    return command == "up" or (command in COMMANDS and COMMANDS[command].effect in (Effect.READS, Effect.CHANGES))


def may_guess(command: str) -> bool:
    """Whether a command may guess its run: only if the table lists it as one that only reads."""
    return command in COMMANDS and COMMANDS[command].effect is Effect.READS
