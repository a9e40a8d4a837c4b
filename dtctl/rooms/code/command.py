"""dtctl code"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from dtctl.cli.completion import complete_runs
from dtctl.cli.late import console, document, errors, operations, render, rooms
from dtctl.cli.options import OutputOption, Scope, on_cluster


@on_cluster
def code(
    scope: Scope,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Its id; dtctl runs lists them.", autocompletion=complete_runs)
    ],
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Where to write its code; without DIR, show its commit and difference."),
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Show which code ran: its commit and difference, or bring it back into a directory."""
    record = dataclasses.replace(scope, run=run).placed()
    assert record.run is not None
    known = scope.memory.code_of(record.run)
    if directory is None:
        if record.revision is None and known is None:  # another machine has started it
            with scope.dialling():
                record = operations.status.status(record, scope.transport).record
        if output == "json":
            document.print_json("Code", rooms.code.document.code(record.run, record.revision, known))
            return
        revision = record.revision
        errors.note(f"{record.run}: {revision.shown if revision is not None else 'its code was in no repository'}")
        for text in (revision.remote, revision.note) if revision is not None else ():
            if text:
                errors.note(text)
        if known is None:
            errors.note("another machine started the run, and has its difference from the commit")
        elif known.diff:
            for line in known.diff.splitlines():
                console.say(line)
        return
    with scope.dialling():
        found = rooms.code.operation.restore(record, scope.transport, directory, known)
    if output == "json":
        document.print_json("Code", rooms.code.document.restored(found, record.revision))
        return
    files, size = render.format.count(found.files, "file"), render.format.size(found.size_bytes)
    console.say(f"{directory}: {files}, {size}, as {found.run} ran it")
    if not found.is_as_sent:
        errors.note(f"another machine started the run; only {found.host} confirms that this is its code")
