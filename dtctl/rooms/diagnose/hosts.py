"""Shortages on hosts, tasks that are slow or have not reported a step, and differences between hosts."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from dtctl.agent.records.vitals import is_full
from dtctl.agent.run import hangs
from dtctl.model import TaskState, grouped
from dtctl.operations.findings import ENDED, LIVING, Facts, Match, commonness, versions
from dtctl.operations.pace import SILENT_S, peers_by_job, pressure, shortages
from dtctl.operations.snapshot import TaskStatus

BEHIND = 5.0
"""A task that has reported no step for this many times as long as its peers, and for SILENT_S, has fallen behind."""

PATIENCE_S = 120.0
"""A start may take this long before it is a finding."""

STARTS = 5
"""A task that takes this many times as long as its peers for its first step has not begun."""

IDLE_SOON_S = 30.0
"""A task that is idle for this long after its start, and for twice the lead's time per step, is not training silently.
"""

THROTTLED = 0.3


def behind(facts: Facts) -> Iterator[Match]:
    """Tasks that have not reported a step for long while the others of their job continue."""
    for peers in peers_by_job(facts):
        reporting = [task for task in peers if task.entry["step_time"] is not None]
        ages = {task.id: facts.age(task.entry["step_time"]) for task in reporting}
        for task in reporting if len(reporting) > 1 else ():
            age = ages[task.id]
            others = [other for name, other in ages.items() if name != task.id]
            if age >= max(SILENT_S, BEHIND * median(others)):
                yield Match.of(task, silent_s=age, others_s=median(others), **shortages(facts, task.host))


def silent(facts: Facts) -> Iterator[Match]:
    """A run that made steps and in which no task has reported one for a while."""
    if facts.status.verdict.outcome.decided:
        return
    reporting = [
        task for task in facts.tasks if task.entry["step_time"] is not None and task.state is TaskState.RUNNING
    ]
    if not reporting:
        return
    age = min(facts.age(task.entry["step_time"]) for task in reporting)
    reached = facts.status.progress.target
    if age >= SILENT_S and (reached is None or max(task.entry["step"] or 0 for task in reporting) < reached):
        idle = tuple(
            task.id for task in facts.tasks if task.state is TaskState.RUNNING and (task.entry["cpu"] or 0.0) < 0.02
        )
        seen = tuple(task.id for task in reporting)
        yield Match(seen, (), {"silent_s": age, **({"idle": idle} if idle else {})})


def slow(facts: Facts) -> Iterator[Match]:
    """Hosts with a shortage that most others do not have; without others, a shortage of memory only."""
    machines = {host: one for host, one in facts.machines().items() if host in facts.status.record.roster.values()}
    short = {host: pressure(machine) for host, machine in machines.items()}
    for host, found in short.items():
        alike = [other for other in short.values() if other.keys() & found.keys()]
        rare = {what: share for what, share in found.items() if what == "memory_low" or 2 * len(alike) <= len(short)}
        if rare and any(task.state in (TaskState.RUNNING, TaskState.STARTING) for task in facts.on(host)):
            yield Match(tuple(task.id for task in facts.on(host)), (host,), shortages(facts, host))


def full_disks(facts: Facts) -> Iterator[Match]:
    """One finding for all hosts that report the same path and sizes, which they usually share."""
    sampled = {host: [machine["full"]] if machine["full"] else [] for host, machine in facts.status.machines.items()}
    disks = {**sampled, **{host: vitals["disks"] for host, vitals in facts.hosts.items()}}
    found = grouped(
        ((disk["path"], disk["free_bytes"], disk["size_bytes"]), host)
        for host, some in disks.items()
        for disk in some
        if is_full(disk)
    )
    for (path, free_bytes, size_bytes), hosts in found.items():
        yield Match((), tuple(hosts), {"where": path, "free_bytes": free_bytes, "size_bytes": size_bytes})


def versions_differ(facts: Facts) -> Iterator[Match]:
    """Packages that train and have different versions on different hosts."""
    for package in ("tensorflow", "tensorflow-cpu", "keras", "torch", "jax", "mxnet"):
        found = versions(
            (task["packages"][package], host)
            for host, vitals in facts.hosts.items()
            for task in vitals["tasks"].values()
            if package in task["packages"]
        )
        if len(found) > 1:
            rare, *_, usual = sorted(found, key=commonness)
            yield Match((), rare[1], {"package": package, "versions": found, "version": usual[0]})


def diverged(facts: Facts) -> Iterator[Match]:
    """Losses that are NaN or infinite, in logs or event files."""
    bad = [
        task
        for task in facts.tasks
        if task.entry["loss"] is not None and task.entry["loss"].lstrip("+-") in ("nan", "inf")
    ]
    bad = [task for task in bad if task.state not in ENDED]
    going = {"continues": "continues"} if any(task.state in LIVING for task in facts.tasks) else {}
    if bad:
        step = {} if bad[0].entry["step"] is None else {"step": bad[0].entry["step"]}
        yield Match(
            tuple(task.id for task in bad),
            tuple(dict.fromkeys(task.host for task in bad)),
            {"loss": bad[0].entry["loss"], **step, **going},
        )
        return
    for host, vitals in facts.hosts.items():
        for one in vitals["diverged"]:
            found = {"loss": "not finite", "tag": one["tag"], "path": one["path"], "step": one["step"]}
            yield Match((), (host,), {**found, **going})
            return


def throttled(facts: Facts) -> Iterator[Match]:
    """Tasks that a CPU limit throttles, unless it throttles most of their job."""
    for peers in peers_by_job(facts):
        held = [task for task in peers if (task.entry["throttled"] or 0.0) >= THROTTLED]
        if 2 * len(held) <= len(peers):
            for task in held:
                used = f"{task.entry['cpu'] or 0.0:.2g}"
                yield Match.of(task, throttled_share=task.entry["throttled"], used=used, pid=task.entry["pid"])


def not_begun(facts: Facts) -> Iterator[Match]:
    """Tasks that have reported no step while most of their peers have, or were idle while the lead trained."""
    for task in facts.tasks:
        age_s = facts.age(task.entry["since"])
        took_s = _others_took(facts, task) if _is_new(task) and age_s >= PATIENCE_S else None
        if took_s is not None and age_s >= STARTS * took_s:
            idle = {"idle_s": facts.age(task.entry["idle_since"])} if task.entry["idle_since"] is not None else {}
            yield Match.of(task, age_s=age_s, others_s=took_s, **idle)


def _is_new(task: TaskStatus) -> bool:
    return task.state is TaskState.RUNNING and task.entry["step"] is None and task.id.job not in ("ps", "evaluator")


def _others_took(facts: Facts, task: TaskStatus) -> float | None:
    """The median time that the peers took for their first step. The lead is not a peer, as in many programs only the
    lead prints steps.
    """
    lead = facts.status.tasks.get(facts.status.record.lead)
    peers = [one for one in facts.tasks if one.id.job == task.id.job and one is not task and one is not lead]
    taught = [one.entry["first_step_s"] for one in peers if one.entry["step"] is not None and one.entry["first_step_s"]]
    if taught and 2 * len(taught) > len(peers):
        return max(taught)
    if lead is None or lead.entry["step"] is None or task.entry["idle_since"] is None or task.entry["since"] is None:
        return None
    soon = task.entry["idle_since"] - task.entry["since"] <= IDLE_SOON_S + 2 * lead.entry["first_step_s"]
    return lead.entry["first_step_s"] if lead.entry["first_step_s"] and soon else None


def nobody_begins(facts: Facts) -> Iterator[Match]:
    """A run that should make steps but has reported none, while every task is idle."""
    tasks = [task for task in facts.tasks if task.state is TaskState.RUNNING and task.id.job != "evaluator"]
    if facts.status.verdict.outcome.decided or not _is_to_begin(facts, tasks):
        return
    idle = {
        task.id: task.entry["idle_since"]
        for task in tasks
        if task.entry["idle_since"] is not None and task.id.job != "ps"
    }
    last = max(idle.values(), default=None)
    if any(task.entry["idle_since"] is None for task in tasks) or last is None or facts.age(last) < hangs.IDLE_S:
        return
    every = tuple(sorted(idle, key=lambda task: (idle[task], task)))
    first = hangs.idle_first(idle)
    first_task = {"first": (first,), "first_s": facts.age(idle[first])} if first is not None else {}
    ages = {"age_s": facts.age(facts.status.began), "idle_s": facts.age(last)}
    hosts = tuple(dict.fromkeys(facts.status.tasks[task].host for task in every))
    yield Match(every, hosts, {"task": every[0], **ages, **first_task})


def _is_to_begin(facts: Facts, tasks: list[TaskStatus]) -> bool:
    """Whether the run is expected to make steps: a program that counts none may wait for anything once it listens as
    expected.
    """
    counts = facts.status.progress.target is not None or any(
        task.id.job == "ps" or not task.entry["ready"] for task in tasks
    )
    return counts and not hangs.has_begun(task.entry for task in tasks)
