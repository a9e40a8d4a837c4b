"""Start tasks once more within their run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dtctl.agent.records import answers as records
from dtctl.errors import DtctlError, TransportError
from dtctl.model import Host, TaskId
from dtctl.operations.asking.conversation import Request, ask
from dtctl.operations.asking.coordinator import CoordinatorAway
from dtctl.operations.asking.plausible import check_inventory, check_run, check_tasks, wrong
from dtctl.operations.asking.tasks import TaskStatus
from dtctl.operations.locate import ask_wherever_it_is
from dtctl.operations.memory.record import RunRecord
from dtctl.transport.seam import Transport
from dtctl.transport.silence import PATIENCE_S


@dataclass(frozen=True)
class RestartResult:
    tasks: tuple[TaskStatus, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    away: CoordinatorAway | None = None
    """Why every host was asked for itself."""


def restart(record: RunRecord, transport: Transport, tasks: Sequence[TaskId], *, by: str) -> RestartResult:
    """Stops the tasks where they run and starts a new attempt of each; it does not count in their budgets."""
    try:
        record, answer = ask_wherever_it_is(record, transport, lambda asked: _whole(asked, tasks, by))
    except CoordinatorAway as away:
        return _restart_directly(away.known or record, transport, tasks, by, away)
    assert answer["inventory"] is not None
    record = record.as_known(answer["inventory"])
    return RestartResult(
        tasks=tuple(
            TaskStatus.of(task, record.roster[task], answer["tasks"][str(task)])
            for task in tasks
            if str(task) in answer["tasks"]
        ),
        errors={
            host: TransportError(f"{host} is away from the coordinator: its tasks start again when it is back")
            for host in answer["unreached"]
        },
    )


def _restart_directly(
    record: RunRecord, transport: Transport, tasks: Sequence[TaskId], by: str, away: CoordinatorAway
) -> RestartResult:
    hosts = {record.roster[task] for task in tasks if task in record.roster}
    names = [name for name in (*record.hosts, *record.unknown_hosts) if name in hosts]
    outcomes = ask(record, transport, _own(record, tasks, by), names)
    return RestartResult(
        tasks=tuple(
            TaskStatus.of(task, host, answer["tasks"][str(task)])
            for host, answer in outcomes.results.items()
            for task in tasks
            if str(task) in answer["tasks"]
        ),
        errors=outcomes.errors,
        away=away,
    )


def _whole(record: RunRecord, tasks: Sequence[TaskId], by: str) -> Request[records.RestartResult]:
    """To the coordinator, for all hosts."""
    named = [str(task) for task in tasks]

    def check(host: Host, answer: records.RestartResult) -> None:
        inventory = answer["inventory"]
        if inventory is None:
            raise wrong("inventory", "that of the run", None)
        check_run(record.cluster, record.run, answer["run"])
        check_inventory(inventory, record.cluster, answer["run"])
        check_tasks("tasks", answer["tasks"], named)
        hosts = {member["task"]: member["host"] for member in inventory["roster"]}
        check_tasks("tasks", answer["tasks"], hosts)
        for name in answer["unreached"]:
            if name not in hosts.values():
                raise wrong("unreached", "hosts of the run", name)

    fields = {"whole": True, "tasks": named, "by": by}
    return Request("restart", records.RestartResult, lambda _: fields, check, _patience_s(record))


def _own(record: RunRecord, tasks: Sequence[TaskId], by: str) -> Request[records.RestartResult]:
    """To each host, for its own tasks among these."""

    def named(host: Host) -> list[str]:
        return [str(task) for task in tasks if record.roster.get(task) == host.name]

    def check(host: Host, answer: records.RestartResult) -> None:
        check_run(record.cluster, record.run, answer["run"])
        check_tasks("tasks", answer["tasks"], named(host))

    return Request(
        "restart",
        records.RestartResult,
        lambda host: {"tasks": named(host), "by": by},
        check,
        _patience_s(record),
    )


def _patience_s(record: RunRecord) -> float:
    """The tasks end, and then wait for each other."""
    return PATIENCE_S + 2 * record.grace_s
