"""Whether the data is there, and the same on all hosts that read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dtctl.agent.records.checks import Data, StorageFacts
from dtctl.model import TaskId
from dtctl.operations.checks.topic import Scene, found, shown
from dtctl.operations.diagnosis.hosts import commonness
from dtctl.operations.diagnosis.signature import Finding
from dtctl.plan.hosts import brought_along
from dtctl.strategies import KVSTORE_JOBS, PS


def places(scene: Scene, host: str) -> tuple[str, ...]:
    """Data that is there already; what a trainer fetches by itself is not looked at."""
    cluster = scene.plan.cluster
    return brought_along(cluster, cluster.hosts[host], scene.plan.dirs[host])


def judge(scene: Scene, facts: Mapping[str, StorageFacts]) -> Iterator[Finding]:
    told = [(host, one) for host, each in facts.items() for one in each["data"]]
    for path in dict.fromkeys(one["path"] for _, one in told):
        yield from _of_path(scene, shown(path), [(host, one) for host, one in told if one["path"] == path])


def _of_path(scene: Scene, path: str, told: list[tuple[str, Data]]) -> Iterator[Finding]:
    missing = [host for host, one in told if not one["there"]]
    if missing:
        yield found("data_missing", missing, _readers(scene, missing), where=path)
    for problem in dict.fromkeys(one["problem"] for _, one in told if one["problem"]):
        hosts = [host for host, one in told if one["problem"] == problem]
        yield found("data_unreadable", hosts, where=path, said=problem)
    counted = [(host, one) for host, one in told if one["there"] and not one["problem"] and one["whole"]]
    empty = [host for host, one in counted if not one["files"]]
    full = [(host, one) for host, one in counted if one["files"]]
    if empty and full:
        yield found("data_empty", empty, where=path, others=tuple(host for host, _ in full))
    yield from _different(path, full)


def _different(path: str, full: list[tuple[str, Data]]) -> Iterator[Finding]:
    by_size: dict[tuple[int, int], list[tuple[str, Data]]] = {}
    for host, one in full:
        by_size.setdefault((one["files"], one["size_bytes"]), []).append((host, one))
    if len(by_size) > 1:
        versions = tuple(
            (f"{files} files of {size_bytes} bytes", tuple(host for host, _ in group))
            for (files, size_bytes), group in sorted(by_size.items())
        )
        rare = min(versions, key=commonness)
        yield found("data_differs", rare[1], where=path, versions=versions)
    for group in by_size.values():
        by_digest: dict[str, list[str]] = {}
        for host, one in group:
            by_digest.setdefault(one["digest"], []).append(host)
        if len(by_digest) > 1:
            odd, *_, usual = sorted(by_digest.values(), key=len)
            yield found("data_changed", odd, where=path, others=tuple(usual))


def _readers(scene: Scene, hosts: list[str]) -> tuple[TaskId, ...]:
    servers = (PS, *KVSTORE_JOBS)
    return tuple(task.id for task in scene.plan.tasks if task.host in hosts and task.id.job not in servers)


def summary(told: StorageFacts) -> str:
    """Of all directories of a host."""
    files, size = sum(one["files"] for one in told["data"]), sum(one["size_bytes"] for one in told["data"])
    more = "" if all(one["whole"] for one in told["data"]) else " or more"
    return f"{files} files, {size / 1e6:.1f} MB{more}" if all(one["there"] for one in told["data"]) else "missing"
