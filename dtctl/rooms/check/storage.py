"""Checks the directories of a run: every host writes to its own in the first round, and looks for those of others in
the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.values import paths_of
from dtctl.agent.rooms.check.records import Data, LookFor, StorageFacts, StorageQuestion
from dtctl.config.strategies import KVSTORE_JOBS, PS, Strategy
from dtctl.model import TaskId, grouped
from dtctl.operations.findings import Finding, commonness
from dtctl.plan import RunPlan, shown_path
from dtctl.plan.hosts import brought_along
from dtctl.rooms.check import Answers, CheckContext, Line, Statement, Topic, found
from dtctl.rooms.check.programs import Needs

ENOUGH = 3
"""The number of checkpoints for which there must be room: one is written while the last one stays, plus one in case
that one is damaged.
"""

FROM_NOTHING = ("checkpoints_not_shared", "ranks_not_shared")
"""Problems that make a lost task start over from nothing, which `recovery.allow_scratch` permits."""

Facts = StorageFacts


def storage_questions(context: CheckContext, answers: Answers[Facts]) -> Mapping[str, StorageQuestion]:
    """Asks every host to write; then asks those that must see it for what the lead's host has written."""
    if len(answers.rounds) > 1:
        return {}
    if answers.rounds:
        return _second(context, answers.first)
    if context.asks_for(*_OF_EVERY_HOST):
        return {host: _first(context, host) for host in context.hosts if context.plan.may_run(host)}
    lead = context.plan.coordinator["host"]
    looked_for = any(_is_unknown(context, host) for host in concerned(context.plan))
    saves = list(context.plan.checkpoint_dirs[lead]) if looked_for else []
    return {lead: made(StorageQuestion, token=context.token, host=lead, write=saves)} if saves else {}


_OF_EVERY_HOST = ("no_room_to_save", "little_room_to_save", "data_missing", "data_differs")
"""Signatures that need an answer of every host."""


def _is_unknown(context: CheckContext, host: str) -> bool:
    """Whether only files can show that a host sees the lead's checkpoints; not if both are this machine."""
    lead = context.plan.coordinator["host"]
    same = context.plan.checkpoint_dirs[lead] == context.plan.checkpoint_dirs[host]
    return not (same and context.host(lead).is_local and context.host(host).is_local)


def _first(context: CheckContext, host: str) -> StorageQuestion:
    plan = context.plan
    saves = list(plan.checkpoint_dirs[host]) if host in savers(plan) else []
    written = paths_of(place for name, place in plan.dirs[host].items() if name != "data")
    return made(
        StorageQuestion,
        token=context.token,
        host=host,
        write=list(dict.fromkeys([*written, *saves])),
        checkpoints=saves,
        data=list(data_places(context, host)),
    )


def _second(context: CheckContext, facts: Mapping[str, Facts]) -> Mapping[str, StorageQuestion]:
    lead = context.plan.coordinator["host"]
    answer = facts.get(lead)
    wrote = {one["path"]: one["up"] for one in (answer["written"] if answer else ()) if not one["problem"]}
    questions = {}
    for host in concerned(context.plan):
        # the n-th directory of one host corresponds to the n-th of another; home directories may differ
        pairs = zip(context.plan.checkpoint_dirs[lead], context.plan.checkpoint_dirs[host], strict=False)
        look = [made(LookFor, path=own, up=wrote[path], hosts=[lead]) for path, own in pairs if path in wrote]
        if look:
            questions[host] = made(StorageQuestion, token=context.token, host=host, look=look)
    return questions


def storage_findings(context: CheckContext, answers: Answers[Facts]) -> Iterator[Finding]:
    yield from _unwritable(answers.first)
    yield from _room(answers.first)
    yield from data_findings(context, answers.first)
    if len(answers.rounds) > 1:
        yield from sharing_findings(context, answers.rounds[1])


