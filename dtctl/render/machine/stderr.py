"""The stderr of a command with -o json: each line is a JSON object, and the last one gives the reason of a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtctl.errors import AgentError, ConfigError, DtctlError, Problem
from dtctl.render.machine import document
from dtctl.transport.fanout import SomeHostsFailed

_last_message = ""
"""The last message: the reason, if a command fails without an error of its own."""


def begin() -> None:
    global _last_message
    _last_message = ""


def end(exit_code: int) -> None:
    """Reports the end of a command without a reported error."""
    if exit_code:
        found = DtctlError(_last_message or f"exit code {exit_code}")
        found.exit_code = exit_code  # type: ignore[assignment]  # exec ends with that of a command
        error(found)


def error(failure: DtctlError) -> None:
    """Reports the error that ends the command.

    `problems`: each with its place in a file; `errors`: those of hosts, if several failed.
    """
    problems = document.problems(failure.problems) if isinstance(failure, ConfigError) else []
    hosts = document.errors(failure.errors) if isinstance(failure, SomeHostsFailed) else []
    document.print_json_to_stderr(
        "Error", {**_fields(failure), "problems": problems, "errors": hosts, "exitCode": int(failure.exit_code)}
    )


def host_errors(errors: Mapping[str, DtctlError]) -> None:
    """Reports hosts that gave no answer, while the command continues without them."""
    global _last_message
    for host, found in errors.items():
        _last_message = found.summary
        document.print_json_to_stderr("HostError", {**_fields(found), "host": host})


def warning(text: str, hint: str) -> None:
    document.print_json_to_stderr("Warning", {"text": text, "hint": hint})


def doubt(problem: Problem) -> None:
    (place,) = document.problems([problem])
    document.print_json_to_stderr("Warning", {"text": problem.summary, "hint": problem.hint, "place": place})


def note(text: str, next_steps: Sequence[str] = ()) -> None:
    global _last_message
    _last_message = _last_message if text.startswith("dtctl ") else text
    document.print_json_to_stderr("Note", {"text": text, "next": list(next_steps)})


def _fields(found: DtctlError) -> dict[str, Any]:
    """The fields of an error. `hintOf`: the host that sent the hint."""
    own = document.error_fields(found)
    return {**own, "hintOf": found.host or None if isinstance(found, AgentError) else None}
