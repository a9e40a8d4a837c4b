"""The command `dtctl` itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

from dtctl import __version__
from dtctl.cli.late import errors
from dtctl.cli.parsing import Command, Group
from dtctl.cli.table import COMMANDS, GROUPS
from dtctl.errors import ExitCode, UsageError
from dtctl.render.terminal.console import choose_color, say

SETTINGS = {"ssh": {"allow_interspersed_args": False}}


class Commands(Mapping[str, Any]):
    """The commands; each is imported and built on first use."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module = import_module(f"dtctl.{COMMANDS[name].module}")
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            alone.command(name, cls=Command, context_settings=SETTINGS.get(name))(getattr(module, name))
            self._built[name] = typer.main.get_command(alone)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Dtctl(Group):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands()

    def invoke(self, ctx: Any) -> Any:
        """An interrupt of which the command says nothing more has a line, too: Typer ends without one."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            errors.below()
            errors.note("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in group.items()])


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
        say(f"dtctl {__version__} (Python {sys.version.split()[0]})")
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
        raise UsageError(
            f"--color is {color!r}, expected auto, always or never", hint="write, for example, --color never"
        )

    choose_color(color)  # type: ignore[arg-type]
