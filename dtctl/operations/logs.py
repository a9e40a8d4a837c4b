"""What tasks have printed, read once from all their hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtctl.errors import DtctlError
from dtctl.model import Host, TaskId
from dtctl.operations.conversation import request
from dtctl.operations.record import RunRecord
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Message, Transport


@dataclass(frozen=True)
class LogRequest:
    """Which part of the logs is wanted. `lines` None: all of them; `since` in epoch seconds."""

    tasks: tuple[TaskId, ...]
    lines: int | None = 100
    since: float | None = None
    grep: str | None = None
    previous: bool = False
    """The attempt before the present one."""

    def fields(self, record: RunRecord, host: Host) -> dict[str, Any]:
        """The part of it that one host is asked for."""
        return {
            "tasks": [str(task) for task in self.tasks if record.roster[task] == host.name],
            "lines": self.lines,
            "since": self.since,
            "grep": self.grep,
            "previous": self.previous,
            "attempt": None,
            "follow": False,
            "states": False,
            "resume": {},
        }


@dataclass(frozen=True)
class LogLines:
    """Whole lines of one attempt's log, with their line ends, written before `time` (epoch seconds)."""

    task: TaskId
    attempt: int
    time: float
    data: bytes
    truncated: bool = False
    """The log had become shorter; these lines are from its new start."""

    @classmethod
    def of(cls, message: Message) -> LogLines:
        return cls(
            task=TaskId.parse(message["task"]),
            attempt=message["attempt"],
            time=message["time"],
            data=message.payload,
            truncated=bool(message.fields.get("truncated")),
        )


def read_logs(
    record: RunRecord, transport: Transport, wanted: LogRequest
) -> tuple[list[LogLines], dict[str, DtctlError]]:
    """What is there now, merged by time (to the second); and the hosts that gave no answer."""

    def work(host: Host) -> list[LogLines]:
        session = transport.open(host)
        try:
            session.send({**request(record, host, "logs"), **wanted.fields(record, host)})
            lines = []
            while (message := session.receive()).type != "result":
                if message.type == "log":
                    lines.append(LogLines.of(message))
            return lines
        finally:
            session.close()

    outcomes = fan_out(hosts_of(record, wanted.tasks), work)
    lines = [line for host in outcomes.results.values() for line in host]
    return sorted(lines, key=lambda line: line.time), outcomes.errors


def hosts_of(record: RunRecord, tasks: Sequence[TaskId]) -> list[Host]:
    """The hosts of these tasks, in the order of the file."""
    wanted = {record.roster[task] for task in tasks}
    return [host for name, host in record.hosts.items() if name in wanted]
