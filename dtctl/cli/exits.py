"""The exit code of a command when some of its hosts gave no answer."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from dtctl.errors import DtctlError, ExitCode


def exit_for(errors: Mapping[str, DtctlError], *, others: object) -> None:
    """Raises Exit where there are errors: 7 when `others` (what did answer) is anything, else as the first error."""
    if errors:
        raise typer.Exit(ExitCode.PARTIAL if others else next(iter(errors.values())).exit_code)
