"""What people type out of other programs' habit, or in the wrong place, and what it is called here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtctl.errors import UsageError

COMMANDS = {
    "attach": "logs -f",
    "cancel": "stop",
    "clean": "gc",
    "config": "validate",
    "create": "up",
    "delete": "down",
    "deploy": "up",
    "describe": "status",
    "destroy": "down",
    "doctor": "diagnose",
    "history": "events",
    "hosts": "status",
    "kill": "stop",
    "launch": "up",
    "list": "runs",
    "login": "ssh",
    "ls": "runs",
    "monitor": "top",
    "new": "init",
    "ps": "status",
    "resume": "up",
    "rm": "down",
    "run": "up",
    "shell": "ssh",
    "start": "up",
    "submit": "up",
    "tail": "logs -f",
    "templates": "init --list",
    "terminate": "stop",
    "train": "up",
    "version": "--version",
    "watch": "top",
    "why": "diagnose",
}
"""Words of docker, kubectl, git, Slurm and everyday English -> what to type after `dtctl`."""

OPTIONS = {
    "--cluster-file": "--config",
    "--dry": "--dry-run",
    "--file": "--config",
    "--force": "--yes",
    "--format": "--output",
    "--job": "--run",
    "--key": "--identity",
    "--lines": "--tail",
    "--noop": "--dry-run",
    "--now": "--grace",
    "--private-key": "--identity",
    "--regex": "--grep",
    "--restart": "--replace",
    "--run-id": "--run",
    "--search": "--grep",
    "--silent": "--quiet",
    "--timeout": "--grace",
    "-f": "--config",
    "-w": "--watch",
    "-y": "--yes",
}
"""Options of others -> ours, where the command has it."""


def no_command(words: Sequence[str], commands: Collection[str]) -> UsageError:
    """`words`: what was typed behind `dtctl`."""
    from dtctl.errors import UsageError, did_you_mean

    word, *others = words
    summary = f"there is no command {word!r}"
    if word == "help":
        return UsageError(summary, hint=f"dtctl {' '.join([*others[:1], '-h'])}    shows what it takes")
    if word in COMMANDS:
        return UsageError(summary, hint=f"did you mean this? dtctl {' '.join([COMMANDS[word], *others])}")
    if word.endswith((".yaml", ".yml")):
        return UsageError(f"{word!r} is a file, and no command", hint=f"did you mean this? dtctl up {word}")
    if ":" in word or word.startswith("@"):
        return UsageError(f"{word!r} is a task, and no command", hint=f"did you mean this? dtctl logs {word}")
    return UsageError(summary, hint=did_you_mean(word, commands) or "dtctl -h    lists the commands")


def meant_for(group: Any, option: str, words: Sequence[str]) -> str:
    """What to type where an option of a command stands before its name: `status -c FILE`; "" where no one has it."""
    named = [command for word in words if (command := group.commands.get(word)) is not None]
    often = (group.commands[name] for name in ("status", "up", "logs", "down"))
    for command in named or (*often, *group.commands.values()):
        if any(option in one.opts for one in command.params):
            rest = [word for word in words if word != command.name]
            return " ".join([command.name, *rest])
    return ""


def other_option(name: str, own: Collection[str]) -> str:
    """A hint; empty where nothing is near."""
    from dtctl.errors import did_you_mean

    habit = OPTIONS.get(name)
    if habit in own:
        return f"did you mean '{habit}'?"
    if name == "--json" and "--output" in own:
        return "did you mean '-o json'?"
    return did_you_mean(name, [option for option in own if option.startswith("--")])


def place_for(ctx: Any, word: str, own: Collection[str]) -> str:
    """Where a word belongs that a command does not take; empty where nobody knows."""
    if "--config" in own and (word.endswith((".yaml", ".yml")) or Path(word).is_file()):
        return f"a cluster file is named by an option: {ctx.command_path} -c {word}"
    if ":" in word or word.startswith("@"):
        takers = [name for name, command in ctx.parent.command.commands.items() if _takes_tasks(command)]
        return f"commands that take tasks: {', '.join(takers)}"
    return ""


def _takes_tasks(command: Any) -> bool:
    return any(one.param_type_name == "argument" and "TASK" in (one.metavar or "") for one in command.params)
