"""Queries the status of a run: from its coordinator, or else from every host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from dtctl import rooms
from dtctl.agent.records.answers import StatusResult
from dtctl.agent.records.reasons import fact
from dtctl.errors import AgentError, DtctlError
from dtctl.model import Host, TaskId, TaskState
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.client import ask_hosts, knows_no_run
from dtctl.operations.coordinator import ask_about, request_of_status, status_by_coordinator, status_of_hosts, task_of
from dtctl.operations.engines import allocation_of
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import CoordinatorUnreachable, Outcome, RunStatus, TaskStatus, Verdict, seen_now
from dtctl.operations.waiting import given_back, has_no_machines, status_of_waiting
from dtctl.transport.seam import Transport


def status(record: RunRecord, transport: Transport, away: CoordinatorUnreachable | None = None) -> RunStatus:
    """The status, over one connection if the coordinator answers; `away`: its host has just failed.

    Raises DtctlError only for an answer that no other host can replace, and where an engine cannot be asked for the
    run's machines.
    """
    allocation = allocation_of(record)
    if allocation is None:
        return _status(record, transport, away)
    if has_no_machines(record, allocation):
        return status_of_waiting(record, allocation)
    found = dataclasses.replace(_status(record, transport, away), allocation=allocation)
    return given_back(found, allocation) if allocation.phase == "ended" else found


def _status(record: RunRecord, transport: Transport, away: CoordinatorUnreachable | None) -> RunStatus:
    try:
        known, answer, own = ask_about(
            record, transport, lambda asked, _: request_of_status(asked), away=away, reads=True
        )
    except CoordinatorUnreachable as nowhere:
        if nowhere.found is None:
            raise
        return dataclasses.replace(nowhere.found, away=nowhere)
    found = status_by_coordinator(known, answer)
    lost = found.coordination.lost_hosts if found.coordination else ()
    asked = found.record.with_short_timeouts((*lost, found.record.roster[found.record.lead]))
    if found.coordination and found.coordination.in_doubt:  # the host may have been replaced while it was cut off
        every = status_of_hosts(asked, transport)
        newer = dataclasses.replace(every.record, hosts={**every.record.hosts, **_known_routes(found.record, every)})
        if newer.created > found.record.created or newer.coordinator != found.record.coordinator:
            return _status(newer, transport, None)
        return _as_hosts_report(found, every)
    return _with_answers_of_hosts(found, asked, transport, lost, {record.coordinator: None, **own})


def _known_routes(record: RunRecord, found: RunStatus) -> Mapping[str, Host]:
    return {name: host for name, host in record.hosts.items() if name in found.record.hosts}


def placed(record: RunRecord, transport: Transport) -> RunRecord:
    """The record with the current hosts of its tasks, as far as the hosts answer; the command itself reports errors."""
    try:
        found = status(record, transport)
    except DtctlError:
        return record
    return dataclasses.replace(found.record, run=record.run or found.record.run) if found.time else record


class AtUrls(Protocol):
    """Reads the checkpoints at the storage URLs of a run, which no host knows of."""

    def __call__(self, record: RunRecord, *, fresh: bool) -> Sequence[Checkpoints]: ...


def with_storage(found: RunStatus, *, fresh: bool = False) -> RunStatus:
    """The status with the checkpoints at the run's storage URLs, which no host reports; `fresh`: queried now."""
    if not found.record.checkpoint_urls:
        return found
    readers: Iterator[AtUrls] = rooms.each("checkpoints")
    more = (one for read in readers for one in read(found.record, fresh=fresh))
    return dataclasses.replace(found, checkpoints=(*found.checkpoints, *more))


def with_checkpoints(record: RunRecord, transport: Transport) -> RunStatus:
    """The status from every host with all checkpoints, also in directories that no setting names, and in storage as of
    now.
    """
    return with_storage(status_of_hosts(record, ImpatientTransport(transport, record), guess=True), fresh=True)


