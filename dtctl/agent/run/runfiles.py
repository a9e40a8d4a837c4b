"""The files of one run on one host, as both its supervisor and the sessions use them."""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager, suppress

from ..host import locks, machine, paths
from ..records.kinds import made
from ..records.run_state import IntentFile, State
from ..records.spec import Spec
from ..records.words import Variables
from .event_log import EventLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, Mapping, Optional, Sequence, Type, TypeVar

    from ..records.hooks import Post
    from ..records.requests import Credentials
    from ..records.run_state import Process

    R = TypeVar("R")

RESERVE_BYTES = 128 * 1024
"""Set aside for the files that end a run on a disk that its trainers have filled."""


CREDENTIAL_FILES = {"key": "link.key", "certificate": "link.crt", "authority": "link.ca", "knock": "link.knock"}


class RunRemoved(FileNotFoundError):
    """A file that every run has is missing: there is no such run, or it has just been removed."""


class RunFiles:
    """Reading raises RunRemoved, and paths.Damaged for a damaged file."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.wake_path = self.path("wake")
        self.state_path = self.path("state.json")
        self.intent_path = self.path("intent.json")
        self.lock_path = self.path("agent.lock")
        self.agent_log = self.path("agent.log")
        self._events: Optional[EventLog] = None

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    @property
    def root(self) -> str:
        return os.path.dirname(os.path.dirname(os.path.dirname(self.directory)))

    def spec(self) -> Spec:
        return self._read("spec.json", Spec)

    def state(self) -> State:
        return self._read("state.json", State)

    def intent(self) -> IntentFile:
        return self._read("intent.json", IntentFile)

    def secrets(self) -> Dict[str, str]:
        return self._read("secrets.json", Variables)

    def inherited(self) -> Dict[str, str]:
        """The environment of the session that began the run, so that every attempt gets the same."""
        return self._read("environ.json", Variables)

    def is_of_this_machine(self) -> bool:
        """False where another machine that shares the home directory has begun the run, and where no run is."""
        return paths.read_text(self.path("machine")) == machine.identity()

    def code_directory(self) -> Optional[str]:
        """Where trainers work; None without any code. Runs of earlier builds work in the bundle itself."""
        spec = self.spec()
        if spec["bundle"] is None:
            return None
        if spec["copied"]:
            return paths.working_directory(self.root, spec["cluster"])
        return os.path.join(paths.bundle_directory(self.root, spec["bundle"]), "tree")

    def stage(
        self,
        spec: Spec,
        secrets: Mapping[str, str],
        inherited: Mapping[str, str],
        session: Process,
        credentials: Optional[Credentials] = None,
        hooks: Sequence[Post] = (),
    ) -> None:
        """Makes the run's directory, all but the spec: what has a spec is a run.

        `session` is the process that the run needs until it is kept.
        """
        paths.make_directory(self.directory)
        if credentials is not None:
            texts: Mapping[str, object] = credentials
            for name, file in CREDENTIAL_FILES.items():
                paths.write_text(self.path(file), str(texts[name]))
        paths.write_json(self.path("secrets.json"), dict(secrets))
        if hooks:
            paths.write_json(self.path("hooks.json"), {"posts": list(hooks)})
        paths.write_json(self.path("environ.json"), dict(inherited))
        paths.write_json(self.intent_path, first_intents(spec, session))
        paths.write_json(self.state_path, first_state(spec, time.time()))
        paths.write_text(self.path("machine"), machine.identity() + "\n")
        paths.write_text(self.path("reserve"), "\0" * RESERVE_BYTES)
        os.mkfifo(self.wake_path, 0o600)

    def begin(self, spec: Spec) -> None:
        """From now on it is a run."""
        self.write_urgent(self.path("spec.json"), spec)

    def keep_for_latecomers(self, credentials: Mapping[str, Credentials]) -> None:
        """On the coordinator's host: those of hosts that the run was started without."""
        if credentials:
            paths.write_json(self.path("latecomers.json"), {"credentials": credentials})

    def latecomers(self) -> Dict[str, Credentials]:
        from ..records.requests import Latecomers  # for sessions alone: a supervisor needs the memory for nothing else

        kept = paths.read_record(self.path("latecomers.json"), Latecomers)
        return kept["credentials"] if kept is not None else {}

    def write_intent(self, intent: IntentFile, urgent: bool = True) -> None:
        """`urgent`: as what a person asks for."""
        if urgent:
            self.write_urgent(self.intent_path, intent)
        else:
            paths.write_json(self.intent_path, intent)

    def write_urgent(self, path: str, value: Mapping[str, object]) -> None:
        """On a full disk the reserve makes room: that is when it matters most that a run can be stopped."""
        try:
            paths.write_json(path, value)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            with suppress(FileNotFoundError):
                os.unlink(self.path("reserve"))
            paths.write_json(path, value)

    def replace_damaged(self, path: str, value: Mapping[str, object]) -> str:
        """Puts a damaged file aside and writes this in its place; where the damaged one is now.

        There is a file at every moment: one without it would be taken for a run that is being removed.
        """
        aside = paths.aside_of(path)
        try:
            os.link(path, aside, follow_symlinks=False)
        except OSError:
            os.replace(path, aside)  # a directory, or a file system without links
        try:
            self.write_urgent(path, value)
        except OSError:
            os.replace(aside, path)  # the next try does both
            with suppress(FileNotFoundError):
                os.unlink(aside)  # two names of one file stay two
            raise
        return aside

    @contextmanager
    def intent_lock(self) -> Iterator[None]:
        """For sessions that change the intent, and for a supervisor that is about to end."""
        descriptor = locks.hold(self.path("intent.lock"), exclusive=True)
        while descriptor is None:
            time.sleep(0.01)
            descriptor = locks.hold(self.path("intent.lock"), exclusive=True)
        try:
            yield
        finally:
            os.close(descriptor)

    @property
    def events(self) -> EventLog:
        """For the supervisor, its only writer."""
        if self._events is None:
            self._events = EventLog(self.path("events.jsonl"))
        return self._events

    def _read(self, name: str, kind: Type[R]) -> R:
        value = paths.read_record(self.path(name), kind)
        if value is None:
            raise RunRemoved(errno.ENOENT, os.strerror(errno.ENOENT), self.path(name))
        return value


def first_intents(spec: Spec, session: Optional[Process]) -> IntentFile:
    """intent.json of a new run: nothing starts before the coordinator says so."""
    return made(IntentFile, serial=1, session=session, tasks={task["id"]: {"want": "hold"} for task in spec["tasks"]})


def first_state(spec: Spec, wall: float) -> State:
    """state.json before any supervisor has seen it."""
    tasks = {task["id"]: {"since": wall} for task in spec["tasks"]}
    return made(State, run=spec["run"], host=spec["host"], tasks=tasks)
