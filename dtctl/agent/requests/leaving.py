"""What a stop tells while it waits: which tasks still save, for how long, and how each has ended."""

from __future__ import annotations

import time

from . import part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..protocol.conversation import Conversation
    from ..records.answers import Leaving, Stopping
    from ..records.words import Way
    from .part import Part

FIRST_S = 1.0
"""Most stops are over by then, and have nothing to tell but their result."""

TELL_S = 1.0


class Teller:
    """Tells the controller what has changed, at most once a second. Made before anything is asked of the tasks."""

    def __init__(self, talk: Optional[Conversation], of: Part, tasks: List[str], grace_s: float) -> None:
        self._talk = talk
        self._of = of
        self._tasks = tasks
        self._grace_s = grace_s
        self._next = time.monotonic() + FIRST_S
        self._told: Dict[str, Leaving] = {}
        self._since: Dict[str, Optional[float]] = {task: None for task in tasks if self._way(task) == "saving"}
        """When each was seen to have been sent SIGTERM; None: before this stop was asked for."""
        self._took_s: Dict[str, float] = {}

    def look(self) -> None:
        """Called again and again while the tasks end."""
        now = time.monotonic()
        leaving = {task: self._leaving(task, now) for task in self._tasks}
        if now >= self._next:
            self._tell(leaving, now)

    def finish(self) -> None:
        """The last changes, for those who have heard of any."""
        if self._told:
            now = time.monotonic()
            self._tell({task: self._leaving(task, now) for task in self._tasks}, now)

    def _tell(self, leaving: Dict[str, Leaving], now: float) -> None:
        changed = {task: one for task, one in leaving.items() if self._is_news(task, one)}
        if self._talk is None or not changed:
            return
        stopping: Stopping = {"grace_s": self._grace_s, "tasks": changed}
        self._talk.send("stopping", stopping)
        self._told.update(changed)
        self._next = now + TELL_S

    def _is_news(self, task: str, one: Leaving) -> bool:
        """The controller counts the seconds itself."""
        before = self._told.get(task)
        return before is None or (before["way"], before["signal"]) != (one["way"], one["signal"])

    def _leaving(self, task: str, now: float) -> Leaving:
        way = self._way(task)
        if way in ("saving", "killed"):
            self._since.setdefault(task, now)
        since = self._since.get(task)
        for_s = None if since is None else max(0.0, now - since)
        if way == "ended" and for_s is not None:
            for_s = self._took_s.setdefault(task, for_s)
        entry = self._of.entry(task)
        end = entry["exit"] if entry is not None and way == "ended" else None
        return {"way": way, "for_s": for_s, "signal": end["signal"] if end is not None else None}

    def _way(self, task: str) -> Way:
        entry = self._of.entry(task)
        if part.has_ended(self._of, task):
            return "ended"
        if entry is None or self._of.unreached([task]):
            return "away"
        if entry["left"]:
            return "killed"
        return "saving" if entry["asked"] else "waits"
