"""Reads the output of tasks once from all their hosts: merged by time, or into a file for each attempt."""

from __future__ import annotations

import heapq
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dtctl.agent.records.answers import Log, RunResult
from dtctl.agent.records.run_state import ahead_s
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError
from dtctl.folder import PRIVATE, Folder
from dtctl.model import Host
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import about, final, frames_of, request
from dtctl.operations.client.plausible import check_tasks, wrong
from dtctl.operations.logs import LogLines, LogRequest, LogsRead, hosts_of
from dtctl.operations.run_record import RunRecord
from dtctl.transport.fanout import WIDTH, fan_out
from dtctl.transport.seam import Session, Transport
from dtctl.transport.timeouts import PATIENCE_S

MERGED_BYTES = 64 << 20
"""The most bytes in memory that have arrived and cannot be shown yet."""

ANSWER_BYTES = 256 << 20
"""The same for answers with a time limit, so that a slow reader does not delay the hosts."""

_SEARCH_S = 5 * PATIENCE_S
"""The time limit for hosts that search all of their logs."""


def read_logs(
    record: RunRecord, transport: Transport, wanted: LogRequest, show: Callable[[LogLines], None]
) -> LogsRead:
    """Shows what is there now, as `log_lines`."""
    with closing(log_lines(record, transport, wanted)) as lines:
        while True:
            try:
                one = next(lines)
            except StopIteration as ended:
                found: LogsRead = ended.value
                return found
            show(one)


def log_lines(record: RunRecord, transport: Transport, wanted: LogRequest) -> Generator[LogLines, None, LogsRead]:
    """What is there now, by its time (to the second). Needs a connection to every host at the same time."""
    known, unknown = record.routes_to(hosts_of(record, wanted.tasks))
    most_bytes = MERGED_BYTES if wanted.lines is None else ANSWER_BYTES
    with Merging([host.name for host in known], most_bytes) as merging:
        reading = _Reading(record, ImpatientTransport(transport, record), wanted, merging)
        try:
            reading.begin(known)
            yield from merging.all()
        finally:
            reading.end()
    answered = tuple(host.name for host in known if host.name not in reading.errors)
    return LogsRead(answered, {**reading.errors, **unknown})


class _Reading:
    """The reading of all hosts, with a thread for each."""

    def __init__(self, record: RunRecord, transport: Transport, wanted: LogRequest, merging: Merging) -> None:
        self.errors: dict[str, DtctlError] = {}
        self._record = record
        self._transport = transport
        self._wanted = wanted
        self._merging = merging
        self._opening = threading.Semaphore(WIDTH)
        self._sessions: set[Session] = set()

    def begin(self, hosts: list[Host]) -> None:
        for host in hosts:
            threading.Thread(target=self._read, args=(host,), daemon=True, name=f"logs-{host.name}").start()

    def end(self) -> None:
        for session in list(self._sessions):
            session.close()

    def _read(self, host: Host) -> None:
        bug: BaseException | None = None
        try:
            with self._opening:
                session = self._transport.open(host)
            self._sessions.add(session)
            try:
                for lines in received_lines(self._record, session, self._wanted):
                    self._merging.add(host.name, lines)
            finally:
                self._sessions.discard(session)
                session.close()
        except DtctlError as error:
            self.errors[host.name] = error.with_traceback(None)  # the error keeps frames alive
        except BaseException as other:  # raised in the thread that shows the lines the lines
            bug = other
        finally:
            self._merging.end(host.name, bug)


def received_lines(record: RunRecord, session: Session, wanted: LogRequest) -> Iterator[LogLines]:
    """The log lines of one host. Raises TransportError for lines that were not asked for, and as `frames_of`."""
    host = session.host.name
    fields = wanted.fields(record, session.host)
    session.send({**request(record, session.host, "logs"), **fields})
    lines: Counter[str] = Counter()
    most_bytes, most_lines = wanted.most_bytes(len(fields["tasks"])), wanted.most_lines()
    within_s = None if most_bytes is None else _SEARCH_S if wanted.searched else 2 * PATIENCE_S
    clock_s = ahead_s(session.greeted(), session.facts.get("time", session.greeted()))
    for message in frames_of(session, "log", most_bytes=most_bytes, within_s=within_s):
        if message.type == "log":
            with about(host, "sent an invalid `log`"):
                log = message.of(Log)
                check_tasks("task", [log["task"]], fields["tasks"])
                lines[log["task"]] += message.payload.count(b"\n")
                if most_lines is not None and lines[log["task"]] > most_lines:
                    raise wrong("lines", f"the last {wanted.lines} of each task", lines[log["task"]])
            yield LogLines(log, message.payload, clock_s)
    final(record, session, "logs", message, RunResult)


