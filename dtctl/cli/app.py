"""The commands and their order in `dtctl --help`."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from dtctl import __version__
from dtctl.cli.commands import (
    checkpoints,
    down,
    events,
    execute,
    gc,
    init,
    logs,
    plan,
    push,
    replace,
    restart,
    runs,
    schema,
    ssh,
    status,
    stop,
    trust,
    up,
    validate,
    wait,
)
from dtctl.render.terminal.console import say

app = typer.Typer(
    name="dtctl",
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
        raise typer.BadParameter(f"{color!r} is none of auto, always, never", param_hint="--color")
    from dtctl.render.terminal.console import choose_color

    choose_color(color)  # type: ignore[arg-type]


app.command()(init.init)
app.command()(validate.validate)
app.command()(plan.plan)
app.command()(trust.trust)
app.command()(up.up)
app.command()(status.status)
app.command()(logs.logs)
app.command()(events.events)
app.command()(checkpoints.checkpoints)
app.command()(wait.wait)
app.command()(restart.restart)
app.command()(replace.replace)
app.command()(stop.stop)
app.command()(down.down)
app.command()(runs.runs)
app.command()(gc.gc)
app.command()(push.push)
app.command("exec")(execute.execute)
app.command(context_settings={"allow_interspersed_args": False})(ssh.ssh)
app.command()(schema.schema)