def before_first_run(record: RunRecord, transport: Transport, dirs: Mapping[str, Sequence[str]]) -> RunStatus:
    """The checkpoints in these directories of hosts without a run, from which the first run would continue."""
    asked = [name for name in record.task_hosts if dirs.get(name)]
    outcomes = ask_hosts(record, ImpatientTransport(transport, record), request_of_status(record, dirs=dirs), asked)
    answers = outcomes.results
    return RunStatus(
        record=record,
        tasks={},
        verdict=Verdict(Outcome.CREATED, (fact("no_run"),)),
        checkpoints=tuple(Checkpoints(host, one) for host in answers for one in answers[host]["checkpoints"]),
        time=max((answer["time"] for answer in answers.values()), default=0.0),
        errors=outcomes.errors,
    )


def _with_answers_of_hosts(
    found: RunStatus,
    asked: RunRecord,
    transport: Transport,
    lost: Sequence[str],
    answered: Mapping[str, StatusResult | None],
) -> RunStatus:
    """Asks hosts that are unreachable for the coordinator directly, which also revives their agents.

    And the lead's host about its checkpoints, where another one coordinates, which sees them only in a shared
    directory. `answered`: the answers that hosts have just given about their own parts; None: it could not be asked.
    """
    lead = found.record.roster[found.record.lead]
    elsewhere = [lead] if lead != found.record.coordinator else []
    unasked = [*lost, *(host for host in elsewhere if host not in answered and host not in lost)]
    outcomes = ask_hosts(asked, transport, request_of_status(asked), [name for name in unasked if name in asked.hosts])
    answers = {**{host: one for host, one in answered.items() if one is not None}, **outcomes.results}
    saved = [
        Checkpoints(host, report)
        for host in elsewhere
        if host in answers and answers[host]["run"] == found.record.run
        for report in answers[host]["checkpoints"]
    ]
    found = dataclasses.replace(found, checkpoints=(*saved, *found.checkpoints))
    tasks = {
        task: task_of(task, host, found.record, answers[host], found.time)
        for task, host in found.record.roster.items()
        if host in lost and host in answers and answers[host]["run"] == found.record.run
    }
    return _with_reports(found, tasks, outcomes.errors)


def _as_hosts_report(found: RunStatus, every: RunStatus) -> RunStatus:
    """The tasks of hosts that the coordinator does not reach, as these report them; `every`: the status of all
    hosts.
    """
    found = dataclasses.replace(found, checkpoints=every.checkpoints)
    lost = found.coordination.lost_hosts if found.coordination else ()
    reported = {task: one for task, one in every.tasks.items() if one.host in lost and one.state is not TaskState.LOST}
    return _with_reports(found, reported, {host: error for host, error in every.errors.items() if host in lost})


def _with_reports(
    found: RunStatus, reported: Mapping[TaskId, TaskStatus], errors: Mapping[str, DtctlError]
) -> RunStatus:
    """Adds `errors` of hosts that the coordinator does not reach. Those that cannot be reached either are errors only
    where the run has ended: something may still run there then, which no table of a run that goes on would hide.
    """
    tasks = {**found.tasks, **reported}
    found = dataclasses.replace(found, tasks=tasks, verdict=seen_now(found.verdict, tasks))
    unknown = {tasks[task].host for task in found.unknown_after_the_end}
    kept = {
        host: error
        for host, error in errors.items()
        if (isinstance(error, AgentError) or host in unknown) and not knows_no_run(error)
    }
    return dataclasses.replace(found, errors=kept)


def status_elsewhere(error: CoordinatorUnreachable, record: RunRecord, transport: Transport) -> RunStatus:
    """The status for a watch whose coordinator is away or has no run: all hosts are asked once.

    Raises the error of the coordinator's host if the others do not know the run either.
    """
    found = status(record, transport, error if error.unreachable else None)
    if found.coordination is None and (error.elsewhere or not found.time):
        raise error.cause
    return found
