"""The coordinator's port, and connections to it that have not proved yet that they belong to a run.

Each is sent a nonce, and closed unless it answers with the proof of a run's port token for it: the first step of a
handshake costs twenty times as much, and 45 KB. What all together can cost is bounded, too: some are served, and then
the acceptor rests for a while. When all places are taken it still accepts new connections, and closes old ones.
"""

from __future__ import annotations

import errno
import hmac
import os
import selectors
import socket
from collections import Counter
from contextlib import suppress

from .tls import NONCE_BYTES, PROOF_BYTES, Channel, Identity, Lost, TlsStream, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple


PLACES = 256
"""The most connections without a proof of the port token, and as many with one: at 3,000 a second each has 85 ms."""

PROOF_S = 5.0
"""The limit from the start of a connection to the end of the handshake, and from there to the hello."""


class Caller:
    """A connection that is not authenticated yet.

    `identity` is set once it has proved the port token, and names its run; `stream` once its handshake has begun.
    """

    def __init__(self, connection: socket.socket, address: str, since: float) -> None:
        self.connection = connection
        self.address = address
        self.since = since
        self.nonce = os.urandom(NONCE_BYTES)
        self.proof = b""
        self.identity: Optional[Identity] = None
        self.stream: Optional[TlsStream] = None
        self.begun = False
        """Some of its handshake has arrived."""

    @property
    def due(self) -> float:
        return self.since + PROOF_S


def in_turn(callers: Sequence[Caller]) -> List[Caller]:
    """The order in which handshakes continue: one of each address first, then another of each, and so on.

    Within an address, those that have begun come first, so that their work is not wasted, and then the newest, which
    have the longest time until they are dropped.
    """
    ordered = sorted(callers, key=lambda caller: (not caller.begun, caller.since if caller.begun else -caller.since))
    turns: Counter[str] = Counter()
    keyed: List[Tuple[int, int, Caller]] = []
    for caller in ordered:
        keyed.append((turns[caller.address], len(keyed), caller))
        turns[caller.address] += 1
    return [caller for _, _, caller in sorted(keyed, key=lambda each: each[:2])]


def surplus(callers: Sequence[Caller], places: int = PLACES) -> List[Caller]:
    """Connections to close so that at most `places` are left: each time the oldest of the busiest address."""
    if len(callers) <= places:
        return []
    held: Dict[str, List[Caller]] = {}
    for caller in sorted(callers, key=lambda caller: caller.since, reverse=True):
        held.setdefault(caller.address, []).append(caller)
    going: List[Caller] = []
    while len(callers) - len(going) > places:
        busiest = max(held.values(), key=lambda each: (len(each), -each[-1].since if each else 0.0))
        going.append(busiest.pop())
    return going


ACCEPTS = 96
"""The most connections accepted at once; each takes 25 microseconds."""
TURNS = 8
"""Steps of handshakes; each takes up to a millisecond."""
REST_S = 0.02
"""The pause after each step, so that accepting takes at most half of a core."""

SHORTAGE_S = 1.0
"""The wait before accepting again after the system had no room for a connection."""

_BACKLOG = 1024
_GONE_MEANWHILE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT)


class CannotListen(OSError):
    """The port cannot be listened on; the text names it and the reason."""


