"""Tasks that are slower than their peers, and what is short on their hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from dtctl.agent.records.vitals import Busy, Machine
from dtctl.model import TaskState, grouped
from dtctl.operations.findings import Facts, Match
from dtctl.operations.snapshot import TaskStatus

SLOW_SHARE = 0.6
"""A rate below this share of its peers' median rate is slow."""


LEAST_PEERS = 3

SILENT_S = 30.0
SILENT_GAPS = 3


def silent_after_s(step_gap_s: float) -> float:
    """The time without a step after which a task is silent: some programs report only the steps of their checkpoints.

    `step_gap_s`: the time between its last two reports of a step.
    """
    return max(SILENT_S, SILENT_GAPS * step_gap_s)


PRESSED = 0.4


MEMORY_PRESSED = 0.1


STOLEN = 0.15


RESENT = 0.05


LOW_MEMORY = 0.05


def peers_by_job(facts: Facts) -> Iterable[list[TaskStatus]]:
    """The running tasks of each job."""
    return grouped((task.id.job, task) for task in facts.tasks if task.state is TaskState.RUNNING).values()


def stragglers(facts: Facts) -> Iterator[Match]:
    """Running tasks that are far slower than the others of their job, with the shortages on their hosts."""
    for peers in peers_by_job(facts):
        rates = {task.id: task.entry["rate"] for task in peers if task.entry["rate"] is not None}
        usual = median(rates.values()) if len(rates) >= LEAST_PEERS else 0.0
        for task in peers:
            rate = rates.get(task.id)
            if rate is not None and rate < SLOW_SHARE * usual:
                yield Match.of(task, rate=rate, usual=usual, **shortages(facts, task.host))


def pressure(machine: Machine) -> dict[str, float]:
    """The shortage on the host, and its size."""
    waiting = machine["waiting"]
    found = {
        "cpu_share": waiting["cpu"] if (waiting["cpu"] or 0.0) >= PRESSED else None,
        "memory_share": waiting["memory"] if (waiting["memory"] or 0.0) >= MEMORY_PRESSED else None,
        "disk_share": waiting["io"] if (waiting["io"] or 0.0) >= PRESSED else None,
        "stolen_share": machine["stolen"] if (machine["stolen"] or 0.0) >= STOLEN else None,
        "resent_share": machine["resent"] if (machine["resent"] or 0.0) >= RESENT else None,
    }
    if machine["memory_bytes"] and machine["available_bytes"] < LOW_MEMORY * machine["memory_bytes"]:
        found["memory_low"] = machine["available_bytes"] / machine["memory_bytes"]
    return {what: share for what, share in found.items() if share is not None}


def shortages(facts: Facts, host: str) -> dict[str, Any]:
    """The fields of a shortage: what is short, and which process takes it."""
    machine = facts.machines().get(host)
    vitals = facts.hosts.get(host)
    found: dict[str, Any] = dict(pressure(machine)) if machine is not None else {}
    if machine is not None:
        found.update(load=f"{machine['load']:.3g}", cpus=machine["cpus"])
        found.update(available_bytes=machine["available_bytes"], memory_bytes=machine["memory_bytes"])
    return {**found, **taker(vitals["busy"] if vitals is not None else ())}


def taker(busy: Sequence[Busy]) -> dict[str, str]:
    """The process of others that takes the most."""
    if not busy:
        return {}
    first = busy[0]
    return {"taker": f"{first['name']} of {first['user']} (pid {first['pid']})", "taker_cpus": f"{first['cpu']:.2g}"}
