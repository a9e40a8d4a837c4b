"""The machine form of what `check` has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtctl.operations.checks.topic import Line, Said, fails
from dtctl.render.diagnosis import filled, remedies, words
from dtctl.render.machine.document import errors

if TYPE_CHECKING:
    from dtctl.operations.checks.checking import Checked
    from dtctl.operations.diagnosis.signature import Finding
    from dtctl.operations.up.result import UpResult


def checked(told: Checked) -> dict[str, Any]:
    return {
        "passed": not told.failed and not told.errors,
        "hosts": list(told.hosts),
        "seconds": round(told.seconds, 3),
        "problems": [_finding(one) for one in told.found if fails(one)],
        "warnings": [_finding(one) for one in told.found if not fails(one)],
        "topics": {topic: [_line(one) for one in lines] for topic, lines in told.told.items()},
        "errors": errors(told.errors),
    }


def in_passing(outcome: UpResult) -> dict[str, Any]:
    """Beside what else `up` tells."""
    return {"checked": checked(outcome.checked) if outcome.checked else None}


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "signature": found.signature.name,
        "level": found.signature.level.name.lower(),
        "hosts": list(found.seen.hosts),
        "tasks": [str(task) for task in found.seen.tasks],
        "means": filled(found.signature.means, words(found)),
        "remedies": remedies(found),
        "fields": {name: _plain(value) for name, value in found.seen.fields.items()},
    }


def _line(one: Line | Said) -> dict[str, Any]:
    if isinstance(one, Said):
        return {"kind": one.kind, "fields": {name: _plain(value) for name, value in one.fields.items()}}
    return {"what": one.what, "hosts": {host: _plain(value) for host, value in one.values.items()}}


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
