"""The machine form of runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtctl.render.machine import document
from dtctl.render.machine.document import picked
from dtctl.render.machine.status import revision
from dtctl.rooms.pages.comparing import Between, Compared, Comparison


def comparison(found: Comparison, code: Sequence[Between] = ()) -> dict[str, Any]:
    return {
        "runs": [_compared(one) for one in found.runs.values()],
        "differences": [
            {"key": key, "values": dict(zip(found.runs, values, strict=True))}
            for key, values in found.differences.items()
        ],
        "code": [picked(one, "old new added=addedCommits removed=removedCommits files difference") for one in code],
        "errors": [{"run": run, **document.error_fields(error)} for run, error in found.errors.items()],
    }


def _compared(compared: Compared) -> dict[str, Any]:
    roster = compared.status.record.roster
    progress = "status.progress.step status.progress.target=targetStep status.progress.loss steps_per_s=stepsPerSecond"
    kept = "goodput.share=goodput restarts status.newest_complete.step=checkpointStep"
    return {
        **picked(compared, "status.record.run status.record.cluster status.verdict.outcome"),
        **document.reasoned(compared.status.verdict.why),
        **picked(compared, f"status.record.created=startTime@ duration_s {progress} {kept}"),
        "hosts": list(dict.fromkeys(roster.values())),
        "tasks": len(roster),
        "stepParts": {**dict(compared.parts.each()), "seconds": compared.parts.step_s} if compared.parts else None,
        "metrics": {name: picked(metric, "last best") for name, metric in compared.metrics.items()},
        **picked(compared, "settings"),
        "revision": revision(compared.status.record.revision),
        "errors": document.errors(compared.errors),
    }
