"""What the hosts have, and what of it is free: disks, memory, GPUs, limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dtctl.agent.records.checks import MachineFacts, MachineQuestion
from dtctl.agent.records.kinds import made
from dtctl.agent.records.vitals import Disk
from dtctl.agent.records.words import HOME
from dtctl.operations.checks import clocks, gpus
from dtctl.operations.checks.topic import Heard, Line, Scene, Topic, found, once, shown
from dtctl.operations.diagnosis.joins import FULL_BYTES, FULL_SHARE
from dtctl.operations.diagnosis.signature import Finding
from dtctl.plan.hosts import output_directories

LOW_BYTES = 2 << 30
LOW_SHARE = 0.05
FEW_INODES = 1000
FEW_FILES = 1024
"""Fewer than this many."""
FEW_THREADS = 4096

Facts = MachineFacts


def ask(scene: Scene, heard: Heard[Facts]) -> Mapping[str, MachineQuestion]:
    return once(heard, {host: _question(scene, host) for host in scene.hosts})


def _question(scene: Scene, host: str) -> MachineQuestion:
    full = not scene.brief
    cluster = scene.plan.cluster.name if full else None
    asks_gpus = full or (not scene.host(host).is_local and any(task.gpus for task in scene.plan.on_host(host)))
    return made(MachineQuestion, places=places(scene, host), gpus=asks_gpus, rights=full, cluster=cluster)


def places(scene: Scene, host: str) -> list[str]:
    """Where the run writes on a host."""
    dirs = scene.plan.dirs[host]
    written = output_directories(dirs, scene.plan.checkpoint_dirs[host])
    return [*written, *(dirs[name] for name in ("work", "log") if name in dirs)]


def judge(scene: Scene, heard: Heard[Facts]) -> Iterator[Finding]:
    yield from _disks(scene, heard.first)
    yield from _memory(scene, heard.first)
    yield from gpus.judge(scene, heard.first)
    yield from clocks.judge(heard.clocks)
    yield from _limits(heard.first)


def _disks(scene: Scene, facts: Mapping[str, Facts]) -> Iterator[Finding]:
    """One finding for all hosts that tell the same of a path, which they share as a rule."""
    alike: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    rows_of: dict[tuple[tuple[str, Any], ...], str] = {}
    for host, told in facts.items():
        for disk in told["disks"]:
            row = disk_row(disk)
            if row is not None:
                left = {name: disk[name] for name in ("free_bytes", "size_bytes", "free_files")}
                key = tuple({"where": disk["path"], **left, **_removable(scene, host, told["disks"], disk)}.items())
                rows_of[key] = row
                alike.setdefault(key, []).append(host)
    for key, hosts in alike.items():
        fields: dict[str, Any] = dict(key)
        yield found(rows_of[key], hosts, **fields)
    for place in dict.fromkeys(place for told in facts.values() for place in told["silent"]):
        yield found("disk_silent", [host for host, told in facts.items() if place in told["silent"]], where=place)


def _removable(scene: Scene, host: str, disks: Sequence[Disk], disk: Disk) -> dict[str, str]:
    """What there is on a disk that dtctl can remove: files of its own, which are on the first, and checkpoints."""
    saved = scene.plan.checkpoint_dirs[host]
    elsewhere = [place for place in saved if any(_is(place, other["path"]) for other in disks)]
    here = [place for place in saved if _is(place, disk["path"]) or (disk is disks[0] and place not in elsewhere)]
    own = {"own": disk["path"]} if disk is disks[0] else {}
    return {**own, **({"saved": shown(here[0])} if here else {})}


def _is(place: str, path: str) -> bool:
    """`path` is what a host made of the place."""
    return path.endswith(place[len(HOME) :]) if place.startswith(HOME) else path == place


def disk_row(disk: Disk) -> str | None:
    if disk["free_bytes"] < min(FULL_BYTES, FULL_SHARE * disk["size_bytes"]):
        return "disk_full_before"
    if disk["free_files"] is not None and disk["free_files"] < FEW_INODES:
        return "inodes_gone"
    return "disk_low" if disk["free_bytes"] < min(LOW_BYTES, LOW_SHARE * disk["size_bytes"]) else None


def _memory(scene: Scene, facts: Mapping[str, Facts]) -> Iterator[Finding]:
    for host, told in facts.items():
        tasks = [task.id for task in scene.plan.on_host(host) if str(task.id) in told["took"]]
        took, machine = sum(told["took"][str(task)] for task in tasks), told["machine"]
        fields = {
            "took_bytes": took,
            "memory_bytes": machine["memory_bytes"],
            "available_bytes": machine["available_bytes"],
        }
        if took > machine["memory_bytes"]:
            yield found("memory_short", [host], tasks, **fields)
        elif took > machine["available_bytes"] + told["taking_bytes"]:
            yield found("memory_taken", [host], tasks, **fields)


def _limits(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    few_files: dict[int, list[str]] = {}
    few_threads: dict[int, list[str]] = {}
    ended: list[str] = []
    for host, told in facts.items():
        rights = told["rights"]
        if rights is None:
            continue
        if rights["open_files"] is not None and rights["open_files"] < FEW_FILES:
            few_files.setdefault(rights["open_files"], []).append(host)
        if rights["processes"] is not None and rights["processes"] < FEW_THREADS:
            few_threads.setdefault(rights["processes"], []).append(host)
        if rights["kills_at_logout"] and not rights["lingers"]:
            ended.append(host)
    for number, hosts in few_files.items():
        yield found("few_files", hosts, open_files=number)
    for number, hosts in few_threads.items():
        yield found("few_processes", hosts, processes=number)
    if ended:
        yield found("killed_at_logout", ended)


def tell(scene: Scene, heard: Heard[Facts]) -> Iterator[Line]:
    facts = heard.first
    machines = {host: told["machine"] for host, told in facts.items()}
    yield Line("system", {host: greeted.facts.get("system", "") for host, greeted in heard.greeted.items()})
    yield Line("processors", {host: machine["cpus"] for host, machine in machines.items()})
    yield Line("memory_bytes", {host: machine["memory_bytes"] for host, machine in machines.items()})
    yield Line("free memory_bytes", {host: machine["available_bytes"] for host, machine in machines.items()})
    yield Line("tasks took_bytes", {host: sum(told["took"].values()) or None for host, told in facts.items()})
    yield Line("GPUs", {host: gpus.summary(told["gpus"]) for host, told in facts.items()})
    yield Line("free disk_bytes", {host: _least(told) for host, told in facts.items()})
    yield Line("clock", {host: clocks.told(interval) for host, interval in heard.clocks.items()})
    rights = {host: told["rights"] for host, told in facts.items() if told["rights"] is not None}
    yield Line("SELinux", {host: each["selinux"] for host, each in rights.items()})


def _least(told: Facts) -> int | None:
    return min((disk["free_bytes"] for disk in told["disks"] if disk["size_bytes"]), default=None)


TOPIC = Topic("machine", ask, judge, tell)
