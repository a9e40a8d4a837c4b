"""Whether a task is ready: its port listens, by a process of its own."""

from __future__ import annotations

from . import ports, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

LOOK_S = 0.5


class Readiness:
    """Of one attempt that runs. `port` None: it is ready as soon as it runs."""

    def __init__(self, port: Optional[int], start: Mapping[str, Any]) -> None:
        self._port = port
        self._start = start
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
        pid = str(self._start["pid"])
        if ports.holds(pid, inodes):
            return True
        tree = processes.tree(self._start, [self._start["key"]])
        return any(ports.holds(str(process.pid), inodes) for process in tree)
