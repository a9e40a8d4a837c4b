"""Finds problems of GPUs: lost, with errors, throttled, slow, used by other processes, or unused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from dtctl.agent.records.vitals import Gpu
from dtctl.config.strategies import CPU_JOBS
from dtctl.model import TaskId, TaskState, grouped
from dtctl.operations.findings import Facts, Match, used_by
from dtctl.operations.snapshot import TaskStatus

LEAST_PEERS = 3
SLOW_CLOCK = 0.7
"""A clock below this share of its peers' median clock is slow."""
CAPPED = 0.6
"""A fully loaded GPU runs below its highest clock; below this share, the power limit holds it back."""
AT_WORK = 0.3
LESS_BUSY = 0.5
"""A use below this share of its peers' median use is low."""
UNUSED_S = 120.0

_OF_PROGRAMS = (13, 31, 43, 45)
"""Xid errors that follow from a bug or the end of a program."""
_XIDS = {
    48: "a memory error that could not be corrected",
    62: "its firmware has halted",
    63: "a damaged part of its memory was replaced",
    64: "a damaged part of its memory could not be replaced",
    74: "an error of NVLink",
    79: "it has fallen off the bus",
    92: "many memory errors",
    94: "a memory error that could not be corrected",
    95: "a memory error that could not be corrected",
    119: "its firmware does not answer",
    120: "an error of its firmware",
}
"""NVIDIA's Xid errors that are not caused by the program."""

_THROTTLES = {
    "thermal": "it is too hot",
    "power_cap": "its power limit",
    "power_brake": "the power supply",
    "hardware": "its protection",
}


def _on_hosts(facts: Facts, has: Callable[[Gpu], object]) -> Iterator[tuple[str, tuple[TaskId, ...], Any, list[Gpu]]]:
    """Each host, its tasks that may use such a GPU, the value of `has`, and the GPUs with that value."""
    for host in dict.fromkeys(task.host for task in facts.tasks):
        for found, gpus in grouped((has(gpu), gpu) for gpu in facts.gpus(host)).items():
            indexes = {gpu["index"] for gpu in gpus}
            tasks = [task for task in facts.on(host) if indexes & {gpu["index"] for gpu in facts.gpus_of(task)}]
            if found and tasks:
                yield host, tuple(task.id for task in tasks), found, gpus


def _indexes(gpus: list[Gpu]) -> tuple[int, ...]:
    return tuple(gpu["index"] for gpu in gpus)


def lost(facts: Facts) -> Iterator[Match]:
    """GPUs that have vanished or do not answer the driver any more."""
    for host, tasks, _, gpus in _on_hosts(facts, lambda gpu: gpu["lost"]):
        xid = next((gpu["xid"] for gpu in gpus if gpu["xid"] is not None), None)
        yield Match(tasks, (host,), {"gpus": _indexes(gpus), "xid": xid})


def unknown(facts: Facts) -> Iterator[Match]:
    """Hosts whose driver does not answer, or is missing where tasks are given GPUs."""
    known = {host: machine["gpus"] for host, machine in facts.machines().items()}
    problems = grouped(((one["problem"], one["text"]), host) for host, one in known.items() if one is not None)
    for (problem, text), hosts in problems.items():
        if problem:
            tasks = tuple(task.id for task in facts.tasks if task.host in hosts and task.id.job not in CPU_JOBS)
            yield Match(tasks, tuple(hosts), {"text": text or "its calls do not return"})


def xid(facts: Facts) -> Iterator[Match]:
    """Errors that the driver has reported of GPUs that are still there."""

    def reported(gpu: Gpu) -> int | None:
        return None if gpu["lost"] or gpu["xid"] in _OF_PROGRAMS else gpu["xid"]

    for host, tasks, number, gpus in _on_hosts(facts, reported):
        yield Match(tasks, (host,), {"gpus": _indexes(gpus), "xid": number, "about": _XIDS.get(number)})


def ecc(facts: Facts) -> Iterator[Match]:
    for host, tasks, errors, gpus in _on_hosts(facts, lambda gpu: gpu["ecc_errors"]):
        yield Match(tasks, (host,), {"gpus": _indexes(gpus), "errors": errors})


