"""What the hosts have, and what of it is free: disks, memory, GPUs, limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.values import HOME, paths_of
from dtctl.agent.records.vitals import USED_SHARE, Disk, Gpu, is_full
from dtctl.agent.rooms.check.records import GpuTaken, MachineFacts, MachineQuestion
from dtctl.model import TaskId, grouped
from dtctl.operations.findings import Finding, commonness, versions
from dtctl.plan import TaskPlan, shown_path
from dtctl.plan.hosts import output_places
from dtctl.rooms.check import Answers, CheckContext, Line, Topic, found, once

LOW_BYTES = 2 << 30
LOW_SHARE = 0.05
FEW_INODES = 1000
FEW_FILES = 1024
"""A limit of open files below this is a finding."""
FEW_THREADS = 4096

Facts = MachineFacts


def machine_questions(context: CheckContext, answers: Answers[Facts]) -> Mapping[str, MachineQuestion]:
    return once(answers, {host: _question(context, host) for host in context.hosts})


def _question(context: CheckContext, host: str) -> MachineQuestion:
    cluster = context.plan.cluster.name if context.asks_for("memory_short", "memory_taken") else None
    asks_gpus = context.asks_for("gpus_shared") or any(task.gpus for task in context.plan.may_run(host))
    rights = context.asks_for(*_BY_RIGHTS)
    return made(MachineQuestion, places=places(context, host), gpus=asks_gpus, rights=rights, cluster=cluster)


_BY_RIGHTS = ("few_files", "few_processes", "cpu_time_limited", "file_size_limited", "killed_at_logout")


def places(context: CheckContext, host: str) -> list[str]:
    """The directories that the run writes to on a host."""
    dirs = context.plan.dirs[host] if context.plan.may_run(host) else {}
    written = output_places(context.plan.cluster, dirs)
    return paths_of([*written, *(dirs[name] for name in ("work", "log") if name in dirs)])


def machine_findings(context: CheckContext, answers: Answers[Facts]) -> Iterator[Finding]:
    yield from _disks(context, answers.first)
    yield from _memory(context, answers.first)
    yield from gpu_findings(context, answers.first)
    yield from clock_findings(answers.clocks)
    yield from _limits(answers.first)


def _disks(context: CheckContext, facts: Mapping[str, Facts]) -> Iterator[Finding]:
    """One finding for all hosts that report the same path and sizes, which they usually share."""
    same = grouped(
        ((row, tuple(_disk_fields(context, host, answer["disks"], disk).items())), host)
        for host, answer in facts.items()
        for disk in answer["disks"]
        if (row := disk_row(disk)) is not None
    )
    for (row, fields), hosts in same.items():
        yield found(row, hosts, **dict(fields))
    silent = grouped((place, host) for host, answer in facts.items() for place in answer["silent"])
    for place, hosts in silent.items():
        yield found("disk_silent", hosts, where=place)


def _disk_fields(context: CheckContext, host: str, disks: Sequence[Disk], disk: Disk) -> dict[str, Any]:
    """The fields of a full disk, with what dtctl can remove from it: its own files, which are on the first disk, and
    checkpoints.
    """
    saved = context.plan.checkpoint_dirs[host]
    elsewhere = [place for place in saved if any(_is(place, other["path"]) for other in disks)]
    here = [place for place in saved if _is(place, disk["path"]) or (disk is disks[0] and place not in elsewhere)]
    return {
        "where": disk["path"],
        "free_bytes": disk["free_bytes"],
        "size_bytes": disk["size_bytes"],
        "free_files": disk["free_files"],
        **({"own": disk["path"]} if disk is disks[0] else {}),
        **({"saved": shown_path(here[0])} if here else {}),
    }


def _is(place: str, path: str) -> bool:
    """Whether `path`, as a host has resolved it, is this place."""
    return path.endswith(place[len(HOME) :]) if place.startswith(HOME) else path == place


def disk_row(disk: Disk) -> str | None:
    if is_full(disk):
        return "disk_full_before"
    if disk["free_files"] is not None and disk["free_files"] < FEW_INODES:
        return "inodes_gone"
    return "disk_low" if disk["free_bytes"] < min(LOW_BYTES, LOW_SHARE * disk["size_bytes"]) else None


def _memory(context: CheckContext, facts: Mapping[str, Facts]) -> Iterator[Finding]:
    for host, answer in facts.items():
        tasks = [task.id for task in context.plan.on_host(host) if str(task.id) in answer["took"]]
        took, machine = sum(answer["took"][str(task)] for task in tasks), answer["machine"]
        fields = {
            "took_bytes": took,
            "memory_bytes": machine["memory_bytes"],
            "available_bytes": machine["available_bytes"],
        }
        if took > machine["memory_bytes"]:
            yield found("memory_short", [host], tasks, **fields)
        elif took > machine["available_bytes"] + answer["taking_bytes"]:
            yield found("memory_taken", [host], tasks, **fields)


def _limits(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    rights: dict[str, Mapping[str, Any]] = {
        host: answer["rights"] for host, answer in facts.items() if answer["rights"] is not None
    }
    for row, what, least in (("few_files", "open_files", FEW_FILES), ("few_processes", "processes", FEW_THREADS)):
        few = grouped((own[what], host) for host, own in rights.items() if own[what] is not None and own[what] < least)
        for number, hosts in few.items():
            yield found(row, hosts, **{what: number})
    for row, what in (("cpu_time_limited", "cpu_s"), ("file_size_limited", "file_bytes")):
        for number, hosts in grouped(
            (own[what], host) for host, own in rights.items() if own[what] is not None
        ).items():
            yield found(row, hosts, **{what: number})
    if ended := [host for host, own in rights.items() if own["kills_at_logout"] and not own["lingers"]]:
        yield found("killed_at_logout", ended)


def machine_lines(context: CheckContext, answers: Answers[Facts]) -> Iterator[Line]:
    facts = answers.first
    machines = {host: answer["machine"] for host, answer in facts.items()}
    yield Line("system", {host: greeted.facts.get("system", "") for host, greeted in answers.greeted.items()})
    yield Line("processors", {host: machine["cpus"] for host, machine in machines.items()})
    yield Line("memory_bytes", {host: machine["memory_bytes"] for host, machine in machines.items()})
    yield Line("free memory_bytes", {host: machine["available_bytes"] for host, machine in machines.items()})
    yield Line("tasks took_bytes", {host: sum(answer["took"].values()) or None for host, answer in facts.items()})
    yield Line("GPUs", {host: gpu_text(_gpus(answer)) for host, answer in facts.items()})
    yield Line("free disk_bytes", {host: _least_free(answer) for host, answer in facts.items()})
    yield Line("clock", {host: clock_text(interval) for host, interval in answers.clocks.items()})
    rights = {host: answer["rights"] for host, answer in facts.items() if answer["rights"] is not None}
    yield Line("SELinux", {host: each["selinux"] for host, each in rights.items()})


def _least_free(answer: Facts) -> int | None:
    return min((disk["free_bytes"] for disk in answer["disks"] if disk["size_bytes"]), default=None)


OFF_S = 5.0
WRONG_S = 60.0
HERE = "this machine"


def clock_findings(clocks: Mapping[str, tuple[float, float]]) -> Iterator[Finding]:
    """Compares the clocks of the hosts and of this machine with their median; if there are two, either may be wrong."""
    if all(abs(apart(interval, 0.0)) < OFF_S for interval in clocks.values()):
        return
    every = {**clocks, HERE: (0.0, 0.0)}
    usual = _middle(every.values()) if len(clocks) > 1 else 0.0
    same = grouped(
        (("ahead of" if off > 0 else "behind", round(abs(off))), host)
        for host, interval in every.items()
        if abs(off := apart(interval, usual)) >= OFF_S
    )
    for (way, off_s), hosts in same.items():
        others = [host for host in every if host not in hosts and abs(apart(every[host], usual)) < OFF_S]
        row = "clock_wrong" if off_s >= WRONG_S else "clock_off"
        if hosts == [HERE]:
            row = "clock_wrong_here"
        asked = tuple(host for host in others if host != HERE)
        named = {"others": asked, "here": HERE if HERE in others else ""} if asked else {"others": tuple(others)}
        yield found(row, [host for host in hosts if host != HERE], off_s=off_s, way=way, **named)


def _middle(intervals: Collection[tuple[float, float]]) -> float:
    """The time that most intervals contain and that is nearest to all others; the earliest of several.

    An answer that took long, as a login does that waits for a passphrase, has wide bounds, whose own middle is no news.
    """

    def worth(time: float) -> tuple[int, float]:
        off = [abs(apart(each, time)) for each in intervals]
        return sum(each >= OFF_S for each in off), round(sum(off), 6)

    worths = {end: worth(end) for interval in intervals for end in interval}
    return min(worths, key=lambda end: (worths[end], end))


def apart(interval: tuple[float, float], usual: float) -> float:
    """The number of seconds by which a clock is certainly wrong; positive: it is ahead."""
    least, most = interval
    return least - usual if least > usual else min(0.0, most - usual)


def clock_text(interval: tuple[float, float]) -> str:
    """The clock compared with this machine's; an offset within the bounds of the measurement counts as right."""
    off = apart(interval, 0.0)
    if abs(off) < 1.0:
        return "right"
    return f"{abs(off):.0f} s {'ahead' if off > 0 else 'behind'}"


