"""Dumps the stacks of live trainers, as their hosts read them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import field

from dtctl.agent.records.answers import RunResult
from dtctl.agent.rooms.dump.records import Dump
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host, TaskId
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Request, about, ask_hosts
from dtctl.operations.client.plausible import check_tasks, wrong
from dtctl.operations.run_record import RunRecord
from dtctl.transport.seam import Message, Transport

WITHIN_S = 180.0
"""A host takes at most a minute for its tasks; each of them may be waited for, too."""
QUIET_S = 90.0
"""The longest silence of a host, which reports each task when it has its stacks: a minute for the first, and the time
of a last process.
"""


@dataclass(frozen=True)
class Dumped:
    """One task: what its host reports of its processes."""

    task: TaskId
    host: str
    answer: Dump


@dataclass(frozen=True)
class Dumps:
    run: str | None
    """The run; None: no host has one."""
    tasks: tuple[Dumped, ...]
    """The tasks, in the order of the cluster file."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)

    @property
    def has_stacks(self) -> bool:
        return any(process["stacks"] for one in self.tasks for process in one.answer["processes"])


def dump(record: RunRecord, transport: Transport, tasks: Sequence[TaskId]) -> Dumps:
    """Dumps the stacks of these tasks, over one connection to each of their hosts."""
    wanted = {host: [str(task) for task in tasks if record.roster[task] == host] for host in record.roster.values()}
    found: dict[TaskId, Dumped] = {}
    lock = threading.Lock()

    def on_dump(host: Host, message: Message) -> None:
        reported = message.of(Dump)
        with about(host.name, "sent an invalid `dump`"):
            check_tasks("task", [reported["task"]], wanted[host.name])
            task = TaskId.parse(reported["task"])
            with lock:
                if task in found:
                    raise wrong("task", "one that was not reported before", reported["task"])
                found[task] = Dumped(task, host.name, reported)

    outcomes = ask_hosts(
        record,
        ImpatientTransport(transport, record),
        Request(
            "dump",
            RunResult,
            lambda host: {"tasks": wanted[host.name]},
            within_s=WITHIN_S,
            on_frame={"dump": on_dump},
            quiet_s=QUIET_S,
        ),
        [host for host, named in wanted.items() if named],
    )
    runs = [answer["run"] for answer in outcomes.results.values()]
    return Dumps(runs[0] if runs else None, tuple(found[task] for task in tasks if task in found), outcomes.errors)
