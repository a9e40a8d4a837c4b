"""Restarts tasks within their run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from dtctl.agent.records import answers as records
from dtctl.agent.records.whole_run import RunView
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.model import Host, TaskId
from dtctl.operations.client import Request, ask_hosts
from dtctl.operations.client.plausible import check_part, check_tasks
from dtctl.operations.coordinator import Own, ask_about
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import CoordinatorUnreachable, TaskStatus
from dtctl.operations.stop import Before, ending, once, pin_current_run
from dtctl.transport.seam import Transport
from dtctl.transport.timeouts import PATIENCE_S


@dataclass(frozen=True)
class RestartResult:
    tasks: tuple[TaskStatus, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    away: CoordinatorUnreachable | None = None
    """Why every host was asked directly."""
    excused: bool = False
    """The run has ended: the host takes part in the next one again."""


def restart(
    record: RunRecord, transport: Transport, tasks: Sequence[TaskId], *, by: str, before: Before | None = None
) -> RestartResult:
    """Stops the tasks where they run and starts a new attempt of each; it does not count in their budgets."""
    before = before and once(before)

    def wanted(asked: RunRecord, own: Own) -> Request[records.RestartResult]:
        return _request(asked, _still_asked(tasks, own), by)

    try:
        known, answer, own = ask_about(record, transport, wanted, pin_current_run(tasks, before))
    except CoordinatorUnreachable as away:
        known = away.found.record if away.found is not None else record
        if before is not None:
            before(ending(known, tasks))
        return _restart_directly(known, transport, tasks, by, away)
    return RestartResult(
        tasks=statuses(known, tasks, [*own.values(), answer]),
        errors={host: why_unreached(host, answer["coordination"]) for host in answer["unreached"]},
    )


def why_unreached(host: str, view: RunView | None) -> TransportError:
    if view is not None and host in view["hosts"] and view["hosts"][host]["absent"]:
        hint = "dtctl up    adds it when it is back"
        return TransportError(f"{host} is not part of the run, which was started without it", hint=hint)
    return TransportError(f"{host} is unreachable from the coordinator: its tasks start again when it is back")


def _restart_directly(
    record: RunRecord, transport: Transport, tasks: Sequence[TaskId], by: str, away: CoordinatorUnreachable
) -> RestartResult:
    """Each host restarts its own tasks; those that have already done so are skipped."""
    left = _still_asked(tasks, away.own)
    hosts = {record.roster[task] for task in left if task in record.roster}
    names = [name for name in (*record.hosts, *record.unknown_hosts) if name in hosts and name not in away.unreachable]
    outcomes = ask_hosts(record, transport, _request(record, left, by), names)
    return RestartResult(
        tasks=statuses(record, tasks, [*away.own.values(), *outcomes.results.values()]),
        errors={**{host: error for host, error in away.unreachable.items() if host in hosts}, **outcomes.errors},
        away=away,
    )


def _still_asked(tasks: Sequence[TaskId], own: Mapping[str, records.RestartResult]) -> list[TaskId]:
    return [task for task in tasks if not any(str(task) in answer["tasks"] for answer in own.values())]


def statuses(
    record: RunRecord, tasks: Sequence[TaskId], answers: Sequence[records.RestartResult]
) -> tuple[TaskStatus, ...]:
    return tuple(
        TaskStatus.of(task, record.roster[task], answer["tasks"][str(task)])
        for answer in answers
        for task in tasks
        if str(task) in answer["tasks"] and task in record.roster
    )


def _request(record: RunRecord, tasks: Sequence[TaskId], by: str) -> Request[records.RestartResult]:
    """The request: a host answers for all tasks if it coordinates the run, or else for its own."""
    named = [str(task) for task in tasks]

    def check(host: Host, answer: records.RestartResult) -> None:
        known = check_part(record, host, answer)
        check_tasks("tasks", answer["tasks"], set(named) & set(known))

    # The tasks end, and then wait for each other.
    patience_s = PATIENCE_S + 2 * record.grace_s
    return Request("restart", records.RestartResult, lambda _: {"tasks": named, "by": by}, check, patience_s)
