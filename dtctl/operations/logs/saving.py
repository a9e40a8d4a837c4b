"""Logs as files on this machine: one for each attempt of each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dtctl.agent.records.answers import Log
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError
from dtctl.folder import PRIVATE, Folder
from dtctl.model import Host
from dtctl.operations.client.conversation import about
from dtctl.operations.client.plausible import wrong
from dtctl.operations.logs import LogLines, LogRequest, LogsRead, hosts_of
from dtctl.operations.logs.reading import received_lines
from dtctl.operations.run_record import RunRecord
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Transport

MOST_FILES = 10_000
"""Of one host: a trainer that is restarted so often has been so by a host that lies."""


@dataclass(frozen=True)
class SavedLog:
    """What one attempt has printed, as far as it was asked for."""

    task: str
    attempt: int
    path: Path
    size_bytes: int


@dataclass(frozen=True)
class LogsSaved(LogsRead):
    files: tuple[SavedLog, ...] = ()


def save_logs(record: RunRecord, transport: Transport, wanted: LogRequest, directory: Path) -> LogsSaved:
    """Into a directory that is made, or is empty. Of a host that does not send all there are no files."""
    try:
        folder = Folder(directory, record.project, make=PRIVATE)
    except OSError as error:
        raise UsageError(f"logs cannot be saved in {directory}: {error.strerror}") from error
    with folder:
        if taken := folder.names():
            raise UsageError(f"{directory} is not empty: {taken[0]}", hint="--save makes the directory that it names")
        return _save(record, transport, wanted, folder)


def _save(record: RunRecord, transport: Transport, wanted: LogRequest, folder: Folder) -> LogsSaved:
    def work(host: Host) -> list[SavedLog]:
        with closing(transport.open(host)) as session, _Files(folder, host.name) as files:
            files.write(received_lines(record, session, wanted))
            return files.keep()

    known, unknown = record.routes_to(hosts_of(record, wanted.tasks))
    try:
        outcomes = fan_out(known, work)
    except BaseException:
        for name in folder.names():
            if name.endswith(".part"):
                with suppress(OSError):
                    folder.unlink(name)
        raise
    order = {str(task): number for number, task in enumerate(wanted.tasks)}
    files = [one for found in outcomes.results.values() for one in found]
    return LogsSaved(
        answered=tuple(outcomes.results),
        errors={**outcomes.errors, **unknown},
        files=tuple(sorted(files, key=lambda one: (order[one.task], one.attempt))),
    )


class _Files(AbstractContextManager["_Files"]):
    """Of one host. They have other names until all that was asked for is in them. A context manager."""

    def __init__(self, folder: Folder, host: str) -> None:
        self._folder = folder
        self._host = host
        self._begun: dict[tuple[str, int], int] = {}
        """How many bytes each has."""
        self._open: dict[str, tuple[int, BinaryIO]] = {}
        """The attempt of each task that is written."""

    def __exit__(self, *_: object) -> None:
        """What has not been kept is removed."""
        with suppress(OSError):
            self._close()
        for task, attempt in self._begun:
            with suppress(OSError):
                self._folder.unlink(_part(task, attempt))

    def write(self, received_lines: Iterable[LogLines]) -> None:
        for lines in received_lines:
            with self._saving():
                self._file(lines.log).write(lines.data)
            self._begun[lines.log["task"], lines.log["attempt"]] += len(lines.data)

    def keep(self) -> list[SavedLog]:
        """Gives them their names."""
        with self._saving():
            self._close()  # what is not written yet may find no room
            for task, attempt in self._begun:
                self._folder.move(_part(task, attempt), self._folder, _name(task, attempt))
        return [SavedLog(*key, self._folder.path / _name(*key), self._begun[key]) for key in sorted(self._begun)]

    @contextmanager
    def _saving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DtctlError(
                f"the logs of {self._host} cannot be saved in {self._folder.path}: {error.strerror}",
                hint="name another directory, or fewer lines: -n 10000",
            ) from error

    def _file(self, log: Log) -> BinaryIO:
        key = log["task"], log["attempt"]
        attempt, file = self._open.get(log["task"], (0, None))
        if file is not None and attempt == log["attempt"]:
            return file
        with about(self._host, "sent an invalid `log`"):
            if key in self._begun or len(self._begun) >= MOST_FILES:
                raise wrong("attempt", f"one of at most {MOST_FILES}, in their order", log["attempt"])
        if file is not None:
            file.close()
        made = self._folder.new(_part(*key))
        self._begun[key] = 0
        self._open[log["task"]] = log["attempt"], made
        return made

    def _close(self) -> None:
        while self._open:
            self._open.popitem()[1][1].close()


def _name(task: str, attempt: int) -> str:
    return f"{task.replace(':', '-')}.attempt-{attempt}.log"


def _part(task: str, attempt: int) -> str:
    return f".{_name(task, attempt)}.part"
