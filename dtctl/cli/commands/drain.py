"""dtctl drain, undrain"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.commands.stop import LOOK, Grace, still_stopping
from dtctl.cli.ending import exit_for
from dtctl.cli.options import OutputOption, Scope, on_run, seconds
from dtctl.cli.scope import Announced

if TYPE_CHECKING:
    from dtctl.operations.stop import Ending

HostName = Annotated[str, typer.Argument(metavar="HOST", help="A host of the run, as the cluster file names it.")]


@on_run
def drain(scope: Scope, host: HostName, grace: Grace = None, output: OutputOption = "text") -> None:
    """End the tasks of a host, and keep them away from it until `undrain`; the run pauses if it needs them."""
    from dtctl.operations.client.conversation import controller_name
    from dtctl.operations.drain import drain as take_out
    from dtctl.operations.stop import StopOrder
    from dtctl.render import errors, result
    from dtctl.render.machine import document, results
    from dtctl.render.progress import StopProgress

    record = scope.record()
    order = StopOrder(controller_name(), seconds(grace) if grace is not None else None)

    def announce(found: Ending) -> None:
        if output == "text" and set(found.hosts) - {host}:
            errors.note(
                "the whole run pauses: it cannot continue without this host", f"dtctl undrain {host}    ends that"
            )

    before = Announced(scope, record, f"draining {host}, which ends", say=output == "text", agreed=announce)
    progress = StopProgress(quiet=output == "json", dialled=scope.transport.dialled, failed=scope.transport.failed)
    with scope.on_interrupt(lambda: still_stopping(progress), LOOK, announced=before):
        with progress:
            outcome = take_out(record, scope.transport, host, order, progress, before)
        if output == "json":
            document.print_json("Drain", results.drain(host, outcome))
            errors.show_host_errors(outcome.errors)
        else:
            result.show_drained(host, outcome)
    if code := result.stop_exit_code(outcome):
        raise typer.Exit(code)


@on_run
def undrain(scope: Scope, host: HostName, output: OutputOption = "text") -> None:
    """Let the tasks run again that `drain` holds; those that need each other start together."""
    from dtctl.operations.client.conversation import controller_name
    from dtctl.operations.drain import undrain as take_back
    from dtctl.render import errors
    from dtctl.render.machine import document, results
    from dtctl.render.result import show_away, show_restarted

    record = scope.record()
    before = Announced(scope, record, f"undraining {host}, which starts", say=output == "text")
    with scope.on_interrupt("the hosts start what they were asked to", LOOK, announced=before):
        outcome = take_back(record, scope.transport, host, by=controller_name(), before=before)
        if output == "json":
            document.print_json("Undrain", results.restart(outcome))
        else:
            show_restarted(outcome)
            show_away(outcome)
            if not (outcome.tasks or outcome.errors):
                errors.note(f"{host} is not drained")
        errors.show_host_errors(outcome.errors)
    exit_for(outcome.errors, others=outcome.tasks)