def _gpus(answer: MachineFacts) -> Sequence[Gpu]:
    known = answer["machine"]["gpus"]
    return known["each"] if known is not None else ()


def _there(answer: MachineFacts) -> set[int]:
    return {gpu["index"] for gpu in _gpus(answer) if not gpu["lost"]}


def gpu_findings(context: CheckContext, facts: Mapping[str, MachineFacts]) -> Iterator[Finding]:
    for host, answer in facts.items():
        tasks = [task for task in context.plan.on_host(host) if task.gpus]
        if not (context.brief and context.host(host).is_local):  # a run for real machines may be tried out there
            yield from _missing(host, answer, tasks)
        yield from _shared(context, host, answer)
        given = {index for task in tasks for index in task.gpus or ()} & _there(answer)
        others = [one for one in answer["gpus_taken"] if one["cluster"] != context.plan.cluster.name]
        yield from _taken("gpus_taken", host, [one for one in others if one["gpu"] in given])
        yield from _in_use(host, answer, given)
        seers = [task.id for task in context.plan.on_host(host) if task.gpus is None]
        yield from _taken("gpus_open", host, others if seers else (), seers)
    yield from _drivers(facts)


def _missing(host: str, answer: MachineFacts, tasks: Sequence[TaskPlan]) -> Iterator[Finding]:
    have = _there(answer)
    lacking = [task for task in tasks if not set(task.gpus or ()) <= have]
    known = answer["machine"]["gpus"]
    if not lacking or known is None:
        return
    wanted = ", ".join(map(str, sorted({index for task in lacking for index in task.gpus or ()} - have)))
    row = {"": "gpus_missing", "no_driver": "gpus_unseen"}.get(known["problem"], "gpus_silent")
    fields = {"have": len(have)} if row == "gpus_missing" else {"text": known["text"]}
    yield found(row, [host], [task.id for task in lacking], wanted=wanted, **fields)


