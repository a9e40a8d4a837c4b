"""dtctl gc"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_cluster
from dtctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.operations.gc import GcResult
    from dtctl.operations.history.record import RunRecord


@on_cluster
def gc(
    scope: Scope,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Include every cluster on these hosts.")] = False,
    written: Annotated[
        bool, typer.Option("--written", help="Remove what trainers wrote, too, of clusters without a run.")
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    output: OutputOption = "text",
) -> None:
    """Remove what dead runs have left behind on the hosts, spares included: processes, old runs, unused code."""
    from dtctl.operations.gc import collect
    from dtctl.render import errors
    from dtctl.render.awaiting import dialling
    from dtctl.render.gc import show_remains
    from dtctl.render.machine import document

    record = _inventory(scope)

    def look(*, dry_run: bool) -> GcResult:
        with dialling(scope.transport.dialled, scope.transport.failed):
            return collect(record, scope.transport, every_cluster=every, written=written, dry_run=dry_run)

    if dry_run or not yes:
        found = look(dry_run=True)
    if not (dry_run or yes):
        _ask(found)
    if not dry_run:
        with scope.left(
            "hosts that were asked already still remove what is dead", "dtctl gc --dry-run    shows what is left"
        ):
            found = look(dry_run=False)
    if output == "json":
        document.print_json("Gc", document.gc(found, dry_run=dry_run))
    else:
        show_remains(found, dry_run=dry_run)
    errors.show_host_errors(found.errors)
    if any(one.survivors for one in found.remains.values()):
        raise typer.Exit(ExitCode.SURVIVORS)
    exit_for(found.errors, others=found.remains)


def _inventory(scope: Scope) -> RunRecord:
    """Includes hosts without a task."""
    record = scope.record()
    return dataclasses.replace(record, hosts={**record.others, **record.hosts})


def _ask(found: GcResult) -> None:
    """Where nobody can answer, files of dead runs go unasked; processes, and what trainers wrote, stay."""
    from dtctl.render.gc import show_remains
    from dtctl.render.terminal import console

    if not found.anything:
        return
    if not sys.stdin.isatty():
        if not (found.processes or found.written):
            return
        does = "removes what trainers wrote" if found.written else "ends processes"
        raise UsageError(f"gc {does}, so it asks first", hint="dtctl gc --dry-run    or dtctl gc --yes")
    show_remains(found, dry_run=True)
    console.confirm("End these processes and remove the files?" if found.processes else "Remove these files?")
