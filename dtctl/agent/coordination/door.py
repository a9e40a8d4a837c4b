"""The coordinator's port, and those who have come to it but have not proved yet that they belong to a run.

Who does not begin with a run's knock is not answered at all: a handshake costs a thousand times more than a look.
What everybody together can cost is bounded too: a few are served, and then the door rests for a while.
"""

from __future__ import annotations

import errno
import hmac
import selectors
import socket
from contextlib import suppress

from . import admission
from .lines import Lost
from .stream import Stream
from .tls import KNOCK_BYTES, Channel, Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

ACCEPTS = 32
TURNS = 4
"""Steps of handshakes; each takes up to a millisecond."""
REST_S = 0.01
SHORTAGE_S = 1.0
"""After which a connection is accepted again when the system had no room for one."""

_BACKLOG = 1024
_GONE_MEANWHILE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT)


class Caller(admission.Guest):
    """`stream` is there once it has knocked, and `identity` is the one whose knock it was."""

    def __init__(self, connection: socket.socket, address: str, since: float) -> None:
        super().__init__(address, since)
        self.connection = connection
        self.knock = b""
        self.identity: Optional[Identity] = None
        self.stream: Optional[Stream] = None


class Door:
    """Lets in who proves one of `identities`. `fileno` is readable when `step` has work, unless it `is_resting`."""

    def __init__(self, port: int, identities: Sequence[Identity]) -> None:
        self._keys = [(identity, identity.context(server=True)) for identity in identities]
        self._listener = _listen(port)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._callers: List[Caller] = []
        self._rests_until: Optional[float] = None
        self._short_until: Optional[float] = None

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def fileno(self) -> int:
        return self._selector.fileno()

    @property
    def is_resting(self) -> bool:
        return self._rests_until is not None

    def due(self) -> Optional[float]:
        """When `step` is wanted though nothing has come."""
        if self._rests_until is not None:
            return self._rests_until
        times = [caller.due for caller in self._callers[:1]]  # the oldest
        if self._short_until is not None:
            times.append(self._short_until)
        return min(times, default=None)

    def step(self, now: float) -> List[Tuple[Stream, Identity]]:
        """Streams whose other end has just proved whose it is."""
        if self._rests_until is not None and now < self._rests_until:
            return []
        self._end_shortage(now)
        ready = [key.data for key, _ in self._selector.select(0)]
        if None in ready:  # the listener
            self._accept(now)
        knocked = [caller for caller in ready if caller is not None and self._has_knocked(caller)]
        proved = [caller for caller in admission.in_turn(knocked)[:TURNS] if self._has_proved(caller)]
        self._send_away(now)
        self._rests_until = now + REST_S if ready else None
        return [(caller.stream, caller.identity) for caller in proved if caller.stream and caller.identity]

    def close(self) -> None:
        for caller in list(self._callers):
            self._drop(caller)
        self._selector.close()
        self._listener.close()

    def _accept(self, now: float) -> None:
        room = admission.PLACES - sum(caller.stream is not None for caller in self._callers)
        for _ in range(min(ACCEPTS, room)):
            try:
                self._let_in(*self._listener.accept(), now)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _GONE_MEANWHILE:
                    self._begin_shortage(now)
                    return

    def _let_in(self, connection: socket.socket, address: Sequence[str], now: float) -> None:
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            caller = Caller(connection, address[0], now)
            self._selector.register(connection, selectors.EVENT_READ, caller)
        except BaseException:
            connection.close()
            raise
        self._callers.append(caller)
        self._has_knocked(caller)  # most have by now: in a flood, it is a place that is free again

    def _has_knocked(self, caller: Caller) -> bool:
        """Looks at a knock as a whole: how much of it is right nobody may learn."""
        if caller.stream is None:
            try:
                piece = caller.connection.recv(KNOCK_BYTES - len(caller.knock))
            except BlockingIOError:
                return False
            except OSError:
                piece = b""
            caller.knock += piece
            for identity, context in self._keys:
                if hmac.compare_digest(caller.knock, identity.knock):
                    caller.identity = identity
                    caller.stream = Stream(caller.connection, Channel(identity, context, server=True))
                    return True
            if not piece or len(caller.knock) == KNOCK_BYTES:
                self._drop(caller)
        return caller.stream is not None

    def _has_proved(self, caller: Caller) -> bool:
        assert caller.stream is not None
        caller.begun = True
        try:
            if not (caller.stream.pull() and caller.stream.advance()):
                return False
        except Lost:
            self._drop(caller)
            return False
        self._forget(caller)
        return True

    def _send_away(self, now: float) -> None:
        """Those whose time is up, and strangers for whom there is no room."""
        for caller in [caller for caller in self._callers if now >= caller.due]:
            self._drop(caller)
        for caller in admission.surplus([caller for caller in self._callers if caller.stream is None]):
            self._drop(caller)

    def _forget(self, caller: Caller) -> None:
        self._callers.remove(caller)
        self._selector.unregister(caller.connection)

    def _drop(self, caller: Caller) -> None:
        self._forget(caller)
        caller.connection.close()

    def _begin_shortage(self, now: float) -> None:
        """No descriptors, no memory: the listener stays readable all the while, and is not to be looked at."""
        self._selector.unregister(self._listener)
        self._short_until = now + SHORTAGE_S

    def _end_shortage(self, now: float) -> None:
        if self._short_until is not None and now >= self._short_until:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._short_until = None


def _listen(port: int) -> socket.socket:
    """On all addresses of the host, of both kinds where it has both. Raises OSError."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # switched off in the kernel: no address to bind to; a port that is taken is told below
            return _bound(socket.AF_INET6, "::", port)
    return _bound(socket.AF_INET, "", port)


def _bound(family: int, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