def _unwritable(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    same = grouped(
        ((one["path"], one["problem"], one["at"] if one["up"] else ""), host)
        for host, answer in facts.items()
        for one in answer["written"]
        if one["problem"] and not one["full"]  # the topic `machine` reports a full disk
    )
    for (path, problem, there), hosts in same.items():
        fields = {"there": there} if there else {}
        yield found("place_unwritable", hosts, where=shown_path(path), said=problem, **fields)


def _room(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    for host, answer in facts.items():
        for path, free, last in _saved(answer):
            fit = free // last
            if fit < ENOUGH:
                fields: dict[str, Any] = {"free_bytes": free, "last_bytes": last, "fit": fit}
                yield found(
                    "little_room_to_save" if fit else "no_room_to_save", [host], where=shown_path(path), **fields
                )


def _saved(answer: Facts) -> Iterator[tuple[str, int, int]]:
    """Each directory with a checkpoint: its path, its free bytes, and the size of its newest checkpoint."""
    free = {one["path"]: one["free_bytes"] for one in answer["written"] if one["at"]}
    for one in answer["checkpoints"]:
        if one["path"] in free and one["size_bytes"]:
            yield one["path"], free[one["path"]], one["size_bytes"]


def storage_lines(context: CheckContext, answers: Answers[Facts]) -> Iterator[Line | Statement]:
    if len(answers.rounds) > 1:
        yield from sharing_lines(context, answers.first, answers.rounds[1])
    lead = context.plan.coordinator["host"]
    if lead in answers.errors and concerned(context.plan):
        yield Statement("sharing_not_known", {"lead": lead})
    saving = {host: _saved(answer) for host, answer in answers.first.items() if answer["checkpoints"]}
    fitting = {host: min((free // last for _, free, last in saved), default=None) for host, saved in saving.items()}
    yield Line("checkpoints that fit", fitting)
    yield Line("data", {host: data_text(answer) for host, answer in answers.first.items() if answer["data"]})


def savers(plan: RunPlan) -> frozenset[str]:
    """Hosts that may write parts of a checkpoint: the lead's, and those of its ps tasks, or of all that train
    synchronously.
    """
    roles = {"lead"}
    if plan.strategy.keeps_parameters_on_ps:
        roles.add("ps")
    elif plan.strategy is Strategy.COLLECTIVE:
        roles.add("worker")
    return frozenset(task.host for task in plan.tasks if task.role in roles)


def concerned(plan: RunPlan) -> tuple[str, ...]:
    """Other hosts that must see, or would benefit from seeing, the files that the lead's host writes."""
    wanted = savers(plan) | {task.host for task in plan.tasks if task.role == "evaluator"}
    own = (host for host in plan.hosts if host in wanted and host != plan.coordinator["host"])
    return *own, *plan.slots


def sharing_findings(context: CheckContext, looked: Mapping[str, StorageFacts]) -> Iterator[Finding]:
    plan = context.plan
    lead = plan.coordinator["host"]
    blind = grouped(
        (one["path"], host)
        for host, answer in looked.items()
        for one in answer["looked"]
        if lead not in one["seen"] and one["path"] in plan.checkpoint_dirs[host]
    )
    for path, hosts in blind.items():
        if spares := [host for host in hosts if host in plan.slots]:
            yield found("spares_blind", spares, where=shown_path(path), lead=lead, setting=_setting(plan))
        for row, roles in _rows(context):
            tasks = _tasks(plan, hosts, roles)
            if tasks:
                places = dict.fromkeys(task.host for task in plan.tasks if task.id in tasks)
                yield found(row, places, tasks, where=shown_path(path), lead=lead, setting=_setting(plan))


def _setting(plan: RunPlan) -> str:
    """The setting in the cluster file that names the checkpoint directory."""
    return "checkpoint.dir" if plan.cluster.checkpoint_dir is not None else "dirs.output"


def _rows(context: CheckContext) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Signatures of a directory that is not shared, with the roles whose tasks they concern."""
    plan = context.plan
    yield "checkpoints_not_seen", ("evaluator",)
    if plan.strategy.keeps_parameters_on_ps:
        uses = context.needs.get(plan.lead.job, Needs()).uses
        if "saves_alone" not in uses:
            yield ("checkpoints_not_shared" if "saves_sharded" in uses else "checkpoints_perhaps_not_shared"), ("ps",)
    elif plan.strategy is Strategy.COLLECTIVE:
        uses = context.needs.get(plan.lead.job, Needs()).uses
        row = "ranks_perhaps_not_shared" if "deepspeed" in uses else "restarts_apart"
        yield ("ranks_not_shared" if "saves_by_rank" in uses else row), ("worker",)


def _tasks(plan: RunPlan, hosts: Iterable[str], roles: Iterable[str]) -> tuple[TaskId, ...]:
    there = set(hosts)
    return tuple(task.id for task in plan.tasks if task.role in roles and task.host in there)


def sharing_lines(
    context: CheckContext, wrote: Mapping[str, StorageFacts], looked: Mapping[str, StorageFacts]
) -> Iterator[Statement]:
    """The hosts that see the checkpoint directory of the lead's host, and the file system that it is on."""
    lead = context.plan.coordinator["host"]
    types = {one["path"]: one["filesystem"] for one in (wrote[lead]["written"] if lead in wrote else ())}
    seeing: dict[str, list[str]] = {}
    for host, answer in looked.items():
        for one in answer["looked"]:
            seeing.setdefault(one["path"], []).extend([host] if lead in one["seen"] else [])
    for path, hosts in seeing.items():
        where = shown_path(path)
        if hosts:
            filesystem = types.get(path) or "unknown file system"
            yield Statement("shared", {"where": where, "hosts": (lead, *hosts), "filesystem": filesystem})
        else:
            yield Statement("not_shared", {"where": where, "lead": lead})


def data_places(context: CheckContext, host: str) -> tuple[str, ...]:
    """Directories of data that already exist; data that a trainer fetches itself is not inspected."""
    cluster = context.plan.cluster
    return brought_along(cluster, cluster.hosts[host], context.plan.dirs[host])


def data_findings(context: CheckContext, facts: Mapping[str, StorageFacts]) -> Iterator[Finding]:
    by_path = grouped((one["path"], (host, one)) for host, each in facts.items() for one in each["data"])
    for path, answer in by_path.items():
        yield from _of_path(context, shown_path(path), answer)


def _of_path(context: CheckContext, path: str, answer: list[tuple[str, Data]]) -> Iterator[Finding]:
    missing = [host for host, one in answer if not one["there"]]
    if missing:
        yield found("data_missing", missing, _readers(context, missing), where=path)
    for problem, hosts in grouped((one["problem"], host) for host, one in answer if one["problem"]).items():
        yield found("data_unreadable", hosts, where=path, said=problem)
    counted = [(host, one) for host, one in answer if one["there"] and not one["problem"] and one["whole"]]
    empty = [host for host, one in counted if not one["files"]]
    full = [(host, one) for host, one in counted if one["files"]]
    if empty and full:
        yield found("data_empty", empty, where=path, others=tuple(host for host, _ in full))
    yield from _different(path, full)


def _different(path: str, full: list[tuple[str, Data]]) -> Iterator[Finding]:
    by_size = grouped(((one["files"], one["size_bytes"]), (host, one)) for host, one in full)
    if len(by_size) > 1:
        sizes = tuple(
            (f"{files} files of {size_bytes} bytes", tuple(host for host, _ in group))
            for (files, size_bytes), group in sorted(by_size.items())
        )
        yield found("data_differs", min(sizes, key=commonness)[1], where=path, versions=sizes)
    for group in by_size.values():
        by_digest = grouped((one["digest"], host) for host, one in group)
        if len(by_digest) > 1:
            odd, *_, usual = sorted(by_digest.values(), key=len)
            yield found("data_changed", odd, where=path, others=tuple(usual))


def _readers(context: CheckContext, hosts: list[str]) -> tuple[TaskId, ...]:
    servers = (PS, *KVSTORE_JOBS)
    return tuple(task.id for task in context.plan.tasks if task.host in hosts and task.id.job not in servers)


def data_text(answer: StorageFacts) -> str:
    """The files and bytes in all data directories of a host."""
    files, size = sum(one["files"] for one in answer["data"]), sum(one["size_bytes"] for one in answer["data"])
    more = "" if all(one["whole"] for one in answer["data"]) else " or more"
    return f"{files} files, {size / 1e6:.1f} MB{more}" if all(one["there"] for one in answer["data"]) else "missing"


TOPIC = Topic("storage", storage_questions, storage_findings, storage_lines)
