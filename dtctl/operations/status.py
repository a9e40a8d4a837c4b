"""What has become of a run: its coordinator is asked, or else every host."""

from __future__ import annotations

import dataclasses

from dtctl.errors import AgentError, DtctlError
from dtctl.operations.client import ask, knows_no_run
from dtctl.operations.coordinator import ask_about, request_of_status, status_by_coordinator, status_of_hosts, task_of
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import CoordinatorUnreachable, RunStatus
from dtctl.transport.seam import Transport

def status(record: RunRecord, transport: Transport, away: CoordinatorUnreachable | None = None) -> RunStatus:
    """By one connection where the coordinator can be asked; `away`: its host has failed just now.

    Raises DtctlError only for an answer that no other host can replace.
    """
    try:
        known, answer, _ = ask_about(
            record, transport, lambda asked, _: request_of_status(asked), away=away, reads=True
        )
    except CoordinatorUnreachable as nowhere:
        if nowhere.found is None:
            raise
        return dataclasses.replace(nowhere.found, away=nowhere)
    found = status_by_coordinator(known, answer)
    if found.coordination and found.coordination.in_doubt:  # it may have been replaced while it was cut off
        every = status_of_hosts(found.record, transport)
        if every.record.created > found.record.created or every.record.coordinator != found.record.coordinator:
            return status(every.record, transport)
    return _with_lost_hosts(found, transport)


def placed(record: RunRecord, transport: Transport) -> RunRecord:
    """With its tasks where they are now, as far as its hosts can say: what is wrong with one, the command reports."""
    try:
        found = status(record, transport)
    except DtctlError:
        return record
    return dataclasses.replace(found.record, run=record.run or found.record.run) if found.time else record


def with_storage(found: RunStatus, *, fresh: bool = False) -> RunStatus:
    """And the checkpoints at the storage URLs of the run, which no host knows of; `fresh`: as they are now."""
    if not found.record.checkpoint_urls:
        return found
    from dtctl.operations.checkpoints.urls import at_urls

    return dataclasses.replace(found, checkpoints=(*found.checkpoints, *at_urls(found.record, fresh=fresh)))


def with_checkpoints(record: RunRecord, transport: Transport) -> RunStatus:
    """By every host, with all checkpoints: those that no setting leads to, and those in storage as they are now."""
    return with_storage(status_of_hosts(record, transport, guess=True), fresh=True)


def _with_lost_hosts(found: RunStatus, transport: Transport) -> RunStatus:
    """Asks the hosts that the coordinator has lost directly, which also revives their agents."""
    lost = found.coordination.lost_hosts if found.coordination else ()
    if not lost:
        return found
    asked = found.record.with_short_timeouts(lost)
    outcomes = ask(asked, transport, request_of_status(asked), [name for name in lost if name in asked.hosts])
    answers = outcomes.results
    replaced = {
        task: task_of(task, host, found.record, answers[host], found.time)
        for task, host in found.record.roster.items()
        if host in answers and answers[host]["run"] == found.record.run
    }
    refused = {host: error for host, error in outcomes.errors.items() if isinstance(error, AgentError)}
    return dataclasses.replace(
        found,
        tasks={**found.tasks, **replaced},
        errors={host: error for host, error in refused.items() if not knows_no_run(error)},
    )


def status_elsewhere(error: CoordinatorUnreachable, record: RunRecord, transport: Transport) -> RunStatus:
    """For a watch whose coordinator is away or has no run: all hosts are asked once.

    Raises the error of the coordinator's host if the others do not know the run either.
    """
    found = status(record, transport, error if error.unreachable else None)
    if found.coordination is None and (error.elsewhere or not found.time):
        raise error.cause
    return found
