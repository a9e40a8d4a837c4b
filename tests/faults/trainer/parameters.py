"""The state of a ps: empty when it starts; then the step at which it was initialised or restored, and each push."""

from __future__ import annotations

import threading

from .network import Message


class Parameters:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._step: int | None = None
        self._session = 0
        self._enough = False
        self._arrived: set[str] = set()

    def answer(self, request: Message) -> Message:
        """Answers `get`, `restore`, `push`, and `join`, whose step is done when `of` different tasks have joined."""
        with self._changed:
            self._enough |= request.get("wants_end", False)
            if request["do"] == "restore":
                self._begin(request["step"], self._session + 1)
            elif request["do"] == "push" and self._step is not None:
                self._step += request["count"]
            elif request["do"] == "join" and self._step is not None:
                self._arrived.add(request["me"])
                if len(self._arrived) == request["of"]:
                    self._begin(self._step + 1, self._session)
                else:
                    before = self._step, self._session
                    self._changed.wait_for(lambda: (self._step, self._session) != before)
            return {"step": self._step, "enough": self._enough}

    def _begin(self, step: int, session: int) -> None:
        self._step, self._session = step, session
        self._arrived.clear()
        self._changed.notify_all()
