"""The files of one run on one host, as both its supervisor and the sessions use them."""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import contextmanager, suppress

from ..host import errors, files, locks, machine, paths
from ..records import kinds
from ..records.kinds import made
from ..records.run_state import Entry, Intent, IntentFile, Process, State
from ..records.spec import Moved, Spec
from ..records.values import Variables
from ..records.whole_run import Awaited, Ballot
from . import ballots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar

    from ..records.hooks import Post
    from ..records.starting import Credentials

    R = TypeVar("R")


RESERVE_BYTES = 128 * 1024
"""Set aside for the files that end a run on a disk that its trainers have filled."""


_IN_VAIN_S = 0.1
"""How long a lock is waited for that was waited for in vain before."""

MOVED = "moved.json"

CREDENTIAL_FILES = {
    "key": "link.key",
    "certificate": "link.crt",
    "authority": "link.ca",
    "port_token": "link.port_token",
}


NEW, REMOVED = ".new-", ".removed-"
"""Prefixes of directories that will become a run's or be removed. No run has such a name."""


class RunFiles:
    """Reading raises RunRemoved, and paths.Damaged for a damaged or missing file.

    The directory appears with all of its files, and vanishes with them: one that lacks a file is damaged.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.wake_path = self.path("wake")
        self.state_path = self.path("state.json")
        self.intent_path = self.path("intent.json")
        self.lock_path = self.path("agent.lock")
        self.agent_log = self.path("agent.log")
        self._events: Optional[EventLog] = None
        self._in_vain = False
        """Whether the lock of the intent was waited for in vain the last time."""
        self._current_tasks: Optional[Tuple[object, List[str]]] = None
        """The tasks of this host, by a version of moved.json."""

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    @property
    def root(self) -> str:
        return os.path.dirname(os.path.dirname(os.path.dirname(self.directory)))

    def original(self) -> Spec:
        """The spec as `up` has written it."""
        return self._read("spec.json", Spec)

    def spec(self, moved: Optional[Moved] = None) -> Spec:
        """The current spec: another coordinator may have been elected, and hosts replaced.

        `moved`: moves other than those that this host follows.
        """
        spec = self.original()
        moved = moved or paths.read_record(self.path(MOVED), Moved)
        if moved is not None:
            spec = self._with_moves(spec, moved)
        ballot = None
        with suppress(paths.Damaged):
            ballot = self.ballot() if spec["voters"] else None
        if ballot is not None and ballot["term"] > 1:
            newest = ballot["coordinator"] or ballot["last"]
            place = next((voter for voter in spec["voters"] if voter["host"] == newest), spec["coordinator"])
            spec.update({"coordinator": place, "elected": place["host"], "term": ballot["term"]})
        return spec

    def _with_moves(self, spec: Spec, moved: Moved) -> Spec:
        from . import gang  # in few runs hosts are replaced, or join

        try:
            return gang.with_moves(spec, moved)
        except kinds.InvalidValue as wrong:
            raise paths.Damaged("%s is damaged: %s" % (self.path(MOVED), wrong)) from None

    def write_moved(self, moved: Moved) -> None:
        """Writes the moves to the disk before it returns: an agent that starts later follows them."""
        self.write_urgent(self.path(MOVED), moved)
        paths.sync(self.path(MOVED))

    def ballot(self) -> Optional[Ballot]:
        """The ballot; None before the first election, and in a run whose coordinator does not change."""
        return ballots.read(self.directory)

    def write_ballot(self, ballot: Ballot) -> None:
        """Writes the ballot durably: no voter votes twice in a term, not even after a power failure."""
        ballots.write(self.directory, ballot, self.write_urgent)

    def awaited(self) -> Optional[Awaited]:
        """Hosts that gave no answer when the run ended; None if there are none."""
        return paths.read_record(self.path("awaited.json"), Awaited)

    def write_awaited(self, awaited: Awaited) -> None:
        self.write_urgent(self.path("awaited.json"), awaited)

    def state(self) -> State:
        state = self._read("state.json", State)
        own = self._tasks_now()
        if own is not None:
            known = state["tasks"]
            state["tasks"] = {task: known.get(task) or self._fresh_entry(task) for task in own}
        return state

    def intent(self) -> IntentFile:
        intent = self._read("intent.json", IntentFile)
        own = self._tasks_now()
        if own is not None:
            known = intent["tasks"]
            intent["tasks"] = {task: known.get(task) or made(Intent, want="hold") for task in own}
        return intent

    def _tasks_now(self) -> Optional[List[str]]:
        """This host's current tasks if hosts were replaced, as older files may be about other tasks; otherwise None."""
        version = paths.version(self.path(MOVED))
        if version is None:
            return None
        if self._current_tasks is None or self._current_tasks[0] != version:
            self._current_tasks = version, [task["id"] for task in self.spec()["tasks"]]
        return self._current_tasks[1]

    def _fresh_entry(self, task: str) -> Entry:
        """The entry of a task that is new here, even if attempts of it have run here before."""
        return made(Entry, since=time.time(), attempt=paths.last_attempt(self.directory, task))

    def secrets(self) -> Dict[str, str]:
        return self._read("secrets.json", Variables)

    def inherited(self) -> Dict[str, str]:
        """The environment of the session that began the run, so that every attempt gets the same."""
        return self._read("environ.json", Variables)

    def is_of_this_machine(self) -> bool:
        """Whether the run was begun on this machine, and not on another one with the same home directory."""
        return paths.read_text(self.path("machine")) == machine.identity()

    def stage(
        self,
        spec: Spec,
        secrets: Mapping[str, str],
        inherited: Mapping[str, str],
        session: Process,
        credentials: Optional[Credentials] = None,
        hooks: Sequence[Post] = (),
    ) -> RunFiles:
        """Makes what becomes the run's directory, all but the spec.

        `session` is the process that the run needs until it is kept.
        """
        made = RunFiles(os.path.join(self.root, "runs", NEW + os.urandom(8).hex()))
        try:
            paths.make_directory(made.directory)
            if credentials is not None:
                texts: Mapping[str, object] = credentials
                for name, file in CREDENTIAL_FILES.items():
                    paths.write_text(made.path(file), str(texts[name]))
            paths.write_json(made.path("secrets.json"), dict(secrets))
            if hooks:
                paths.write_json(made.path("hooks.json"), {"posts": list(hooks)})
            paths.write_json(made.path("environ.json"), dict(inherited))
            paths.write_json(made.intent_path, first_intents(spec, session))
            paths.write_json(made.state_path, first_state(spec, time.time()))
            paths.write_text(made.path("machine"), machine.identity() + "\n")
            paths.write_text(made.path("reserve"), "\0" * RESERVE_BYTES)
            ballots.set_aside(made.directory)
            os.mkfifo(made.wake_path, 0o600)
        except BaseException:
            made.remove()
            raise
        return made

    def begin(self, staged: RunFiles, spec: Spec) -> None:
        """Publishes the run: its directory appears with all of its files."""
        staged.write_urgent(staged.path("spec.json"), spec)
        paths.make_directory(os.path.dirname(self.directory))
        os.rename(staged.directory, self.directory)

    def remove(self) -> None:
        import shutil  # for sessions alone

        shutil.rmtree(self.directory, ignore_errors=True)

    def remove_aside(self) -> None:
        """Moves the run's directory aside and removes it, so that no session finds a part of it. For the run's own
        agent.
        """
        import shutil

        with suppress(OSError):
            shutil.rmtree(self.set_aside(), ignore_errors=True)

    def set_aside(self) -> str:
        """Moves the directory out of the way; returns its new path."""
        aside = os.path.join(self.root, "runs", REMOVED + os.urandom(8).hex())
        with suppress(FileNotFoundError):
            os.rename(self.directory, aside)
        with suppress(OSError):  # another host of the inventory has its part of the run here
            os.rmdir(os.path.dirname(self.directory))
        return aside

    def keep_for_pending_hosts(self, credentials: Mapping[str, Credentials]) -> None:
        """Stores, on the coordinator's host, the credentials of hosts that the run was started without."""
        if credentials:
            paths.write_json(self.path("pending_hosts.json"), {"credentials": credentials})

    def pending_hosts(self) -> Dict[str, Credentials]:
        from ..records.starting import PendingHosts  # only for sessions: a supervisor saves the memory

        kept = paths.read_record(self.path("pending_hosts.json"), PendingHosts)
        if kept is None:
            kept = paths.read_record(self.path("latecomers.json"), PendingHosts)  # of a run of an older version
        return kept["credentials"] if kept is not None else {}

    def write_intent(self, intent: IntentFile, urgent: bool = True) -> None:
        """`urgent`: a person's request, which is written even if the disk is full."""
        if urgent:
            self.write_urgent(self.intent_path, intent)
        else:
            paths.write_json(self.intent_path, intent)

    def write_urgent(self, path: str, value: Mapping[str, object]) -> None:
        """Writes a file; on a full disk the reserve is freed for it, so that a run can still be stopped."""
        try:
            paths.write_json(path, value)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            with suppress(FileNotFoundError):
                os.unlink(self.path("reserve"))
            paths.write_json(path, value)

    def replace_damaged(self, path: str, value: Mapping[str, object]) -> str:
        """Puts a damaged file aside and writes this in its place; what has become of the damaged one."""
        aside = paths.aside_of(path)
        try:
            os.link(path, aside, follow_symlinks=False)
        except FileNotFoundError:
            self.write_urgent(path, value)
            return "it was written again"
        except OSError:
            os.replace(path, aside)  # a directory, or a file system without links
        try:
            self.write_urgent(path, value)
        except OSError:
            os.replace(aside, path)  # the next try does both
            with suppress(FileNotFoundError):
                os.unlink(aside)  # two names of one file stay two
            raise
        return "it was put aside as %s" % aside

    @contextmanager
    def intent_lock(self) -> Iterator[None]:
        """Locks the intent, for sessions that change it and for a supervisor that is about to end.

        Agents hold it for milliseconds. What holds it for seconds, or has put something else in its place, is a trainer
        or a suspended session, and must not keep the run from being stopped: then nobody has it, and each file of the
        run is still replaced as a whole.
        """
        lock = None
        try:
            lock = locks.await_lock(self.path("intent.lock"), True, _IN_VAIN_S if self._in_vain else locks.PATIENCE_S)
        except files.Unfit as unfit:
            errors.note("intent.lock %s" % unfit.strerror)
        self._in_vain = lock is None
        with locks.closing(lock):
            yield

    @property
    def events(self) -> EventLog:
        """The event log, for its only writer, the supervisor."""
        if self._events is None:
            self._events = EventLog(self.path("events.jsonl"))
        return self._events

    def _read(self, name: str, kind: Type[R]) -> R:
        value = paths.read_record(self.path(name), kind)
        if value is not None:
            return value
        if os.path.isdir(self.directory):
            raise paths.Damaged("%s is missing" % self.path(name))
        raise paths.RunRemoved(errno.ENOENT, os.strerror(errno.ENOENT), self.path(name))


