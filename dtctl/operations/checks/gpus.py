"""Whether the GPUs are there that the plan gives to tasks, and free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dtctl.agent.records.checks import MachineFacts
from dtctl.agent.records.vitals import Gpu
from dtctl.operations.checks.topic import Scene, found
from dtctl.operations.diagnosis.hosts import commonness
from dtctl.operations.diagnosis.signature import Finding
from dtctl.plan.roster import TaskPlan

USED_SHARE = 0.1
"""From which on a GPU counts as in use: a desktop takes less."""
_MOST_USERS = 3


def judge(scene: Scene, facts: Mapping[str, MachineFacts]) -> Iterator[Finding]:
    for host, told in facts.items():
        tasks = [task for task in scene.plan.on_host(host) if task.gpus]
        yield from _missing(host, told, tasks)
        if not scene.brief:
            yield from _shared(scene, host, told)
        given = {index for task in tasks for index in task.gpus or ()}
        yield from _in_use(host, told, given)
    yield from _drivers(facts)


def _missing(host: str, told: MachineFacts, tasks: Sequence[TaskPlan]) -> Iterator[Finding]:
    have = {gpu["index"] for gpu in told["gpus"]}
    lacking = [task for task in tasks if not set(task.gpus or ()) <= have]
    if not lacking or (told["drivers"] and not told["nvidia_smi"]):  # AMD's, or nvidia-smi is elsewhere
        return
    wanted = _indexes({index for task in lacking for index in task.gpus or ()} - have)
    seen = "gpus_missing" if have else "gpus_silent"
    row = seen if told["nvidia_smi"] else "gpus_unseen"
    yield found(row, [host], [task.id for task in lacking], wanted=wanted, have=len(have))


def _shared(scene: Scene, host: str, told: MachineFacts) -> Iterator[Finding]:
    """None of these tasks is told which GPUs are its own."""
    takers = [task.id for task in scene.plan.on_host(host) if task.gpus is None]
    if told["gpus"] and len(takers) > 1:
        yield found("gpus_shared", [host], takers, have=len(told["gpus"]))


def _in_use(host: str, told: MachineFacts, given: Iterable[int]) -> Iterator[Finding]:
    for gpu in told["gpus"]:
        if gpu["index"] in set(given) and gpu["used_bytes"] > USED_SHARE * gpu["memory_bytes"]:
            users = [one for one in told["gpu_users"] if one["gpu"] == gpu["index"]][:_MOST_USERS]
            named = ", ".join(f"{one['name']} of {one['user'] or '?'} (pid {one['pid']})" for one in users)
            used: dict[str, Any] = {"used_bytes": gpu["used_bytes"], "memory_bytes": gpu["memory_bytes"]}
            yield found("gpus_in_use", [host], gpu=gpu["index"], users=named, **used)


def _drivers(facts: Mapping[str, MachineFacts]) -> Iterator[Finding]:
    by_version: dict[str, list[str]] = {}
    for host, told in facts.items():
        for version in {gpu["driver"] for gpu in told["gpus"]}:
            by_version.setdefault(version, []).append(host)
    if len(by_version) > 1:
        versions = tuple((version, tuple(hosts)) for version, hosts in sorted(by_version.items()))
        rare = min(versions, key=commonness)
        yield found("drivers_differ", rare[1], versions=versions)


def summary(gpus: Iterable[Gpu]) -> str:
    """4 x NVIDIA A100, driver 550.54"""
    kinds = Counter((gpu["name"], gpu["driver"]) for gpu in gpus)
    return "; ".join(f"{number} x {name}, driver {driver}" for (name, driver), number in kinds.items())


def _indexes(indexes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(indexes)))