_OVERHEAD_BYTES = 500
"""What any lines take in memory besides their bytes."""


class Merging(AbstractContextManager["Merging"]):
    """`add` and `end` are called by the threads of the hosts, `all` by the reader. A context manager."""

    def __init__(self, hosts: Sequence[str], most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: dict[str, deque[LogLines]] = {host: deque() for host in hosts}
        self._ended: set[str] = set()
        self._bytes = 0
        self._bug: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def add(self, host: str, lines: LogLines) -> None:
        """Returns when there is room for more. A host without waiting lines may always add."""
        waiting = self._waiting[host]
        with self._changed:
            waiting.append(lines)
            self._bytes += len(lines.data) + _OVERHEAD_BYTES
            self._changed.notify_all()
            self._changed.wait_for(lambda: not waiting or self._bytes < self._most_bytes or self._closed)

    def end(self, host: str, bug: BaseException | None = None) -> None:
        """Marks the end of a host's lines. A `bug` is raised in the reading thread."""
        with self._changed:
            self._ended.add(host)
            self._bug = self._bug or bug
            self._changed.notify_all()

    def all(self) -> Iterator[LogLines]:
        """The lines of all hosts, merged by time, until every host has ended."""
        return heapq.merge(*map(self._of, self._waiting), key=lambda lines: lines.log["time"] + lines.clock_s)

    def _of(self, host: str) -> Iterator[LogLines]:
        while (lines := self._next(host)) is not None:
            yield lines

    def _next(self, host: str) -> LogLines | None:
        waiting = self._waiting[host]
        with self._changed:
            self._changed.wait_for(lambda: waiting or host in self._ended or self._bug)
            if self._bug is not None:
                raise self._bug
            if not waiting:
                return None
            lines = waiting.popleft()
            self._bytes -= len(lines.data) + _OVERHEAD_BYTES
            self._changed.notify_all()
            return lines


MOST_FILES = 10_000
"""The most files of one host: a trainer that was restarted more often than this is an invention of its host."""


@dataclass(frozen=True)
class SavedLog:
    """The requested output of one attempt, as it was saved."""

    task: str
    attempt: int
    path: Path
    size_bytes: int


@dataclass(frozen=True)
class LogsSaved(LogsRead):
    files: tuple[SavedLog, ...] = ()


def save_logs(record: RunRecord, transport: Transport, wanted: LogRequest, directory: Path) -> LogsSaved:
    """Saves logs to a new or empty directory. A host that does not send everything gets no files."""
    try:
        folder = Folder(directory, record.project, make=PRIVATE)
    except OSError as error:
        raise UsageError(f"logs cannot be saved in {directory}: {error.strerror}") from error
    with folder:
        if taken := folder.names():
            raise UsageError(f"{directory} is not empty: {taken[0]}", hint="--save makes the directory that it names")
        return _save(record, transport, wanted, folder)


def _save(record: RunRecord, transport: Transport, wanted: LogRequest, folder: Folder) -> LogsSaved:
    route = ImpatientTransport(transport, record)

    def work(host: Host) -> list[SavedLog]:
        with closing(route.open(host)) as session, _Files(folder, host.name) as files:
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
    """The files of one host. They have other names until all that was asked for is in them. A context manager."""

    def __init__(self, folder: Folder, host: str) -> None:
        self._folder = folder
        self._host = host
        self._begun: dict[tuple[str, int], int] = {}
        """File -> its bytes so far."""
        self._open: dict[str, tuple[int, BinaryIO]] = {}
        """Task -> the attempt that is being written."""

    def __exit__(self, *_: object) -> None:
        """Removes the files that were not kept."""
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
        """Renames the files to their final names."""
        with self._saving():
            self._close()  # unwritten data may find no room
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
