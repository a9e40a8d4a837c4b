"""Start tasks once more within their run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dtctl.errors import DtctlError, TransportError
from dtctl.model import TaskId
from dtctl.operations.conversation import ask
from dtctl.operations.coordinator import CoordinatorAway
from dtctl.operations.locate import ask_wherever_it_is
from dtctl.operations.record import RunRecord
from dtctl.operations.tasks import TaskStatus
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class RestartResult:
    tasks: tuple[TaskStatus, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    away: CoordinatorAway | None = None
    """Why every host was asked for itself."""


def restart(record: RunRecord, transport: Transport, tasks: Sequence[TaskId], *, by: str) -> RestartResult:
    """Stops the tasks where they run and starts a new attempt of each; it does not count in their budgets."""
    try:
        wanted = {"tasks": [str(task) for task in tasks], "by": by}
        record, answer = ask_wherever_it_is(record, transport, "restart", wanted)
    except CoordinatorAway as away:
        return _restart_directly(away.known or record, transport, tasks, by, away)
    record = record.as_known(answer["inventory"])
    return RestartResult(
        tasks=tuple(
            TaskStatus.from_json(task, record.roster[task], answer["tasks"][str(task)])
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
    hosts = {record.roster[task] for task in tasks}
    outcomes = ask(
        record,
        transport,
        "restart",
        lambda host: {"tasks": [str(task) for task in tasks if record.roster[task] == host.name], "by": by},
        hosts=[name for name in record.hosts if name in hosts],
    )
    return RestartResult(
        tasks=tuple(
            TaskStatus.from_json(task, host, answer["tasks"][str(task)])
            for host, answer in outcomes.results.items()
            for task in tasks
            if record.roster[task] == host
        ),
        errors=outcomes.errors,
        away=away,
    )
