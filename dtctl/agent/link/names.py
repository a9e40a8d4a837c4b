"""The coordinator's address, looked up without anybody having to wait for it."""

from __future__ import annotations

import _thread
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Tuple

    Place = Tuple[int, Tuple[Any, ...]]


class Names:
    """Of one HOST:PORT or [HOST]:PORT. A numeric host is never looked up.

    A name is, by a thread, since the system may take minutes to answer. While it does, and when it cannot, the last
    answer is as good as any.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._asking = False
        self._places: List[Place] = []
        self._error: Optional[OSError] = None
        self._turn = 0
        try:
            self._places = self._look_up(socket.AI_NUMERICHOST)
            self._is_numeric = True
        except socket.gaierror:
            self._is_numeric = False

    def ask(self) -> None:
        """Begins to look it up, unless that is still being done."""
        if not self._is_numeric and not self._asking:
            self._asking = True
            self._error = None
            try:
                _thread.start_new_thread(self._answer, ())
            except RuntimeError as error:  # as many threads as the user may have
                self._asking, self._error = False, OSError(str(error))

    def next(self) -> Optional[Place]:
        """Family and address, each of several in turn; None while there is no answer. Raises OSError."""
        if not self._places:
            if self._error is not None:
                raise self._error
            return None
        self._turn += 1
        return self._places[(self._turn - 1) % len(self._places)]

    def _answer(self) -> None:
        try:
            self._places = self._look_up(0)
        except OSError as error:
            self._error = OSError("%s: %s" % (self._host, error.strerror))
        except UnicodeError:
            self._error = OSError("%s: not a name" % self._host)
        finally:
            self._asking = False

    def _look_up(self, flags: int) -> List[Place]:
        found = socket.getaddrinfo(self._host, self._port, 0, socket.SOCK_STREAM, 0, flags)
        return [(family, address) for family, _, _, _, address in found]
