"""The commands, in the groups of `dtctl --help`."""

from __future__ import annotations

import pkgutil
import platform
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

from dtctl import __version__
from dtctl.cli import commands
from dtctl.cli.effects import NAMES
from dtctl.cli.parsing import Command, Group
from dtctl.render.terminal.console import say

GROUPS = {
    "Start": {
        "init": "Write a trainer and a cluster.yaml that works at once",
        "trust": "Pin the hosts' keys after showing their fingerprints",
        "allow": "Allow what a cluster file would run on this machine",
        "check": "Check every host: network, storage, programs, clocks",
        "up": "Push the code and start every task",
        "push": "Push the code and start nothing",
    },
    "Watch": {
        "status": "Show the state of the run and what is wrong",
        "top": "Watch the run on a full screen",
        "dashboard": "Watch the run in a browser",
        "logs": "Show what tasks print",
        "events": "List what happened, attempt by attempt",
        "metrics": "Show loss, accuracy and other scalars",
        "tensorboard": "Run TensorBoard next to the event files",
        "report": "Write one page about the run",
        "wait": "Wait for the run to finish; its result is the exit code",
        "runs": "List the cluster's runs",
    },
    "Repair": {
        "diagnose": "Find out what is wrong, and what to do about it",
        "dump": "Show the Python stacks of live trainers",
        "restart": "Restart tasks within their run",
        "replace": "Move the tasks of a host to another one",
        "exec": "Run a command in the environment of tasks",
        "ssh": "Log in to the host of a task",
        "checkpoints": "List, verify, pull, push or prune checkpoints",
    },
    "Stop and clean up": {
        "stop": "Stop tasks, and make sure that nothing is left",
        "down": "Stop the run and remove its files",
        "gc": "Remove what finished runs have left on the hosts",
    },
    "Cluster file": {
        "validate": "Check the cluster file",
        "plan": "Show what `up` would run, and where",
        "explain": "Explain a key, an exit code or a word",
        "schema": "Print the JSON Schema, for editors",
    },
}
"""What `dtctl --help` lists, so that it imports none of them; a command that is not named here comes last."""

OTHER = "More"

SETTINGS = {"ssh": {"allow_interspersed_args": False}}


class Commands(Mapping[str, Any]):
    """Each is imported and built when it is asked for: one is run, and there are thirty.

    A module of `commands` has a function of its own name, which is the command.
    """

    def __init__(self) -> None:
        modules = [module.name for module in pkgutil.iter_modules(commands.__path__)]
        found = {NAMES.get(name, name): f"{commands.__name__}.{name}" for name in modules}
        listed = [name for group in GROUPS.values() for name in group]
        self._modules = {name: found[name] for name in [*listed, *sorted(found.keys() - set(listed))]}
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module = import_module(self._modules[name])
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            command = alone.command(name, cls=Command, context_settings=SETTINGS.get(name))
            command(getattr(module, module.__name__.rpartition(".")[2]))
            self._built[name] = typer.main.get_command(alone)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules


class Dtctl(Group):
    """The command `dtctl` itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        listed = {name for group in GROUPS.values() for name in group}
        other = {name: self.commands[name].get_short_help_str() for name in self.commands if name not in listed}
        width = max(map(len, self.commands))
        for title, group in {**GROUPS, OTHER: other}.items():
            if group:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), line) for name, line in group.items()])


app = typer.Typer(
    name="dtctl",
    cls=Dtctl,
    help="Distributed training on plain SSH machines: close the laptop and go home.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"dtctl {__version__} (Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _options(
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colours; NO_COLOR is respected.")] = "auto",
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and Python's."),
    ] = False,
) -> None:
    if color not in ("auto", "always", "never"):
        from dtctl.errors import UsageError

        raise UsageError(
            f"--color is {color!r}, expected auto, always or never", hint="write, for example, --color never"
        )
    from dtctl.render.terminal.console import choose_color

    choose_color(color)  # type: ignore[arg-type]
