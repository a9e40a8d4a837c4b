"""What tasks have printed, read once from all their hosts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtctl.agent.records.answers import Log, RunResult
from dtctl.errors import DtctlError
from dtctl.model import Host, TaskId
from dtctl.operations.asking.conversation import about, final, request, said
from dtctl.operations.asking.plausible import check_run, check_tasks, wrong
from dtctl.operations.memory.record import RunRecord
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Message, Session, Transport
from dtctl.transport.silence import PATIENCE_S

MERGED_BYTES = 256 << 20
"""How much is kept in memory to be merged; anything beyond is shown as it comes."""

_LINE_BYTES = 64 << 10
_SLACK_BYTES = 32 << 20
_MOST_BYTES = 256 << 20
"""The most bytes of an answer, however many lines were asked for."""


@dataclass(frozen=True)
class LogRequest:
    """Which part of the logs is wanted. `lines` None: all of them; `since` in epoch seconds."""

    tasks: tuple[TaskId, ...]
    lines: int | None = 100
    since: float | None = None
    grep: str | None = None
    previous: bool = False
    """The previous attempt."""

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

    def most_bytes(self, tasks: int) -> int | None:
        """The limit for one host's answer; None if all lines were asked for."""
        if self.lines is None:
            return None
        return min(tasks * self.lines * _LINE_BYTES + _SLACK_BYTES, _MOST_BYTES)


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
        said = message.of(Log)
        return cls(
            task=TaskId.parse(said["task"]),
            attempt=said["attempt"],
            time=said["time"],
            data=message.payload,
            truncated=said["truncated"],
        )


@dataclass(frozen=True)
class LogsRead:
    answered: tuple[str, ...]
    """Hosts that have told all that was asked for."""
    errors: Mapping[str, DtctlError]


def read_logs(
    record: RunRecord, transport: Transport, wanted: LogRequest, show: Callable[[LogLines], None]
) -> LogsRead:
    """Shows what is there now, merged by time (to the second) unless it is too much to be kept; one call at a time."""
    merging = _Merging(show)

    def work(host: Host) -> None:
        session = transport.open(host)
        try:
            _read(record, session, wanted, merging)
        finally:
            session.close()

    known, unknown = record.ways_to(hosts_of(record, wanted.tasks))
    outcomes = fan_out(known, work)
    merging.flush()
    return LogsRead(tuple(outcomes.results), {**outcomes.errors, **unknown})


def _read(record: RunRecord, session: Session, wanted: LogRequest, merging: _Merging) -> None:
    fields = wanted.fields(record, session.host)
    session.send({**request(record, session.host, "logs"), **fields})
    lines: Counter[str] = Counter()
    most_bytes = wanted.most_bytes(len(fields["tasks"]))
    within_s = None if most_bytes is None else 2 * PATIENCE_S
    for message in said(session, "log", most_bytes=most_bytes, within_s=within_s):
        if message.type == "log":
            with about(session.host.name, "sent an invalid `log`"):
                check_log(message.of(Log), fields["tasks"])
                lines[message["task"]] += message.payload.count(b"\n")
                _check_lines(lines[message["task"]], wanted)
            merging.add(LogLines.of(message))
    final(
        session,
        "logs",
        message,
        RunResult,
        lambda answer: check_run(record.cluster, record.run, answer["run"]),
    )


def check_log(log: Log, tasks: Sequence[str]) -> None:
    """Raises Wrong."""
    check_tasks("task", [log["task"]], tasks)


def _check_lines(number: int, wanted: LogRequest) -> None:
    """Attempts that begin while the log is read may add theirs."""
    if wanted.lines is not None and wanted.since is None and number > 2 * wanted.lines + 1000:
        raise wrong("lines", f"the last {wanted.lines} of each task", number)


class _Merging:
    """Keeps lines until all have come; called from the threads of all hosts."""

    def __init__(self, show: Callable[[LogLines], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._kept: list[LogLines] = []
        self._bytes = 0
        self._passing = False

    def add(self, lines: LogLines) -> None:
        """While a screen or a pipe is busy with what came before, hosts wait here."""
        with self._lock:
            if self._passing:
                self._show(lines)
                return
            self._kept.append(lines)
            self._bytes += len(lines.data) + 500
            if self._bytes > MERGED_BYTES:
                self._passing = True
                self._show_kept()

    def flush(self) -> None:
        with self._lock:
            self._show_kept()

    def _show_kept(self) -> None:
        for lines in sorted(self._kept, key=lambda one: one.time):
            self._show(lines)
        self._kept.clear()


def hosts_of(record: RunRecord, tasks: Sequence[TaskId]) -> list[str]:
    """The hosts of these tasks, in the order of the file."""
    wanted = {record.roster[task] for task in tasks}
    return [name for name in (*record.hosts, *record.unknown_hosts) if name in wanted]
