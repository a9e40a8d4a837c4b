"""A stop on a disk that has no room for anything: a session sends it to the agent, which obeys it in memory.

No file can hold it then, and the reserve is used up. It goes through the agent's FIFO, and the answer comes through a
pipe of the session, which the agent opens by /proc: neither needs room. Both ends are processes of one user. The agent
obeys at once, and writes the intents as soon as there is room. An agent that is started before that knows nothing of
it, so the session reports that the stop is not written.
"""

from __future__ import annotations

import json
import os
import select
import stat
import time
from contextlib import suppress

from ..host import errors, wake
from ..host.errors import Refused
from ..records.kinds import InvalidValue, checked, parse_json
from ..records.run_state import Letter, LetterAnswer
from . import intents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Set

    from ..records.run_state import How, State
    from .intents import IntentFollower

MOST_BYTES = 4000
"""The longest letter: up to PIPE_BUF a FIFO takes it as a whole."""

MOST_ANSWER_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
"""fcntl(2); the most that a user may set is 1 MiB as a rule."""


class Letters:
    """Those that an agent has received."""

    def __init__(self) -> None:
        self._begun = b""
        self._unanswered: List[Letter] = []
        self._obeyed: Set[str] = set()

    def feed(self, data: bytes) -> None:
        """What was read from the FIFO: letters are lines, and between them are the bytes that only wake."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        self._begun = self._begun.strip(b".")[-MOST_BYTES:]
        for line in lines:
            text = line.strip(b".")
            if text:
                try:
                    self._unanswered.append(checked(Letter, parse_json(text)))
                except (ValueError, InvalidValue):
                    errors.note("letter: a line in the FIFO is none")

    def obey(self, follower: IntentFollower) -> None:
        """What a session has given up waiting for is not done: it has reported that."""
        self._unanswered = [letter for letter in self._unanswered if _is_awaited(letter)]
        for letter in self._unanswered:
            if letter["id"] not in self._obeyed:
                self._obeyed.add(letter["id"])
                ends_run, value = letter["ends_run"], follower.value
                follower.take(intents.to_end(value["tasks"], letter["tasks"], letter["how"], ends_run=ends_run))
                if ends_run and not value["tasks"]:
                    value["ends_run"] = letter["how"]

    def answer(self, state: State) -> None:
        """Sends the state in which this host's tasks are since each letter was obeyed."""
        unanswered, self._unanswered = self._unanswered, []
        for letter in unanswered:
            tasks = {task: {**entry, "history": []} for task, entry in state["tasks"].items()}
            answer = {"letter": letter["id"], "state": {**state, "tasks": tasks}}
            with suppress(OSError):  # the session has ended
                opened = os.open(_pipe(letter), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.write(opened, b"\n" + json.dumps(answer).encode() + b"\n")
                finally:
                    os.close(opened)


def _pipe(letter: Letter) -> str:
    return "/proc/%d/fd/%d" % (letter["pid"], letter["descriptor"])


def _is_awaited(letter: Letter) -> bool:
    """Whether the session still waits for the answer."""
    try:
        return stat.S_ISFIFO(os.stat(_pipe(letter)).st_mode)
    except OSError:
        return False


class Correspondence:
    """A session's: one letter, sent again until it is answered, as its receiver may be killed."""

    def __init__(self, wake_path: str, tasks: List[str], how: How, *, ends_run: bool) -> None:
        self.answer: Optional[State] = None
        """The state in the newest answer."""
        self._path = wake_path
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._reads, False)
        with suppress(OSError):
            import fcntl

            fcntl.fcntl(self._writes, _F_SETPIPE_SZ, MOST_ANSWER_BYTES)
        self._id = os.urandom(8).hex()
        self._begun = b""
        letter = {"id": self._id, "pid": os.getpid(), "descriptor": self._writes}
        letter.update({"tasks": tasks, "how": how, "ends_run": ends_run})
        self._line = json.dumps(letter).encode()
        if len(self._line) > MOST_BYTES:
            raise Refused("disk_full", "the disk is full, and the request too long for the agent's memory")

    def exchange(self, limit_s: float) -> None:
        """Sends the letter, and waits for an answer for so long at most."""
        if not wake.send(self._path, self._line):
            time.sleep(limit_s)
            return
        if select.select([self._reads], [], [], limit_s)[0]:
            self._read()

    def close(self) -> None:
        os.close(self._reads)
        os.close(self._writes)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            self._begun += os.read(self._reads, MOST_ANSWER_BYTES)
        *lines, self._begun = self._begun.split(b"\n")
        for line in filter(None, lines):
            with suppress(ValueError, InvalidValue):  # one for which the pipe had no room
                found = checked(LetterAnswer, parse_json(line))
                self.answer = found["state"] if found["letter"] == self._id else self.answer