def first_intents(spec: Spec, session: Optional[Process]) -> IntentFile:
    """intent.json of a new run: nothing starts before the coordinator orders it."""
    return made(IntentFile, serial=1, session=session, tasks={task["id"]: {"want": "hold"} for task in spec["tasks"]})


def first_state(spec: Spec, wall: float) -> State:
    """state.json before the first supervisor."""
    tasks = {task["id"]: {"since": wall} for task in spec["tasks"]}
    return made(State, run=spec["run"], host=spec["host"], tasks=tasks)


_CHUNK = 1 << 16
_MOST_BYTES = 256 * 1024 * 1024
_MOST_LINES = 1_000_000
_AT_ONCE = 1000
"""Lines in memory."""


class EventLog:
    """events.jsonl: a line for each transition on this host. A line's number is its permanent index.

    Only the supervisor writes it. Lines that do not fit on a full disk wait in memory, in order.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: List[bytes] = []
        self._starts = [0]
        """The offset of each line, and that of the next one."""
        self._scan()

    @property
    def count(self) -> int:
        """The number of lines in the file: an event that is not written yet has no index yet."""
        return len(self._starts) - 1

    def add(self, event: Mapping[str, object]) -> None:
        self._waiting.append(json.dumps(event).encode() + b"\n")
        self.write_waiting()

    def write_waiting(self) -> None:
        """Writes as much as the disk takes."""
        while self._waiting and self._append(self._waiting[0]):
            del self._waiting[0]

    def since(self, index: int, most: int = 100) -> List[Dict[str, object]]:
        """The events from this index on, at most `most`, unchecked."""
        last = min(self.count, index + most)
        if index >= last:
            return []
        lines = self._read(self._starts[index], self._starts[last]).split(b"\n")
        lines += [b""] * (last - index)  # for those that were cut off
        return [_event(line) for line in lines[: last - index]]

    def records(self, kind: Type[R], index: int = 0, most: Optional[int] = None) -> Iterator[Optional[R]]:
        """Its lines from this index on, as records; None for a damaged one."""
        last = self.count if most is None else min(self.count, index + most)
        for begin in range(index, last, _AT_ONCE):
            for line in self.since(begin, min(_AT_ONCE, last - begin)):
                try:
                    yield kinds.checked(kind, line)
                except kinds.InvalidValue:
                    yield None

    def _read(self, begin: int, end: int) -> bytes:
        try:
            opened = files.descriptor(self._path)
        except OSError:
            return b""
        try:
            return files.read_at(opened, begin, end - begin)
        finally:
            os.close(opened)

    def _append(self, line: bytes) -> bool:
        end = self._starts[-1]
        try:
            with open(self._path, "ab", buffering=0, opener=files.private) as file:
                if file.tell() != end:
                    file.truncate(end)  # the part of a line that a full disk took, or that a kill has left
                if file.write(line) != len(line):
                    return False
        except OSError:
            return False
        self._starts.append(end + len(line))
        return True

    def _scan(self) -> None:
        """Moves away what cannot be an event log, and begins a new one."""
        try:
            if not self._find_lines():
                raise files.Unfit(self._path, "is too large")
        except FileNotFoundError:
            pass  # nothing has happened yet
        except files.Unfit:
            self._starts = [0]
            with suppress(OSError):  # the record is overwritten then
                os.rename(self._path, "%s.damaged-%s" % (self._path, os.urandom(4).hex()))

    def _find_lines(self) -> bool:
        """Finds the lines; False if there are too many."""
        with files.opened(self._path) as opened:
            offset = 0
            while offset < _MOST_BYTES and len(self._starts) <= _MOST_LINES:
                chunk = os.pread(opened, _CHUNK, offset)
                if not chunk:
                    return True
                at = chunk.find(b"\n")
                while at >= 0:
                    self._starts.append(offset + at + 1)
                    at = chunk.find(b"\n", at + 1)
                offset += len(chunk)
            return False


def _event(line: bytes) -> Dict[str, object]:
    """The event in a line; empty for a damaged one, which keeps its number."""
    try:
        value = kinds.parse_json(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
