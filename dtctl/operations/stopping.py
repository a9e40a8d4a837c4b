"""How far a stop is, as the hosts tell it while they wait for their tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from dtctl.agent.records import answers as records
from dtctl.model import Host, TaskId
from dtctl.operations.history.record import RunRecord
from dtctl.transport.seam import Message

Way = Literal["waits", "saving", "killed", "ended", "away"]


@dataclass(frozen=True)
class Leaving:
    """One task that is being stopped.

    It waits for others, or was sent SIGTERM and saves, or outlives SIGKILL, or has ended; `away`: nobody can tell.
    """

    way: Way
    for_s: float | None = None
    """Since it was sent SIGTERM, until it had ended; None: it was not, or before this stop was asked for."""
    signal: int | None = None
    """That has ended it."""


@dataclass(frozen=True)
class Stopping:
    """What is news of the tasks that are being stopped."""

    grace_s: float
    tasks: Mapping[TaskId, Leaving]


OnStopping = Callable[[Stopping], None]


def unseen(stopping: Stopping) -> None:
    """Where nobody watches."""


def listener(record: RunRecord, report: OnStopping) -> Mapping[str, Callable[[Host, Message], None]]:
    """For `Request.heard`.

    A host speaks of its own tasks, and of all of them where it coordinates the run. Others are passed over: what is
    known here of the run may be old, and this is for the screen alone.
    """

    def hear(host: Host, message: Message) -> None:
        told = message.of(records.Stopping)
        known = record.roster if host.name == record.coordinator else record.tasks_on(host.name)
        tasks = {TaskId.parse(name): _leaving(one) for name, one in told["tasks"].items()}
        if shown := {task: one for task, one in tasks.items() if task in known}:
            report(Stopping(told["grace_s"], shown))

    return {"stopping": hear}


def _leaving(told: records.Leaving) -> Leaving:
    return Leaving(told["way"], told["for_s"], told["signal"])
