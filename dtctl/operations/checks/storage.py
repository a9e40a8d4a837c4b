"""The directories of a run: written on every host in the first round, and looked for on the others in the second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dtctl.agent.records.checks import LookFor, StorageFacts, StorageQuestion
from dtctl.agent.records.kinds import made
from dtctl.operations.checks import data, sharing
from dtctl.operations.checks.topic import Heard, Line, Said, Scene, Topic, found, shown
from dtctl.operations.diagnosis.signature import Finding

ENOUGH = 3
"""Checkpoints: while one is written, the last one stays, and one more in case that one is damaged."""

Facts = StorageFacts


def ask(scene: Scene, heard: Heard[Facts]) -> Mapping[str, StorageQuestion]:
    """First everybody writes; then everybody looks for what the lead's host has written."""
    if scene.brief or len(heard.rounds) > 1:
        return {}
    if not heard.rounds:
        return {host: _first(scene, host) for host in scene.hosts}
    return _second(scene, heard.first)


def _first(scene: Scene, host: str) -> StorageQuestion:
    plan = scene.plan
    saves = list(plan.checkpoint_dirs[host]) if host in sharing.savers(plan) else []
    written = [path for name, path in plan.dirs[host].items() if name != "data"]
    return made(
        StorageQuestion,
        token=scene.token,
        host=host,
        write=list(dict.fromkeys([*written, *saves])),
        checkpoints=saves,
        data=list(data.places(scene, host)),
    )


def _second(scene: Scene, facts: Mapping[str, Facts]) -> Mapping[str, StorageQuestion]:
    lead = scene.plan.coordinator.host
    told = facts.get(lead)
    wrote = {one["path"]: one["up"] for one in (told["written"] if told else ()) if not one["problem"]}
    questions = {}
    for host in sharing.concerned(scene.plan):
        # the n-th directory of one host is the n-th of another; a home may lie elsewhere there
        pairs = zip(scene.plan.checkpoint_dirs[lead], scene.plan.checkpoint_dirs[host], strict=False)
        look = [made(LookFor, path=own, up=wrote[path], hosts=[lead]) for path, own in pairs if path in wrote]
        if look:
            questions[host] = made(StorageQuestion, token=scene.token, host=host, look=look)
    return questions


def judge(scene: Scene, heard: Heard[Facts]) -> Iterator[Finding]:
    yield from _unwritable(heard.first)
    yield from _room(heard.first)
    yield from data.judge(scene, heard.first)
    if len(heard.rounds) > 1:
        yield from sharing.judge(scene, heard.rounds[1])


def _unwritable(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    alike: dict[tuple[str, str, str], list[str]] = {}
    for host, told in facts.items():
        for one in told["written"]:
            if one["problem"] and not one["full"]:  # a full disk is among the machine's
                there = one["at"] if one["up"] else ""
                alike.setdefault((one["path"], one["problem"], there), []).append(host)
    for (path, problem, there), hosts in alike.items():
        fields = {"there": there} if there else {}
        yield found("place_unwritable", hosts, where=shown(path), said=problem, **fields)


def _room(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    for host, told in facts.items():
        for path, free, last in _saved(told):
            fit = free // last
            if fit < ENOUGH:
                fields: dict[str, Any] = {"free_bytes": free, "last_bytes": last, "fit": fit}
                yield found("little_room_to_save" if fit else "no_room_to_save", [host], where=shown(path), **fields)


def _saved(told: Facts) -> Iterator[tuple[str, int, int]]:
    """Of each directory with a checkpoint: its path, what is free there, and how large the newest one is."""
    free = {one["path"]: one["free_bytes"] for one in told["written"] if one["at"]}
    for one in told["checkpoints"]:
        if one["path"] in free and one["size_bytes"]:
            yield one["path"], free[one["path"]], one["size_bytes"]


def tell(scene: Scene, heard: Heard[Facts]) -> Iterator[Line | Said]:
    if len(heard.rounds) > 1:
        yield from sharing.tell(scene, heard.rounds[1])
    lead = scene.plan.coordinator.host
    if lead in heard.errors and sharing.concerned(scene.plan):
        yield Said("sharing_not_known", {"lead": lead})
    yield Line("room for checkpoints", {host: _fit(told) for host, told in heard.first.items() if told["checkpoints"]})
    yield Line("data", {host: data.summary(told) for host, told in heard.first.items() if told["data"]})


def _fit(told: Facts) -> int | None:
    return min((free // last for _, free, last in _saved(told)), default=None)


TOPIC = Topic("storage", ask, judge, tell)
