"""dtctl report"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from dtctl.cli.exits import exit_for, exit_without_run
from dtctl.cli.options import OutputOption, Scope, on_run

Format = Literal["html", "md"]


@on_run
def report(
    scope: Scope,
    file: Annotated[
        str | None,
        typer.Option("-O", "--out", metavar="FILE", help="Where to write it; - is stdout. RUN.html if omitted."),
    ] = None,
    format: Annotated[  # noqa: A002 (the option's own name)
        Format | None, typer.Option("--format", metavar="html|md", help="A page, or Markdown; as FILE ends, else html.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is no report.")] = False,
    output: OutputOption = "text",
) -> None:
    """Write a page about the run: result and cause, timeline, curves, checkpoints, goodput, configuration."""
    from dtctl.operations.report.gathering import gather
    from dtctl.operations.report.writing import check_place, write_report
    from dtctl.render import errors
    from dtctl.render.awaiting import dialling
    from dtctl.render.machine import document
    from dtctl.render.report.gaps import show_unasked
    from dtctl.render.report.markdown import markdown
    from dtctl.render.report.page import page, put
    from dtctl.render.terminal.console import say
    from dtctl.render.words import size

    form = format or ("md" if file and file.endswith((".md", ".markdown")) else "html")
    if file not in (None, "-"):
        check_place(Path(str(file)), force=force)
    record = scope.record()
    with dialling(scope.transport.dialled, scope.transport.failed):
        found = gather(record, scope.transport, os.environ)
    if not found.status.time:
        exit_without_run(found)
    text = page(found) if form == "html" else markdown(found)
    if file == "-":
        put(text)
    else:
        path = Path(file or f"{found.status.record.run}.{form}")
        written = write_report(path, text, found.status.record.project, force=force)
        if output == "json":
            told = {"run": found.status.record.run, "file": str(path.absolute()), "format": form, "sizeBytes": written}
            document.print_json("Report", told)
        else:
            say(f"{path} ({size(written)})")
    errors.show_host_errors(found.errors)
    show_unasked(found.unasked)
    exit_for(found.errors, others=found.status.time)
