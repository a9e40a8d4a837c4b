"""The exit code of a command when some of its hosts gave no answer, or none has a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import typer

from dtctl.errors import DtctlError, ExitCode

if TYPE_CHECKING:
    from dtctl.operations.report.tree import Report


def exit_for(errors: Mapping[str, DtctlError], *, others: object) -> None:
    """Raises Exit where there are errors: 7 when `others` (what did answer) is anything, else as the first error."""
    if errors:
        raise typer.Exit(ExitCode.PARTIAL if others else next(iter(errors.values())).exit_code)


def exit_without_run(report: Report) -> NoReturn:
    """Says why there is nothing to report of."""
    from dtctl.render import errors, result

    errors.show_host_errors(report.errors)
    result.show_without_run(report.status.record, report.status.without_run)
    exit_for(report.errors, others=None)
    errors.note("  dtctl up    starts one")
    raise typer.Exit(ExitCode.RUN_FAILED)
