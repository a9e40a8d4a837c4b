"""The commands, in the groups of `dtctl --help`: the module of each, and its effect on a cluster.

The table imports none of them: one is run, and there are thirty.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Effect(Enum):
    """Decides how a command may find out which cluster is meant. The value is what docs/commands.md says of it."""

    NONE = "are about no cluster"
    FILE = "read a cluster file: the one that is named, or that of this directory"
    CHANGES = "change something: only in the cluster that is named, or in that of this directory"
    READS = "only look: without a name or a file, at the run that was started last from this machine, and say so"


class Entry(NamedTuple):
    """`module` of dtctl/cli/commands has a function of the command's name."""

    module: str
    effect: Effect
    help: str


GROUPS = {
    "Start": {
        "init": Entry("cluster_file", Effect.NONE, "Write a trainer and a cluster.yaml that works at once"),
        "trust": Entry("hosts", Effect.FILE, "Pin the hosts' keys after showing their fingerprints"),
        "allow": Entry("hosts", Effect.FILE, "Allow what a cluster file would run on this machine"),
        "check": Entry("hosts", Effect.FILE, "Check every host: network, storage, programs, clocks"),
        "up": Entry("up", Effect.FILE, "Push the code and start every task"),
        "push": Entry("up", Effect.FILE, "Push the code and start nothing"),
        "data": Entry("data", Effect.FILE, "Push, verify or drop the data set on the hosts"),
    },
    "Watch": {
        "status": Entry("status", Effect.READS, "Show the state of the run and what is wrong"),
        "top": Entry("status", Effect.READS, "Watch the run on a full screen"),
        "dashboard": Entry("browser", Effect.READS, "Watch the run in a browser"),
        "logs": Entry("logs", Effect.READS, "Show what tasks print"),
        "events": Entry("logs", Effect.READS, "List what happened, attempt by attempt"),
        "metrics": Entry("metrics", Effect.READS, "Show loss, accuracy and other scalars"),
        "tensorboard": Entry("browser", Effect.READS, "Run TensorBoard next to the event files"),
        "report": Entry("browser", Effect.READS, "Write one page about the run"),
        "wait": Entry("status", Effect.READS, "Wait for the run to finish; its result is the exit code"),
        "runs": Entry("status", Effect.READS, "List the cluster's runs"),
        "compare": Entry("status", Effect.READS, "Show runs side by side: settings, outcome, speed, metrics"),
    },
    "Repair": {
        "diagnose": Entry("status", Effect.READS, "Find out what is wrong, and what to do about it"),
        "dump": Entry("status", Effect.READS, "Show the Python stacks of live trainers"),
        "restart": Entry("restart", Effect.CHANGES, "Restart tasks within their run"),
        "scale": Entry("restart", Effect.CHANGES, "Let more or fewer workers run while the others train"),
        "drain": Entry("restart", Effect.CHANGES, "Take a host out of the run for its maintenance"),
        "undrain": Entry("restart", Effect.CHANGES, "Let the tasks of a drained host run again"),
        "replace": Entry("up", Effect.FILE, "Move the tasks of a host to another one"),
        "exec": Entry("execute", Effect.CHANGES, "Run a command in the environment of tasks"),
        "ssh": Entry("execute", Effect.CHANGES, "Log in to the host of a task"),
        "checkpoints": Entry("checkpoints", Effect.READS, "List, verify, pull, push or prune checkpoints"),
    },
    "Stop and clean up": {
        "stop": Entry("stop", Effect.CHANGES, "Stop tasks, and make sure that nothing is left"),
        "down": Entry("stop", Effect.CHANGES, "Stop the run and remove its files"),
        "gc": Entry("stop", Effect.CHANGES, "Remove what finished runs have left on the hosts"),
    },
    "Cluster file": {
        "validate": Entry("cluster_file", Effect.FILE, "Check the cluster file"),
        "plan": Entry("cluster_file", Effect.FILE, "Show what `up` would run, and where"),
        "explain": Entry("cluster_file", Effect.NONE, "Explain a key, an exit code or a term"),
        "schema": Entry("cluster_file", Effect.NONE, "Print the JSON Schema, for editors"),
    },
}

COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
"""`exec` and `ssh` count as changes, as the command may be anything."""


def may_guess(command: str) -> bool:
    """Whether a command may guess its run: only if the table lists it as one that only reads."""
    return command in COMMANDS and COMMANDS[command].effect is Effect.READS