class Door:
    """Accepts connections at a listening socket, and admits those that prove the port token.

    `fileno` is readable when `admitted` has work, unless it `is_resting`.
    """

    def __init__(self, listener: socket.socket, identities: Sequence[Identity]) -> None:
        self._identities = tuple(identities)
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._callers: Dict[Caller, None] = {}
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
        """When to call `admitted` even if nothing was received."""
        if self._rests_until is not None:
            return self._rests_until
        oldest = next(iter(self._callers), None)
        times = [self._short_until, oldest.due if oldest is not None else None]
        return min((time for time in times if time is not None), default=None)

    def admitted(self, now: float) -> List[Caller]:
        """Those that have just proved what they have to: nobody looks after their connections here any more."""
        if self._rests_until is not None and now < self._rests_until:
            return []
        if self._short_until is not None and now >= self._short_until:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._short_until = None
        ready = [key.data for key, _ in self._selector.select(0)]
        if None in ready:  # the listener
            self._accept(now)
        token_holders = [caller for caller in ready if caller is not None and self._knows_token(caller)]
        proved = [caller for caller in in_turn(token_holders)[:TURNS] if self._has_proved(caller)]
        self._send_away(now)
        self._rests_until = now + REST_S if ready else None
        return proved

    def close(self) -> None:
        for caller in list(self._callers):
            self._drop(caller)
        self._selector.close()
        self._listener.close()

    def _accept(self, now: float) -> None:
        for _ in range(ACCEPTS):
            try:
                self._let_in(*self._listener.accept(), now)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _GONE_MEANWHILE:
                    if not self._make_room():  # the listener stays readable, and must be ignored
                        self._selector.unregister(self._listener)
                        self._short_until = now + SHORTAGE_S
                    return

    def _let_in(self, connection: socket.socket, address: Sequence[str], now: float) -> None:
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            caller = Caller(connection, address[0], now)
            connection.send(caller.nonce)  # a new socket has room for it
            self._selector.register(connection, selectors.EVENT_READ, caller)
        except BaseException:
            connection.close()
            raise
        self._callers[caller] = None
        self._knows_token(caller)  # one that sends at once is no agent: its place is free again

    def _knows_token(self, caller: Caller) -> bool:
        """Compares a proof in constant time."""
        if caller.identity is not None:
            return True
        try:
            piece = caller.connection.recv(PROOF_BYTES - len(caller.proof))
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        caller.proof += piece
        if len(caller.proof) == PROOF_BYTES:
            for identity in self._identities:
                if hmac.compare_digest(caller.proof, identity.token_proof(caller.nonce)):
                    caller.identity = identity
                    return True
        if not piece or len(caller.proof) == PROOF_BYTES:
            self._drop(caller)
        return False

    def _has_proved(self, caller: Caller) -> bool:
        """The proof of the port token is all that is required here."""
        self._forget(caller)
        return True

    def _send_away(self, now: float) -> None:
        """Drops connections whose time is up, and those for which there is no room."""
        for caller in [caller for caller in self._callers if now >= caller.due]:
            self._drop(caller)
        token_holders = [caller for caller in self._callers if caller.identity is not None]
        for caller in [*surplus(self._strangers()), *surplus(token_holders)]:
            self._drop(caller)

    def _make_room(self) -> bool:
        """Closes half of the connections that have not proved the port token, to free descriptors or memory.

        False if there are none.
        """
        strangers = self._strangers()
        for caller in surplus(strangers, len(strangers) // 2):
            self._drop(caller)
        return bool(strangers)

    def _strangers(self) -> List[Caller]:
        return [caller for caller in self._callers if caller.identity is None]

    def _forget(self, caller: Caller) -> None:
        del self._callers[caller]
        self._selector.unregister(caller.connection)

    def _drop(self, caller: Caller) -> None:
        self._forget(caller)
        caller.connection.close()


class Acceptor(Door):
    """Accepts connections that prove to be of a host of a run of `identities`.

    `fileno` is readable when `step` has work, unless it `is_resting`. Raises CannotListen; `address` is HOST:PORT, as
    others reach it.
    """

    def __init__(self, address: str, port: int, identities: Sequence[Identity]) -> None:
        self._contexts = {identity: identity.context(server=True) for identity in identities}
        try:
            listener = _listen(address, port)
        except OSError as error:
            raise CannotListen("port %d: %s" % (port, plain(error))) from None
        super().__init__(listener, identities)

    def step(self, now: float) -> List[Tuple[TlsStream, Identity]]:
        """Continues all handshakes; returns streams whose other end has just proved its identity."""
        proved = self.admitted(now)
        return [(caller.stream, caller.identity) for caller in proved if caller.stream and caller.identity]

    def _has_proved(self, caller: Caller) -> bool:
        assert caller.identity is not None
        if caller.stream is None:
            channel = Channel(caller.identity, self._contexts[caller.identity], server=True)
            caller.stream = TlsStream(caller.connection, channel)
        try:
            if not caller.stream.pull():
                return False
            caller.begun = True
            if not caller.stream.advance():
                return False
        except Lost:
            self._drop(caller)
            return False
        self._forget(caller)
        return True


def _listen(address: str, port: int) -> socket.socket:
    """Listens on all addresses of the host, IPv4 and IPv6. Raises OSError.

    Only on a loopback address if others use that, as all are on this host then.
    """
    host = address.rpartition(":")[0].strip("[]")
    if host == "::1":
        return _bound(socket.AF_INET6, host, port)
    if _is_ipv4_loopback(host):
        return _bound(socket.AF_INET, host, port)
    if socket.has_dualstack_ipv6():
        with suppress(
            OSError
        ):  # switched off in the kernel: no address to bind to; binding below reports a port in use
            return _bound(socket.AF_INET6, "::", port)
    return _bound(socket.AF_INET, "", port)


def _is_ipv4_loopback(host: str) -> bool:
    try:
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except OSError:  # a name
        return False


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
