"""The commands and their order in `dtctl --help`."""

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

ORDER = (
    *(
        "init",
        "explain",
        "validate",
        "plan",
        "trust",
        "allow",
        "check",
        "up",
        "status",
        "top",
        "diagnose",
        "logs",
        "events",
    ),
    *("metrics", "tensorboard", "report", "dashboard", "checkpoints", "dump", "wait", "restart", "replace", "stop"),
    *("down", "runs", "gc", "push", "execute", "ssh", "schema"),
)
"""Modules of `commands` and of its folder `file`; those that are not named here follow by their names."""

SETTINGS = {"ssh": {"allow_interspersed_args": False}}


class Commands(Mapping[str, Any]):
    """Each is imported and built when it is asked for: one is run, and there are thirty.

    A module of `commands` has a function of its own name, which is the command.
    """

    def __init__(self) -> None:
        modules = pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")
        found = {module.name.rpartition(".")[2]: module.name for module in modules if not module.ispkg}
        self._modules = {NAMES.get(name, name): found[name] for name in [*ORDER, *sorted(found.keys() - set(ORDER))]}
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
