"""Whether a task is ready: its port listens, by a process of its own."""

from __future__ import annotations

from ..host import ports, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.run_state import Process

LOOK_S = 0.5


class Readiness:
    """Readiness of one running attempt. `port` None: it is ready as soon as it runs."""

    def __init__(self, port: Optional[int], trainer: Optional[Process], key: str) -> None:
        self._port = port
        self._trainer = trainer
        self._key = key
        self._next_look = 0.0

    def look(self, now: float) -> bool:
        """Looks at most every half second, and at processes only when something listens."""
        if self._port is None:
            return True
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_S
        inodes = ports.listening(self._port)
        if not inodes:
            return False
        if self._trainer is not None and ports.holds(str(self._trainer["pid"]), inodes):
            return True
        tree = processes.tree(self._trainer, [self._key])
        return any(ports.holds(str(process.pid), inodes) for process in tree)
