"""Which runs the hosts know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dtctl.errors import DtctlError
from dtctl.model import TaskId, TaskState
from dtctl.operations.conversation import ask
from dtctl.operations.record import RunRecord
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class KnownRun:
    """A run as the hosts that were asked know it."""

    run: str
    cluster: str
    created: float
    live: bool
    """On one of its hosts at least something still runs or is to be started."""
    hosts: tuple[str, ...]
    tasks: Mapping[TaskId, TaskState]


def known_runs(record: RunRecord, transport: Transport) -> tuple[tuple[KnownRun, ...], Mapping[str, DtctlError]]:
    """Newest first; and the hosts that gave no answer."""
    outcomes = ask(record, transport, "runs")
    found: dict[str, KnownRun] = {}
    for host, answer in outcomes.results.items():
        for entry in answer["runs"]:
            if entry["host"] != host:
                continue  # another host of the inventory that shares this one's home directory; it speaks for itself
            known = found.get(entry["run"])
            tasks = {TaskId.parse(task): TaskState(state) for task, state in entry["tasks"].items()}
            found[entry["run"]] = KnownRun(
                run=entry["run"],
                cluster=entry["cluster"],
                created=entry["created"],
                live=entry["live"] or bool(known and known.live),
                hosts=(*(known.hosts if known else ()), host),
                tasks={**(known.tasks if known else {}), **tasks},
            )
    return tuple(sorted(found.values(), key=lambda run: run.created, reverse=True)), outcomes.errors
