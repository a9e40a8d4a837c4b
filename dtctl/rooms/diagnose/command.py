"""dtctl diagnose"""

from __future__ import annotations

from dtctl.cli.ending import exit_for, exit_without_run
from dtctl.cli.late import document, errors, render, rooms
from dtctl.cli.options import OutputOption, Scope, on_run


@on_run
def diagnose(scope: Scope, output: OutputOption = "text") -> None:
    """Inspect every host; report what is wrong, why, and the next command."""
    record = scope.placed()
    with scope.dialling():
        found = rooms.diagnose.operation.diagnose(record, scope.transport)
    status = scope.or_not_started(found.status)
    if status.not_started is not None:
        found = rooms.diagnose.operation.of_failed_start(status)
    if not found.status.time:
        exit_without_run(found.errors, found.status.record, found.status.without_run)
    if output == "json":
        document.print_json("Diagnosis", rooms.diagnose.document.diagnosis(found))
    else:
        rooms.diagnose.screen.show_diagnosis(found)
    errors.show_host_errors(found.errors)
    render.result.show_without_run(found.status.record, found.status.without_run)
    exit_for(found.errors, others=True)