def throttled(facts: Facts) -> Iterator[Match]:
    """GPUs throttled by temperature, power supply or power limit; the limit counts only if the clock is far below the
    maximum.
    """
    for host, tasks, kinds, gpus in _on_hosts(facts, _held_back):
        fields = {
            "gpus": _indexes(gpus),
            "reasons": ", ".join(_THROTTLES[kind] for kind in kinds),
            "clock_mhz": gpus[0]["clock_mhz"],
            "most": gpus[0]["most_clock_mhz"],
            "degrees": max((gpu["degrees"] for gpu in gpus if gpu["degrees"] is not None), default=None),
        }
        yield Match(tasks, (host,), fields)


def _held_back(gpu: Gpu) -> tuple[str, ...]:
    low = (gpu["clock_mhz"] or 0) < CAPPED * (gpu["most_clock_mhz"] or 0) and (gpu["busy"] or 0.0) >= AT_WORK
    return tuple(kind for kind in gpu["throttled"] if kind != "power_cap" or low)


def slow(facts: Facts) -> Iterator[Match]:
    """GPUs whose clock or use is far below that of the others of the same kind and job."""
    running = [task for task in facts.tasks if task.state is TaskState.RUNNING]
    peers = grouped(((task.id.job, gpu["name"]), (task, gpu)) for task in running for gpu in facts.gpus_of(task))
    for group in peers.values():
        for task, gpu in group if len(group) >= LEAST_PEERS else ():
            others = [other for _, other in group if other is not gpu and not other["lost"]]
            clock = _usual([one["clock_mhz"] for one in others if (one["busy"] or 0.0) >= AT_WORK])
            busy = _usual([one["busy"] for one in others])
            own_clock, own_busy = gpu["clock_mhz"], gpu["busy"]
            slower = own_clock is not None and (own_busy or 0.0) >= AT_WORK and own_clock < SLOW_CLOCK * clock
            if _held_back(gpu):
                continue
            if slower:
                fields = {"clock_mhz": own_clock, "usual_clock_mhz": round(clock), "degrees": gpu["degrees"]}
                yield Match.of(task, gpu=gpu["index"], **fields)
            elif own_busy is not None and 0.0 < own_busy < LESS_BUSY * busy:
                yield Match.of(task, gpu=gpu["index"], use_share=own_busy, usual_share=busy)


def _usual(figures: list[Any]) -> float:
    known = [figure for figure in figures if figure is not None]
    return median(known) if len(known) >= LEAST_PEERS - 1 else 0.0


def held_by_servers(facts: Facts) -> Iterator[Match]:
    """Tasks that should see no GPU but hold GPU memory: TensorFlow allocates all of every GPU that it sees."""
    for task in facts.tasks:
        gpus = facts.gpus_of(task) if task.id.job in CPU_JOBS else []
        taken = [gpu for gpu in gpus if str(task.id) not in gpu["given"]]
        if taken:
            used = [one["used_bytes"] or 0 for gpu in taken for one in gpu["users"] if facts.is_of(one, task)]
            yield Match.of(task, gpus=_indexes(taken), used_bytes=sum(used) or None)


def strangers(facts: Facts) -> Iterator[Match]:
    """Processes of other users or programs on GPUs that the run's tasks may use."""
    for host in dict.fromkeys(task.host for task in facts.tasks):
        for gpu in facts.gpus(host):
            others = [one for one in gpu["users"] if one["run"] != facts.status.record.run]
            if others and gpu["given"]:
                tasks = tuple(task.id for task in facts.on(host) if str(task.id) in gpu["given"])
                yield Match(tasks, (host,), {"gpu": gpu["index"], "users": used_by(others), "pid": others[0]["pid"]})


def unused(facts: Facts) -> Iterator[Match]:
    """Tasks with GPUs that train without them: TensorFlow falls back to the CPU with one line in the log."""
    for task in facts.tasks:
        gpus = facts.gpus_of(task)
        if gpus and _trains(facts, task) and not any(_in_use(facts, gpu, task) for gpu in gpus):
            yield Match.of(task, gpus=_indexes(gpus))


def _trains(facts: Facts, task: TaskStatus) -> bool:
    running = task.state is TaskState.RUNNING and task.entry["step"] is not None
    return running and facts.age(task.entry["since"]) >= UNUSED_S


def _in_use(facts: Facts, gpu: Gpu, task: TaskStatus) -> bool:
    return gpu["lost"] or gpu["busy"] != 0.0 or any(facts.is_of(one, task) for one in gpu["users"])
