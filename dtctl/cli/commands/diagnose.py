"""dtctl diagnose"""

from __future__ import annotations

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import ExitCode


@on_run
def diagnose(scope: Scope, output: OutputOption = "text") -> None:
    """Look at every host of a run once, and tell what is wrong, why, and what to type."""
    from dtctl.operations.diagnosis.asking import diagnose as ask
    from dtctl.render import errors, result
    from dtctl.render.awaiting import dialling
    from dtctl.render.health import findings
    from dtctl.render.machine import diagnosis as machine
    from dtctl.render.machine import document

    record = scope.record()
    with dialling(scope.transport.dialled, scope.transport.failed):
        found = ask(record, scope.transport)
    has_run = bool(found.status.time)
    if output == "json" and has_run:
        document.print_json("Diagnosis", machine.diagnosis(found))
    elif has_run:
        findings.show_diagnosis(found)
    errors.show_host_errors(found.errors)
    result.show_without_run(found.status.record, found.status.without_run)
    exit_for(found.errors, others=has_run)
    if not has_run:
        errors.note("  dtctl up    starts one")
        raise typer.Exit(ExitCode.RUN_FAILED)
