"""The machine form of the result of `diagnose`."""

from __future__ import annotations

from typing import Any

from dtctl.render.machine.document import errors, picked
from dtctl.render.machine.status import gpu_document, problems
from dtctl.rooms.diagnose.operation import Diagnosis


def diagnosis(found: Diagnosis) -> dict[str, Any]:
    return {
        **picked(found.status.record, "cluster run"),
        "problems": problems(found.found, typed="diagnose"),
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
