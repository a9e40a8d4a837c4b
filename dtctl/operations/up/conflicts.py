"""Conflicts of a start: ports in use, ports that the hosts choose instead, and missing hosts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dtctl.agent.records.answers import PortsResult, Prepared
from dtctl.agent.records.spec import may_be_absent
from dtctl.config.cluster import Cluster
from dtctl.config.placement import FIRST_PORT
from dtctl.config.ranges import fold
from dtctl.config.strategies import Strategy
from dtctl.errors import AgentError, DtctlError, PreflightError, TransportError, UsageError
from dtctl.model import CHOSEN_PORT, Host, TaskId
from dtctl.operations.client import Request
from dtctl.operations.client.plausible import check_tasks, wrong
from dtctl.plan import Roster, RosterEntry
from dtctl.transport.fanout import SomeHostsFailed, failures

_MOST_PORTS = 10


def refuse_taken_ports(prepared: Mapping[str, Prepared], cluster: Cluster) -> None:
    """Raises PreflightError with the ports in use on all hosts, their holders, and the command that takes others."""
    if (error := taken_ports(prepared, cluster)) is not None:
        raise error


def taken_ports(prepared: Mapping[str, Prepared], cluster: Cluster) -> PreflightError | None:
    taken = [(host, one) for host, answer in prepared.items() for one in answer["taken"]]
    if not taken:
        return None
    ports = ", ".join(map(str, sorted({one["port"] for _, one in taken})))
    lines = [f"{host}: port {one['port']} of {one['whose']} is held by {one['holder']}" for host, one in taken]
    free = [set(answer["free_from"]) for answer in prepared.values()]
    first = min(set.intersection(*free), default=None)
    return PreflightError(
        f"{'ports' if ',' in ports else 'port'} {ports} {'are' if ',' in ports else 'is'} in use on "
        f"{fold({host for host, _ in taken})}",
        detail="\n".join(lines[:_MOST_PORTS] + [f"and {len(lines) - _MOST_PORTS} more"] * (len(lines) > _MOST_PORTS)),
        hint=_remedy(cluster, {one["whose"].partition(":")[0] for _, one in taken}, first),
    )


def holders(prepared: Mapping[str, Prepared]) -> dict[str, DtctlError]:
    """The holders of a port, with the hosts that report the same."""
    taken = {host: answer["taken"][0] for host, answer in prepared.items() if answer["taken"]}
    return {
        host: PreflightError(f"{host}: port {one['port']} of {one['whose']} is held by {one['holder']}")
        for host, one in taken.items()
    }


def _remedy(cluster: Cluster, whose: set[str], first: int | None) -> str:
    own = [job for job in cluster.jobs.values() if job.own_port]
    fixed = set_by_file(cluster)
    words = []
    if first is not None:
        words += [f"--ports-from {first}"] * any(name not in fixed for name in whose)
        next_port = first
        if cluster.own_coordinator_port and "the coordinator" in whose:
            words.append(f"--set coordinator.port={first}")
        next_port = first + 1
        for job in own:
            if job.name in whose:
                words.append(f"--set jobs.{job.name}.port={next_port}")
            next_port += max(map(job.hosts.count, set(job.hosts)))
    choose = f"write ports: auto{', and no port: of a job,' if own else ''} in {cluster.file}, and the hosts choose"
    return f"dtctl up {' '.join(words)}    takes ports that are free on all hosts; or {choose}" if words else choose


def may_move(prepared: Mapping[str, Prepared], cluster: Cluster) -> bool:
    """Whether ports of the run are in use, and the file sets none of them."""
    return takes_others(cluster, [one["whose"] for answer in prepared.values() for one in answer["taken"]])


def without_ports(cluster: Cluster) -> Cluster:
    """The cluster with ports for the hosts to choose, except those that the file sets."""
    jobs = {
        name: job if job.own_port else dataclasses.replace(job, ports=(CHOSEN_PORT,) * len(job.ports))
        for name, job in cluster.jobs.items()
    }
    coordinator = cluster.coordinator_port if cluster.own_coordinator_port else CHOSEN_PORT
    return dataclasses.replace(cluster, jobs=jobs, coordinator_port=coordinator)


def wanted_ports(cluster: Cluster, host: str) -> tuple[list[TaskId], bool]:
    """The tasks of a host whose ports it chooses, and whether it chooses the coordinator's, too."""
    tasks = [
        TaskId(job.name, index)
        for job in cluster.jobs.values()
        for index, port in enumerate(job.ports)
        if port == CHOSEN_PORT and job.hosts[index] == host
    ]
    return tasks, cluster.coordinator_port == CHOSEN_PORT


