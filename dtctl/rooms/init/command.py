"""dtctl init"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dtctl.cli.late import console, document, errors, rooms
from dtctl.cli.options import OutputOption


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to write; this directory if omitted.")
    ] = Path(),
    template: Annotated[str, typer.Option("--template", metavar="NAME", help="Which trainer.")] = "ps-async",
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="SOURCE", help="Only a cluster.yaml, from a hostfile or the like: see import."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The cluster's name; that of the directory if omitted.")
    ] = None,
    helper: Annotated[
        bool,
        typer.Option("--helper", help="Write only graceful.py, with which a trainer of your own saves on SIGTERM."),
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="Show the templates, and when to choose which.")] = False,
    output: OutputOption = "text",
) -> None:
    """Write a trainer and a cluster.yaml that works; no file is overwritten."""
    if show:
        found = {name: rooms.init.operation.about_template(name) for name in rooms.init.operation.template_names()}
        if output == "json":
            return document.print_json("Templates", rooms.init.document.templates(found))
        return console.print_table(console.table({"TEMPLATE": [*found], "NOTE": [*found.values()]}))
    cluster = rooms.init.operation.cluster_name(directory, name)
    if source is not None:
        made = rooms.init.operation.from_source(source, directory, name)
        if output == "json":
            return document.print_json("Init", rooms.init.document.init(cluster, [made.file]))
        return errors.note(f"wrote {made.file} from {made.found.kind}; its comments say what is left to fill in")
    written = (
        rooms.init.operation.write_helper(directory)
        if helper
        else rooms.init.operation.write_template(template, directory, cluster)
    )
    if output == "json":
        return document.print_json("Init", rooms.init.document.init(cluster, written))
    for path in written:
        errors.note(f"wrote {path}")
    if helper:
        return errors.note("next: it begins with the lines that the trainer needs")
    cd = [] if directory.resolve() == Path.cwd() else [f"cd {directory}"]
    needed = rooms.init.operation.requirements(template)
    needs = f"; it needs {', '.join(needed)}" if needed else ""
    return errors.note("next:", *cd, f"dtctl up --local -f    train on this machine{needs}")
