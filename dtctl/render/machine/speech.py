"""What a command with -o json says on stderr: each line is a JSON object, and the last one says why it failed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dtctl.errors import AgentError, ConfigError, DtctlError, Problem
from dtctl.render.machine import document
from dtctl.render.terminal import console
from dtctl.transport.fanout import SomeHostsFailed


def error(found: DtctlError) -> None:
    """The command ends with it. `problems`: each with its place in a file; `errors`: of hosts, where several failed."""
    problems = document.problems(found.problems) if isinstance(found, ConfigError) else []
    hosts = document.errors(found.errors) if isinstance(found, SomeHostsFailed) else []
    _say("Error", {**_fields(found), "problems": problems, "errors": hosts, "exitCode": int(found.exit_code)})


def host_errors(errors: Mapping[str, DtctlError]) -> None:
    """Hosts that gave no answer, where the command goes on without them."""
    for host, found in errors.items():
        _say("HostError", {**_fields(found), "host": host})


def warning(text: str, hint: str) -> None:
    _say("Warning", {"text": text, "hint": hint})


def doubt(problem: Problem) -> None:
    (place,) = document.problems([problem])
    _say("Warning", {"text": problem.summary, "hint": problem.hint, "place": place})


def note(text: str, next_steps: Sequence[str] = ()) -> None:
    _say("Note", {"text": text, "next": list(next_steps)})


def _fields(found: DtctlError) -> dict[str, Any]:
    """`hintOf`: the host whose words the hint is."""
    return {
        "error": found.summary,
        "detail": found.detail,
        "hint": found.hint,
        "hintOf": found.host or None if isinstance(found, AgentError) else None,
        "code": getattr(found, "code", None),
    }


def _say(kind: str, body: Mapping[str, Any]) -> None:
    whole = document.valid({"apiVersion": document.API_VERSION, "kind": kind, **body})
    console.put(json.dumps(whole, allow_nan=False) + "\n", stderr=True)
