"""A stop of this host's tasks on a disk without room: by the agent's memory, and by what is left of their processes."""

from __future__ import annotations

from ..host.errors import NO_ROOM, Refused
from ..run.letters import Correspondence
from . import runs
from .run_handles import FULL_DISK, RunHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..records.run_state import Entry, How, State

ANSWER_S = 10.0
"""How long the agent may take to answer: it may just be started again."""

ASK_S = 0.2


class UnwrittenStop(RunHandle):
    """`full`: the error of the file that could not be written, which is raised where no agent answers."""

    is_written = False

    def __init__(self, run: runs.Run, full: OSError, handle: RunHandle) -> None:
        away = None if handle.view is None else Refused("not_answering", FULL_DISK, "", NO_ROOM)
        super().__init__(run, handle.away or away)
        self._full = full
        self._letters: Optional[Correspondence] = None

    def refresh(self) -> None:
        super().refresh()
        if self._letters is not None and self._letters.answer is not None:
            self._state = self._letters.answer

    def post_stop(self, named: Optional[List[str]], tasks: List[str], how: How) -> int:
        """Returns when the agent obeys: no file says so. Raises OSError where it does not answer."""
        self._letters = Correspondence(self._run.files.wake_path, tasks, how, ends_run=named is None)
        if not self.until(lambda: self.has_taken(0), ANSWER_S):
            raise self._full
        return 0

    def has_taken(self, serial: int) -> bool:
        return self._letters is not None and self._letters.answer is not None

    def entry(self, task: str) -> Optional[Entry]:
        """Its end may be unknown to the agent, too: the keeper tells it by a file for which there is no room."""
        entry = super().entry(task)
        if entry is None or not self.has_taken(0) or entry["state"] not in ("running", "stalled"):
            return entry
        return entry if self._run.survivors([task]) else {**entry, "state": "stopped"}

    def until(self, done: Callable[[], bool], limit_s: float) -> bool:
        def refresh(state: State) -> bool:
            if self._letters is not None:
                self._letters.exchange(ASK_S)
            self._state = (self._letters.answer if self._letters is not None else None) or state
            return done()

        return self._run.until(refresh, limit_s) is not None

    def close(self) -> None:
        if self._letters is not None:
            self._letters.close()
