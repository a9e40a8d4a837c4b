"""The machine form of what is wrong with a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dtctl.render.diagnosis import filled, happened, last_lines, remedies, words
from dtctl.render.machine.document import errors
from dtctl.render.words import iso_utc

if TYPE_CHECKING:
    from dtctl.operations.diagnosis.asking import Diagnosis
    from dtctl.operations.diagnosis.signature import Finding


def diagnosis(found: Diagnosis) -> dict[str, Any]:
    record = found.status.record
    return {
        "cluster": record.cluster,
        "run": record.run,
        "problems": problems(found.found),
        "hosts": [
            {"host": host, **{name: value for name, value in told.items() if name in _HOST}}
            for host, told in found.facts.hosts.items()
        ],
        "tasks": [
            {"task": task, "host": host, **{name: value for name, value in vitals.items() if name != "log"}}
            for host, told in found.facts.hosts.items()
            for task, vitals in told["tasks"].items()
        ],
        "errors": errors(found.errors),
    }


_HOST = ("machine", "disks", "busy", "gpus", "unreached", "diverged")


def problems(found: Iterable[Finding]) -> list[dict[str, Any]]:
    """The most important first."""
    return [_problem(one) for one in found]


def _problem(found: Finding) -> dict[str, Any]:
    seen = found.seen
    return {
        "signature": found.signature.name,
        "level": found.signature.level.name.lower(),
        "tasks": [str(task) for task in seen.tasks],
        "hosts": list(seen.hosts),
        "what": happened(seen) or None,
        "means": filled(found.signature.means, words(found)),
        "lastLines": last_lines(found),
        "over": seen.over,
        "remedies": remedies(found),
        "end": None
        if seen.end is None
        else {
            "exitCode": seen.end.code,
            "signal": seen.end.signal,
            "time": iso_utc(seen.end.at),
            "cause": seen.end.cause or None,
            "timesInARow": seen.end.times,
            "restarted": iso_utc(seen.end.restarted),
        },
        "waiting": [{"task": str(one.task), "seconds": round(one.for_s, 1), "says": one.text} for one in seen.waiting],
    }
