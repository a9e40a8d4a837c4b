"""The machine form of what commands have done that show nothing but that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.render.machine import document, status

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.operations.consent import Program
    from dtctl.operations.down import DownResult
    from dtctl.operations.execute import ExecuteResult
    from dtctl.operations.push import PushResult
    from dtctl.operations.replace import Replacement
    from dtctl.operations.restart import RestartResult
    from dtctl.operations.trust import Look, NewKeys
    from dtctl.operations.up.result import UpResult

MOST_OUTPUT = 1 << 20
"""Bytes of each stream of a place that `exec` keeps: the last ones."""


def down(outcome: DownResult) -> dict[str, Any]:
    return {
        **document.stop(outcome.stop),
        "removed": [{"host": host, "runs": list(runs)} for host, runs in outcome.removed.items()],
        "kept": [document.written(one) for one in outcome.kept],
        "notAsked": list(outcome.unasked),
    }


def allow(programs: Sequence[Program], new: Sequence[Program]) -> dict[str, Any]:
    return {"programs": [{**document.picked(one, "what hosts words settings"), "new": one in new} for one in programs]}


def push(outcome: PushResult, bundle: Bundle) -> dict[str, Any]:
    return {
        "bundle": bundle.id,
        "files": len(bundle.manifest.files),
        "sizeBytes": bundle.total_bytes,
        **document.not_pushed(bundle),
        "hosts": [{"host": host, "sentFiles": sent} for host, sent in outcome.sent_files.items()],
        "errors": document.errors(outcome.errors),
    }


def replace(exchange: Replacement, outcome: UpResult) -> dict[str, Any]:
    return {
        **document.started(exchange.cluster.name, outcome),
        **document.picked(exchange, "old=host new=newHost tasks=moved moves_the_lead=leadMoved"),
        "file": str(exchange.cluster.file),
    }


def restart(outcome: RestartResult) -> dict[str, Any]:
    return {
        "tasks": [status.task_status(task) for task in outcome.tasks],
        "errors": document.errors(outcome.errors),
    }


def trust(found: Look, pinned: Sequence[tuple[NewKeys, Sequence[Path]]]) -> dict[str, Any]:
    """`pinned`: what was pinned just now, and in which files."""
    return {
        "pinned": [
            {
                **document.picked(one.station, "name=host where"),
                "files": document.plain(files),
                "keys": [document.picked(key, "type fingerprint") for key in one.keys],
            }
            for one, files in pinned
        ],
        "unchanged": list(found.known),
        "errors": document.errors(found.errors),
    }


class Outputs:
    """Collects what `exec` prints, by place and stream; of much of it the end."""

    def __init__(self) -> None:
        self._data: dict[tuple[str, int], bytearray] = {}
        self._cut: set[tuple[str, int]] = set()

    def print(self, place: str, stream: int, data: bytes) -> None:
        """As OutputPrinter does; called by several threads, each of which has its own place."""
        kept = self._data.setdefault((place, 2 if stream == 2 else 1), bytearray())
        kept += data
        if len(kept) > MOST_OUTPUT:
            self._cut.add((place, 2 if stream == 2 else 1))
            del kept[:-MOST_OUTPUT]

    def document(self, outcome: ExecuteResult) -> dict[str, Any]:
        return {
            "results": [
                {
                    "place": place,
                    "exitCode": done.code,
                    "signal": done.signal,
                    "stdout": self._text(place, 1),
                    "stderr": self._text(place, 2),
                    "cut": any((place, stream) in self._cut for stream in (1, 2)),
                }
                for place, done in outcome.finished.items()
            ],
            "errors": document.errors(outcome.errors),
        }

    def _text(self, place: str, stream: int) -> str:
        return bytes(self._data.get((place, stream), b"")).decode("utf-8", "replace")


def init(cluster: str, files: Sequence[Path]) -> dict[str, Any]:
    return {"cluster": cluster, "files": [str(file) for file in files]}


def templates(found: Mapping[str, str]) -> dict[str, Any]:
    return {"templates": [{"name": name, "use": use} for name, use in found.items()]}
