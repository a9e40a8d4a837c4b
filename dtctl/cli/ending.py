"""How a command ends: its exit code, and what an interrupt leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from dtctl.cli.late import errors, render
from dtctl.errors import DtctlError, ExitCode

if TYPE_CHECKING:
    from dtctl.operations.run_record import RunRecord


@contextmanager
def on_interrupt(what: str | Callable[[], Sequence[str]], *next_steps: str) -> Iterator[None]:
    """Says `what` an interrupt leaves, and what to type next; then the command ends.

    What has to be asked for answers with both, in this order.

    If two are nested, only the inner one reports.
    """

    try:
        yield
    except KeyboardInterrupt:
        errors.interrupted(*((what, *next_steps) if isinstance(what, str) else what()))
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def exit_for(errors: Mapping[str, DtctlError], *, others: object) -> None:
    """Raises Exit where there are errors: 7 when `others` (what did answer) is anything, else as the first error."""
    if errors:
        raise typer.Exit(ExitCode.PARTIAL if others else next(iter(errors.values())).exit_code)


def report_errors(errors: Mapping[str, DtctlError], *, others: object) -> None:
    """Shows why hosts gave no answer, at the end of a command, and raises Exit as `exit_for` where there are any."""
    render.errors.show_host_errors(errors)
    exit_for(errors, others=others)


def exit_without_run(errors: Mapping[str, DtctlError], record: RunRecord, hosts: Sequence[str]) -> NoReturn:
    """`hosts` know of none; why the others gave no answer is in `errors`."""
    render.errors.show_host_errors(errors)
    render.result.show_without_run(record, hosts)
    exit_for(errors, others=None)
    render.errors.note("  dtctl up    starts one")
    raise typer.Exit(ExitCode.RUN_FAILED)
