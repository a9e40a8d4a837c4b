"""Moves the tasks of a host to another one: the same cluster with one host in place of the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Protocol

from dtctl import rooms
from dtctl.agent.run import drains
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, PreflightError, TransportError, UsageError, did_you_mean
from dtctl.model import TaskId
from dtctl.operations.client import Report
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.up.launch import Hostname, Start, prepare_launch
from dtctl.plan import exchanged, plan_roster
from dtctl.transport.seam import NamingTransport


@dataclass(frozen=True)
class Replacement:
    """`cluster` is the file's cluster with `new` in every place of `old`."""

    old: str
    new: str
    cluster: Cluster
    tasks: tuple[TaskId, ...]
    moves_the_lead: bool
    was_spare: bool
    """The new host is listed among the spares of the file."""


def plan_replacement(cluster: Cluster, old: str, new: str | None) -> Replacement:
    """`new` None: the first spare. Raises UsageError for hosts that cannot give or take tasks."""
    record = record_of(plan_roster(cluster))
    if old not in record.task_hosts:
        hint = did_you_mean(old, list(record.task_hosts)) or f"hosts with tasks: {', '.join(record.task_hosts)}"
        raise UsageError(f"{old} has no task in {cluster.name}", hint=hint)
    new = _newcomer(cluster, record, new)
    spares = tuple(name for name in cluster.spares if name != new)
    changed = dataclasses.replace(exchanged(cluster, old, new), spares=spares)
    return Replacement(
        old, new, changed, record.tasks_on(old), record.coordinator == old, was_spare=new in cluster.spares
    )


def unanswered(exchange: Replacement, found: RunStatus) -> Mapping[str, DtctlError]:
    """The errors of hosts that may know a run that no other host has; the replaced host may be unreachable."""
    if found.time:
        return {}
    gone = isinstance(found.errors.get(exchange.old), TransportError)
    return {host: error for host, error in found.errors.items() if not gone or host != exchange.old}


def check_replaceable(cluster: Cluster, exchange: Replacement, status: RunStatus) -> None:
    """Raises UsageError if there is no run, and PreflightError unless it has the cluster's tasks on its hosts.

    Or on those of the exchange: a `replace` that was killed at its end is typed again.
    """
    if not status.time:
        if status.errors:  # of a host that `up` has missed
            return
        raise UsageError(f"there is no run of {cluster.name} whose tasks could move", hint="dtctl up    starts one")
    run = status.record
    if status.verdict.outcome.decided:  # the next start uses the place that the file, and this command, name
        return
    if run.moved:
        lines = [f"{new} has taken the place of {old}" for old, new in run.moved.items()]
        raise PreflightError(
            f"run {run.run or run.cluster} no longer runs on the hosts of {cluster.file}",
            detail="\n".join(lines),
            hint=f"to move more, write the new hosts into {cluster.file}, then: dtctl up --replace",
        )
    wanted = record_of(plan_roster(cluster)).roster
    if dict(run.roster) in (dict(wanted), dict(record_of(plan_roster(exchange.cluster)).roster)):
        return
    differing = [task for task in {**wanted, **run.roster} if wanted.get(task) != run.roster.get(task)]
    differences = [f"{task}: {wanted.get(task, 'nowhere')} in the file, {run.roster.get(task, 'nowhere')} in the run"
            for task in differing]  # fmt: skip
    raise PreflightError(
        f"{cluster.file} differs from run {run.run or run.cluster}",
        detail="\n".join(differences[:5]),
        hint=_how_to_agree(cluster, run),
    )


def _how_to_agree(cluster: Cluster, run: RunRecord) -> str:
    """The hint for hosts that disagree; it never leads back to the replaced host, which may be broken."""
    if run.replaced:
        moves = ", ".join(f"{new} in the place of {old}" for old, new in run.replaced.items())
        return f"write {moves} into {cluster.file}, and type the command again"
    return "correct the file first, or restart from it: dtctl up --replace"


def prepare_replacement(
    exchange: Replacement, status: RunStatus, hostname: Hostname, environ: Mapping[str, str]
) -> Start:
    """The start that replaces the live run; it leaves out the hosts that the live run left out."""
    absent = status.coordination.absent_hosts if status.coordination else ()
    missing = sum(name != exchange.old for name in absent)
    launch = prepare_launch(
        as_scaled(exchange.cluster, status),
        hostname,
        environ,
        local=status.record.is_local,
        replace=True,
        allow_missing=missing or None,
    )
    return dataclasses.replace(launch, record=dataclasses.replace(launch.record, replaced={exchange.old: exchange.new}))


def as_scaled(cluster: Cluster, status: RunStatus) -> Cluster:
    """The cluster with the task numbers that `scale` has set in the live run, which the file does not have."""
    if status.coordination is None or status.verdict.outcome.decided:
        return cluster
    intents = status.coordination.view["intents"]
    held = {name: len(drains.scaled_down(name, intents)) for name in cluster.jobs}
    jobs = {
        name: dataclasses.replace(job, replicas=len(job.hosts) - held[name] if held[name] else None)
        for name, job in cluster.jobs.items()
    }
    return dataclasses.replace(cluster, jobs=jobs)


def _newcomer(cluster: Cluster, record: RunRecord, new: str | None) -> str:
    if new is None:
        if not cluster.spares:
            raise UsageError("there is no spare host", hint="dtctl replace HOST NEWHOST, or list hosts under spares:")
        return cluster.spares[0]
    if new not in cluster.hosts:
        hint = did_you_mean(new, list(cluster.hosts)) or f"add it to hosts: in {cluster.file}"
        raise UsageError(f"there is no host {new!r} in this cluster", hint=hint)
    if new in record.task_hosts or new in cluster.arbiters:
        free = [name for name in cluster.hosts if name not in {*record.task_hosts, *cluster.arbiters}]
        raise UsageError(
            f"{new} has tasks of its own: {', '.join(map(str, record.tasks_on(new)))}",
            hint=f"hosts without a task: {', '.join(free) or 'none'}",
        )
    return new


class Bring(Protocol):
    """Brings a host that takes tasks over what they need besides code and environment."""

    def __call__(
        self, cluster: Cluster, new: str, record: RunRecord, transport: NamingTransport, report: Report
    ) -> None: ...


def bring(exchange: Replacement, launch: Start, transport: NamingTransport, report: Report) -> None:
    """The new host gets what its tasks need, while the run goes on as far as it does."""
    everything: Iterator[Bring] = rooms.each("brings")
    for one in everything:
        one(exchange.cluster, exchange.new, launch.record, transport, report)
