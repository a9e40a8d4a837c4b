"""Connections to jump hosts, shared by all hosts behind them: a hundred hosts cost a bastion one login."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.reach import SshSettings
    from dtctl.transport.ssh.connection import StrictConnection
    from dtctl.transport.ssh.errors import Destination

FAILURE_KEPT_S = 5.0
"""So that a hundred hosts do not try, one after the other, a gateway that times out or bans who fails too often."""


@dataclass
class Login:
    """A connection that is logged in. `close` also gives back the gateway that it goes through."""

    connection: StrictConnection
    destination: Destination
    lease: Lease | None = None

    def close(self) -> None:
        self.connection.close()
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()


class Gateways:
    """`log_in` makes the connection to a gateway. Safe for many threads."""

    def __init__(self, log_in: Callable[[SshSettings], Login]) -> None:
        self._log_in = log_in
        self._lock = threading.Lock()
        self._shared: dict[SshSettings, _Shared] = {}

    def acquire(self, settings: SshSettings) -> Lease:
        """A live connection, opened now if there is none. Raises what `log_in` raises."""
        with self._lock:
            shared = self._shared.get(settings)
            mine = shared is None or shared.is_spent()
            if shared is None or mine:
                shared = self._shared[settings] = _Shared()
            shared.users += 1
        lease = Lease(shared, self._lock)
        try:
            if mine:
                shared.fill(lambda: self._log_in(settings))
            lease.connection = shared.opening.result().connection
        except BaseException:
            lease.release()
            raise
        return lease

    def forget_failures(self) -> None:
        """Called when something has changed that may let the next attempt succeed."""
        with self._lock:
            self._shared = {settings: shared for settings, shared in self._shared.items() if not shared.has_failed()}


class Lease:
    """One host's use of a gateway. The last one to release it closes the connection."""

    connection: StrictConnection

    def __init__(self, shared: _Shared, lock: threading.Lock) -> None:
        self._shared = shared
        self._lock = lock

    def release(self) -> None:
        with self._lock:
            self._shared.users -= 1
            unused = self._shared.users == 0
        if unused:
            self._shared.close()


class _Shared:
    """One connection and how many use it."""

    def __init__(self) -> None:
        self.opening: Future[Login] = Future()
        self.users = 0
        self._closed = False
        self._failed_at = 0.0

    def fill(self, log_in: Callable[[], Login]) -> None:
        try:
            self.opening.set_result(log_in())
        except BaseException as error:  # raised to everybody who waits for this gateway
            self._failed_at = time.monotonic()
            self.opening.set_exception(error)

    def is_spent(self) -> bool:
        """It is of no use to anybody new."""
        if self._closed:
            return True
        if not self.opening.done():
            return False
        if self.has_failed():
            return time.monotonic() - self._failed_at > FAILURE_KEPT_S
        return self.users == 0 or not self.opening.result().connection.is_connected

    def has_failed(self) -> bool:
        return self.opening.done() and self.opening.exception() is not None

    def close(self) -> None:
        if self.opening.done() and self.opening.exception() is None:
            self._closed = True
            self.opening.result().close()
