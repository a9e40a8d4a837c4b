"""Worker 0's view of a collective: all members join, step and leave together, or all fail."""

from __future__ import annotations

import threading

from .network import Message
from .place import Place


class Group:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._size = len(place.workers)
        self._changed = threading.Condition()
        self._members: set[str] = set()
        self._arrived: set[str] = set()
        self._left: set[str] = set()
        self._step: int | None = None
        self._stop = self._enough = False
        self._failed = ""

    def answer(self, request: Message) -> Message:
        """Answers `join`, `step` and `leave` once all members have sent the same."""
        with self._changed:
            before = self._step
            if request["do"] == "join":
                self._join(request["me"])
                self._changed.wait_for(lambda: self._step is not None or self._failed)
            elif request["do"] == "step":
                self._arrive(request)
                limit_s = self._place.options.heartbeat_s
                if not self._changed.wait_for(lambda: self._step != before or self._failed, limit_s):
                    late = ", ".join(sorted(self._members - self._arrived))
                    self._fail(f"The following tasks are unhealthy (stopped sending heartbeats): {late}")
            else:
                self._left.add(request["me"])
                self._changed.notify_all()
                self._changed.wait_for(lambda: len(self._left) == self._size or self._failed)
            if self._failed:
                return {"failed": self._failed}
            return {"step": self._step, "stop": self._stop, "enough": self._enough}

    def _join(self, me: str) -> None:
        if self._step is not None:
            return self._fail(f"{me} unexpectedly tried to connect with a different incarnation")
        self._members.add(me)
        if len(self._members) == self._size:
            self._step = self._place.restore()
            self._changed.notify_all()
        else:
            print(f"I coordination_service.cc] Waiting for {len(self._members)}/{self._size} tasks to connect.")
        return None

    def _arrive(self, request: Message) -> None:
        self._arrived.add(request["me"])
        self._stop |= request["stopping"]
        self._enough |= request["wants_end"]
        if len(self._arrived) == self._size:
            self._arrived.clear()
            self._step = (self._step or 0) + 1
            self._changed.notify_all()

    def lost(self, me: str) -> None:
        """Handles the end of a connection: before the first step the member is only waited for again."""
        with self._changed:
            if self._step is None:
                self._members.discard(me)
            elif me not in self._left:
                self._fail(f"Connection reset by peer: {me}")

    def _fail(self, reason: str) -> None:
        self._failed = self._failed or reason
        self._changed.notify_all()
