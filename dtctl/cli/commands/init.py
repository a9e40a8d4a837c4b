"""dtctl init"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dtctl.cli.options import OutputOption


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to write; this directory if omitted.")
    ] = Path(),
    template: Annotated[str, typer.Option("--template", metavar="NAME", help="Which trainer.")] = "ps-async",
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
    """Write a trainer and a cluster.yaml that works at once; nothing if one of the files is there already."""
    from dtctl.operations.init import (
        about_template,
        cluster_name,
        requirements,
        template_names,
        write_helper,
        write_template,
    )
    from dtctl.render import errors, tables
    from dtctl.render.machine import document, results

    if show:
        found = {name: about_template(name) for name in template_names()}
        if output == "json":
            return document.print_json("Templates", results.templates(found))
        return tables.show_templates(found)
    cluster = cluster_name(directory, name)
    written = write_helper(directory) if helper else write_template(template, directory, cluster)
    if output == "json":
        return document.print_json("Init", results.init(cluster, written))
    for path in written:
        errors.note(f"wrote {path}")
    if helper:
        return errors.note("next: it begins with the lines that the trainer needs")
    cd = [] if directory.resolve() == Path.cwd() else [f"cd {directory}"]
    needed = requirements(template)
    needs = f"; it needs {', '.join(needed)}" if needed else ""
    return errors.note("next:", *cd, f"dtctl up --local -f    train on this machine{needs}")