def ports_request(cluster: Cluster, host: str) -> Request[PortsResult]:
    """A request to a host to choose ports."""
    tasks, coordinator = wanted_ports(cluster, host)
    names = frozenset(map(str, tasks))

    def check(_: Host, answer: PortsResult) -> None:
        check_tasks("tasks", answer["tasks"], names)
        if set(answer["tasks"]) != names or (answer["coordinator"] is not None) != coordinator:
            raise wrong("tasks", "a port for each task", None)

    return Request("ports", PortsResult, lambda _: {"tasks": sorted(names), "coordinator": coordinator}, check)


def no_ports(cluster: Cluster, host: str) -> PortsResult:
    """Placeholder ports for a host that starts nothing."""
    return {"tasks": dict.fromkeys(map(str, wanted_ports(cluster, host)[0]), FIRST_PORT), "coordinator": FIRST_PORT}


def with_chosen(cluster: Cluster, chosen: Mapping[str, PortsResult]) -> Cluster:
    """The cluster with the ports that its hosts have chosen."""

    def port(task: TaskId, configured: int) -> int:
        return configured if configured != CHOSEN_PORT else chosen[cluster.host_of(task).name]["tasks"][str(task)]

    jobs = {
        name: dataclasses.replace(
            job, ports=tuple(port(TaskId(name, index), configured) for index, configured in enumerate(job.ports))
        )
        for name, job in cluster.jobs.items()
    }
    voting = {host: answer["coordinator"] for host, answer in chosen.items() if answer["coordinator"] is not None}
    coordinator = cluster.coordinator_port
    if coordinator == CHOSEN_PORT:
        coordinator = voting[cluster.host_of(cluster.lead).name]
    return dataclasses.replace(cluster, jobs=jobs, coordinator_port=coordinator, voter_ports=voting)


_OF_THE_HOST = frozenset(
    {
        "bad_host",
        "bundle_damaged",
        "damaged",
        "disk_full",
        "not_a_directory",
        "permission_denied",
        "port_taken",
        "python_too_old",
        "setup_failed",
        "would_be_killed",
    }
)
"""Error codes that mean a host cannot run its tasks. Other codes are about the run, or about dtctl."""


def check_may_go_without(roster: Roster) -> None:
    """Raises UsageError if no host can be left out."""
    if any(is_dispensable(roster, host) for host in roster.hosts):
        return
    why = {
        Strategy.ASYNC_PS: f"each host has a task that the others need: a ps, or the lead {roster.lead}",
        Strategy.SINGLE: f"{roster.lead} trains alone",
    }.get(roster.strategy, f"with {roster.strategy.value} every task waits for the others")
    raise UsageError(
        f"--allow-missing cannot help here: {why}",
        hint="strategy: async-ps can start without workers, if recovery.mode is auto or task; dtctl explain strategy",
    )


def is_dispensable(roster: Roster, host: str) -> bool:
    """Whether the run can do without all of the host's tasks."""
    return all(_may_be_absent(roster, task) for task in tasks_on(roster, host))


def tasks_on(roster: Roster, host: str) -> Sequence[RosterEntry]:
    return [task for task in roster.tasks if task.host == host]


