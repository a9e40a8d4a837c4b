"""Whether the machines of hosts that are away answer: then it is their agent that is gone, or cut off."""

from __future__ import annotations

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Set

AWAY_S = 45.0
"""So long a host is away before its machine is asked: an agent that was killed is replaced sooner, and dials."""

ASK_AGAIN_S = 30.0
LIMIT_S = 5.0


class Answering:
    """Asks by threads that nobody waits for: a name may take minutes to be looked up."""

    def __init__(self) -> None:
        self._answers: Dict[str, bool] = {}
        self._asking: Set[str] = set()
        self._next: Dict[str, float] = {}

    def of(self, host: str, address: str, port: int, now: float) -> Optional[bool]:
        """As the last answer was, None before there is one. Nobody need listen on the port: to be refused will do."""
        if host not in self._asking and now >= self._next.get(host, now):
            import threading  # rarely needed

            self._next[host] = now + ASK_AGAIN_S
            self._asking.add(host)
            try:
                threading.Thread(target=self._ask, args=(host, address, port), daemon=True).start()
            except RuntimeError:  # as many threads as the user may have
                self._asking.discard(host)
        return self._answers.get(host)

    def forget(self, host: str) -> None:
        """It is back."""
        self._answers.pop(host, None)
        self._next.pop(host, None)

    def _ask(self, host: str, address: str, port: int) -> None:
        self._answers[host] = answers(address, port)
        self._asking.discard(host)


def answers(address: str, port: int) -> bool:
    """Whether a machine accepts a connection, or refuses it."""
    try:
        socket.create_connection((address, port), LIMIT_S).close()
    except ConnectionRefusedError:
        return True
    except (OSError, UnicodeError):
        return False
    return True
