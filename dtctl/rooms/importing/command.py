"""dtctl import"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dtctl.cli.late import console, document, errors, rooms
from dtctl.cli.options import OutputOption
from dtctl.errors import UsageError


def import_(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="A file, - for standard input, or a text such as gpu-1:4,gpu-2:4."),
    ] = None,
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to write cluster.yaml; this directory if omitted.")
    ] = Path(),
    hosts: Annotated[
        str | None, typer.Option("-H", "--hosts", metavar="HOST:SLOTS,...", help="Hosts as for mpirun, as SOURCE.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="hostfile, deepspeed, hosts, addresses, clush, ansible, tfjob, tf_config or ssh_config; recognised if "
            "omitted.",
        ),
    ] = None,
    job: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="JOB=GROUP", help="A group or range of hosts that becomes a job."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The cluster's name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the cluster.yaml that is there.")] = False,
    show: Annotated[bool, typer.Option("--print", help="Print the file, and write nothing.")] = False,
    output: OutputOption = "text",
) -> None:
    """Write a cluster.yaml from a hostfile, an inventory, a TFJob or the like."""
    if (source is None) == (hosts is None):
        raise UsageError("name one source", hint="dtctl import hosts.ini    or: dtctl import -H gpu-1:4,gpu-2:4")
    text = source if source is not None else f"-H {hosts}"
    kind = kind or ("hosts" if source is None else None)
    made = rooms.importing.operation.make(text, directory, kind=kind, name=name, jobs=job or [])
    if not show:
        rooms.importing.operation.write(made, force=force)
    if output == "json":
        document.print_json("Import", rooms.importing.document.imported(made, written=not show))
    elif show:
        for line in made.text.rstrip("\n").split("\n"):
            console.say(line)
    else:
        errors.note(*rooms.importing.screen.summary(made))


globals()["import"] = import_
"""The command's own name is a word of Python's."""
