"""The commands and their order in `dtctl --help`."""

from __future__ import annotations

import pkgutil
import platform
from importlib import import_module
from typing import Annotated

import typer

from dtctl import __version__
from dtctl.cli import commands
from dtctl.cli.effects import NAMES
from dtctl.cli.parsing import Command, Group
from dtctl.render.terminal.console import say

ORDER = (
    *("init", "explain", "validate", "plan", "trust", "check", "up", "status", "top", "diagnose", "logs", "events"),
    *("metrics", "tensorboard", "report", "dashboard", "checkpoints", "dump", "wait", "restart", "replace", "stop"),
    *("down", "runs", "gc", "push", "execute", "ssh", "schema"),
)
"""Modules of `commands` and of its folder `file`; those that are not named here follow by their names."""

SETTINGS = {"ssh": {"allow_interspersed_args": False}}

app = typer.Typer(
    name="dtctl",
    cls=Group,
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


def _add_commands() -> None:
    """Each module of `commands` has a function of its own name, which is the command."""
    modules = pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")
    found = {module.name.rpartition(".")[2]: module.name for module in modules if not module.ispkg}
    for name in [*ORDER, *sorted(found.keys() - set(ORDER))]:
        command = app.command(NAMES.get(name), cls=Command, context_settings=SETTINGS.get(name))
        command(getattr(import_module(found[name]), name))


_add_commands()
