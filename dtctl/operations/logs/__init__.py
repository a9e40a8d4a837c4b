"""The output of tasks: which part of it is requested, and how it arrives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dtctl.agent.records.answers import Log
from dtctl.agent.run.log_text import redrawn
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError
from dtctl.model import Host, TaskId
from dtctl.operations.run_record import RunRecord

_LINE_BYTES = 64 << 10
_SLACK_BYTES = 32 << 20
_MOST_BYTES = 256 << 20
"""The most bytes of an answer, however many lines were asked for."""

_SLACK_LINES = 1000
"""Extra lines for attempts that begin during the read, and for an error that is longer than the requested lines."""


def checked_pattern(text: str | None, name: str) -> str | None:
    """The pattern of a search. Raises UsageError if it is not a regular expression; `name`: the option's name."""
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise UsageError(
                f"{name} {text!r} is not a regular expression: {error}",
                hint="put a backslash before each of [ ( ) * + ? . that is meant literally",
            ) from error
    return text


@dataclass(frozen=True)
class LogRequest:
    """Which part of the logs is wanted. `lines` None: all of them; `since` and `until` in epoch seconds."""

    tasks: tuple[TaskId, ...]
    lines: int | None = 100
    since: float | None = None
    until: float | None = None
    grep: str | None = None
    errors: bool = False
    """Whether only errors are wanted."""
    context: int = 0
    """The number of lines to show before and after each match."""
    previous: bool = False
    """Whether the previous attempt is wanted."""
    all_attempts: bool = False

    @property
    def searched(self) -> bool:
        return self.errors or self.grep is not None

    def fields(self, record: RunRecord, host: Host) -> dict[str, Any]:
        """The fields of the request to one host."""
        return {**vars(self), "tasks": [str(task) for task in self.tasks if record.roster[task] == host.name]}

    def most_lines(self) -> int | None:
        """The limit for one task; None: there is no limit."""
        if self.lines is None or self.since is not None:
            return None
        return 2 * self.lines * (1 + 2 * self.context) + _SLACK_LINES

    def most_bytes(self, tasks: int) -> int | None:
        """The limit for one host's answer; None if all lines were asked for."""
        if self.lines is None:
            return None
        return min(tasks * self.lines * (1 + 2 * self.context) * _LINE_BYTES + _SLACK_BYTES, _MOST_BYTES)


class LogLines(NamedTuple):
    """Complete lines of one attempt's log, with their line ends, and the host's facts about them."""

    log: Log
    data: bytes
    clock_s: float = 0.0
    """The seconds by which the clock of this machine is ahead of the host's."""

    def texts(self) -> list[str]:
        """The lines as texts; for a redrawn progress bar its last state."""
        lines = self.data.decode("utf-8", "replace").removesuffix("\n").split("\n")
        return [redrawn(line) for line in lines]


@dataclass(frozen=True)
class LogsRead:
    answered: tuple[str, ...]
    """Hosts that have sent all that was requested."""
    errors: Mapping[str, DtctlError]


def hosts_of(record: RunRecord, tasks: Sequence[TaskId]) -> list[str]:
    """The hosts of these tasks, in the order of the file."""
    wanted = {record.roster[task] for task in tasks}
    return [name for name in (*record.hosts, *record.unknown_hosts) if name in wanted]