def left_out(
    roster: Roster,
    allowed: int | None,
    doing: str,
    errors: Mapping[str, DtctlError],
    already: Mapping[str, DtctlError],
    spares: Sequence[str] = (),
) -> Mapping[str, DtctlError]:
    """The hosts in `errors` that the start leaves out, and why. `already`: those before them.

    `allowed`: how many in all; None without a limit. `spares`: those that could take tasks. Raises for a host
    that is needed, or whose answer is about the run, and for more than are allowed.
    """
    if not errors:
        return {}
    errors, tried = failures(errors), errors
    every = {**already, **errors}
    needed = {host: error for host, error in errors.items() if not _can_be_left_out(roster, host, error)}
    if needed or allowed is None or len(every) > allowed:
        words = [*_take_spare(spares, every), _hint(roster, allowed or 0, every, needed)]
        hint = "" if allowed is None else "\n".join(filter(None, words))
        raise explained(_failed(doing, {**already, **tried}, len(roster.hosts)), hint)
    return errors


def _can_be_left_out(roster: Roster, host: str, error: DtctlError) -> bool:
    its_own = isinstance(error, TransportError | PreflightError) or (
        isinstance(error, AgentError) and error.code in _OF_THE_HOST
    )
    return its_own and is_dispensable(roster, host)


def _failed(doing: str, errors: Mapping[str, DtctlError], total: int) -> DtctlError:
    return next(iter(errors.values())) if total == 1 else SomeHostsFailed(doing, errors, total)


def _take_spare(free: Sequence[str], every: Mapping[str, DtctlError]) -> list[str]:
    """Commands to run if spares can replace the missing hosts, and those that the last run has left out."""
    gone = [host for host, error in every.items() if isinstance(error, TransportError) or _is_bad(error)]
    pairs = list(zip(gone, free, strict=False))
    if not pairs:
        return []
    if len(every) == 1:
        return [f"dtctl replace {gone[0]} {free[0]}    starts its tasks on {free[0]}, a spare"]
    named = ", ".join(f"{spare} for {host}" for host, spare in pairs)
    left = f" (no spare is left for {fold(gone[len(pairs) :])})" if len(gone) > len(pairs) else ""
    return [f"spares can take their tasks{left}: write {named} in jobs, take them out of spares, and then: dtctl up"]


def _is_bad(error: DtctlError) -> bool:
    return isinstance(error, AgentError) and error.code == "bad_host"


def _hint(roster: Roster, allowed: int, every: Mapping[str, DtctlError], needed: Mapping[str, DtctlError]) -> str:
    vital = [host for host in needed if not is_dispensable(roster, host)]
    if vital and allowed:
        there = [str(task.id) for host in vital for task in tasks_on(roster, host) if not _may_be_absent(roster, task)]
        more = " and more" if len(there) > 3 else ""
        return f"no run without {fold(vital)}: {', '.join(there[:3])}{more} must be there"
    if needed:
        return ""
    count = len(every)
    if allowed:
        return (
            f"{count} hosts are missing, {allowed} may be: dtctl up --allow-missing {count}    continues without them"
        )
    them = "it" if count == 1 else "them"
    return f"dtctl up --allow-missing {count}    continues without {them}, and adds {them} later"


def explained(error: DtctlError, hint: str) -> DtctlError:
    """The error with an additional hint."""
    error.hint = "\n".join(filter(None, [error.hint, hint]))
    return error


def _may_be_absent(roster: Roster, task: RosterEntry) -> bool:
    return may_be_absent(task.role, task.scope, roster.strategy)


COORDINATOR = "coordinator"
"""The owner of a port that belongs to no task."""


def set_by_file(cluster: Cluster) -> list[str]:
    """The jobs whose port the file sets explicitly, and `the coordinator`, once per port."""
    jobs = [job.name for job in cluster.jobs.values() if job.own_port]
    return jobs + [COORDINATOR_OF_START] * cluster.own_coordinator_port


def takes_others(cluster: Cluster, whose: Iterable[str]) -> bool:
    """Whether hosts may choose other ports at a start if these are in use: the file sets none of them."""
    jobs = {COORDINATOR_OF_START if one == COORDINATOR else one.partition(":")[0] for one in whose}
    return bool(jobs) and "ports" not in cluster.settings and jobs.isdisjoint(set_by_file(cluster))


COORDINATOR_OF_START = "the coordinator"
"""The coordinator's port as hosts name it when a run starts."""
