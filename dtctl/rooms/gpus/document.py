"""The machine form of the GPUs of hosts."""

from __future__ import annotations

from typing import Any

from dtctl.agent.rooms.gpus.records import GpusResult
from dtctl.render.machine import document
from dtctl.render.machine.status import gpu_document
from dtctl.rooms.gpus.operation import is_free
from dtctl.transport.fanout import Outcomes


def gpus(found: Outcomes[GpusResult]) -> dict[str, Any]:
    """The sums are of all hosts that answered; `problem` is null where the GPUs are known."""
    every = [gpu for answer in found.results.values() for gpu in answer["gpus"]["each"]]
    return {
        "free": sum(map(is_free, every)),
        "total": len(every),
        "hosts": [
            {
                "host": host,
                "problem": answer["gpus"]["problem"] or None,
                "text": answer["gpus"]["text"] or None,
                "gpus": [{**gpu_document(gpu), "free": is_free(gpu)} for gpu in answer["gpus"]["each"]],
            }
            for host, answer in found.results.items()
        ],
        "errors": document.errors(found.errors),
    }