def _shared(context: CheckContext, host: str, answer: MachineFacts) -> Iterator[Finding]:
    """Whether none of these tasks has GPUs of its own."""
    takers = [task.id for task in context.plan.on_host(host) if task.gpus is None]
    if _gpus(answer) and len(takers) > 1:
        yield found("gpus_shared", [host], takers, have=len(_gpus(answer)))


def _taken(row: str, host: str, others: Iterable[GpuTaken], seers: Iterable[TaskId] = ()) -> Iterator[Finding]:
    """Findings about GPUs given to tasks of the user's other runs, whether they use them now or not.

    `seers`: tasks that see them, too, as the file declares none of the host.
    """
    for run, taken in grouped((one["run"], one) for one in others).items():
        numbers = tuple(sorted({one["gpu"] for one in taken}))
        takers = tuple(dict.fromkeys(TaskId.parse(one["task"]) for one in taken))
        yield found(row, [host], seers, gpus=numbers, run=run, cluster=taken[0]["cluster"], takers=takers)


def _in_use(host: str, answer: MachineFacts, given: Collection[int]) -> Iterator[Finding]:
    """Findings about GPUs used by processes of none of the user's runs; processes of this cluster make room for a new
    run.
    """
    runs = {one["run"] for one in answer["gpus_taken"]}
    for gpu in _gpus(answer):
        users = [user for user in gpu["users"] if user["run"] not in runs]
        ours = len(users) < len(gpu["users"])
        used = bool(users) or (not ours and gpu["used_bytes"] > USED_SHARE * gpu["memory_bytes"])
        if gpu["index"] in given and used:
            from dtctl.operations.findings import used_by

            fields: dict[str, Any] = {"used_bytes": gpu["used_bytes"], "memory_bytes": gpu["memory_bytes"]}
            yield found("gpus_in_use", [host], gpu=gpu["index"], users=used_by(users), **fields)


def _drivers(facts: Mapping[str, MachineFacts]) -> Iterator[Finding]:
    drivers = versions(
        (gpu["driver"], host) for host, answer in facts.items() for gpu in _gpus(answer) if gpu["driver"]
    )
    if len(drivers) > 1:
        yield found("drivers_differ", min(drivers, key=commonness)[1], versions=drivers)


def gpu_text(gpus: Iterable[Gpu]) -> str:
    """4 x NVIDIA A100, driver 550.54"""
    kinds = Counter("lost" if gpu["lost"] else f"{gpu['name']}, driver {gpu['driver']}" for gpu in gpus)
    return "; ".join(f"{number} x {kind}" for kind, number in kinds.items())


TOPIC = Topic("machine", machine_questions, machine_findings, machine_lines)
