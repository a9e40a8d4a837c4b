"""The machine form of what is wrong with a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dtctl.operations.checks import Line, Statement, fails
from dtctl.render.diagnosis import filled, happened, last_lines, remedies, words
from dtctl.render.machine.document import errors, picked, plain

if TYPE_CHECKING:
    from dtctl.agent.records.vitals import Gpu
    from dtctl.operations.checks.checking import Checked
    from dtctl.operations.diagnosis import Finding
    from dtctl.operations.diagnosis.diagnose import Diagnosis
    from dtctl.operations.up.result import UpResult


def diagnosis(found: Diagnosis) -> dict[str, Any]:
    return {
        **picked(found.status.record, "cluster run"),
        "problems": problems(found.found),
        "hosts": [
            {
                "host": host,
                **{name: value for name, value in host_vitals.items() if name in _HOST},
                "machine": {name: value for name, value in host_vitals["machine"].items() if name != "gpus"},
                "gpus": [gpu_document(gpu) for gpu in found.facts.gpus(host)],
            }
            for host, host_vitals in found.facts.hosts.items()
        ],
        "tasks": [
            {"task": task, "host": host, **{name: value for name, value in vitals.items() if name != "log"}}
            for host, host_vitals in found.facts.hosts.items()
            for task, vitals in host_vitals["tasks"].items()
        ],
        "errors": errors(found.errors),
    }


_HOST = ("machine", "disks", "busy", "unreached", "diverged")


def gpu_document(gpu: Gpu) -> dict[str, Any]:
    names = "index name driver lost busy used_bytes memory_bytes degrees clock_mhz most_clock_mhz lanes throttled"
    users = [picked(one, "pid name user used_bytes run task") for one in gpu["users"]]
    return {**picked(gpu, f"{names} ecc_errors xid given=tasks"), "users": users}


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
        "end": picked(seen.end, _END) if seen.end is not None else None,
        "waiting": [{"task": str(one.task), "seconds": round(one.for_s, 1), "says": one.text} for one in seen.waiting],
    }


_END = "code=exitCode signal at=time@ cause? times=timesInARow restarted@"


def checked(outcome: Checked) -> dict[str, Any]:
    return {
        "passed": not outcome.failed and not outcome.errors,
        "hosts": list(outcome.hosts),
        "seconds": round(outcome.seconds, 3),
        "problems": [_finding(one) for one in outcome.found if fails(one)],
        "warnings": [_finding(one) for one in outcome.found if not fails(one)],
        "topics": {topic: [_line(one) for one in lines] for topic, lines in outcome.lines.items()},
        "errors": errors(outcome.errors),
    }


def in_passing(outcome: UpResult) -> dict[str, Any]:
    """A field of what `up` prints."""
    return {"checked": checked(outcome.checked) if outcome.checked else None}


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "signature": found.signature.name,
        "level": found.signature.level.name.lower(),
        "hosts": list(found.seen.hosts),
        "tasks": [str(task) for task in found.seen.tasks],
        "means": filled(found.signature.means, words(found)),
        "remedies": remedies(found),
        "fields": plain(found.seen.fields),
    }


def _line(one: Line | Statement) -> dict[str, Any]:
    if isinstance(one, Statement):
        return {"kind": one.kind, "fields": plain(one.fields)}
    return {"what": one.what, "hosts": plain(one.values)}
