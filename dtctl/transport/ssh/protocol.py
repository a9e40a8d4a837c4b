"""paramiko's side of the wire, fit for a hundred connections that stay open for days."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paramiko.auth_handler import AuthHandler
from paramiko.channel import Channel
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA, cMSG_GLOBAL_REQUEST
from paramiko.message import Message
from paramiko.packet import Packetizer
from paramiko.ssh_exception import SSHException
from paramiko.transport import Transport

if TYPE_CHECKING:
    from paramiko.pkey import PKey


PROBE_AFTER_S = 20
"""A probe is sent after this time in which we sent nothing; it also keeps firewalls from forgetting the connection."""
DEAD_AFTER_S = 60.0
"""A host is dead after this time without a byte from it, in spite of probes."""
IDLE_WAIT_S = 5.0
"""How long the thread of a quiet connection sleeps. paramiko's own 0.1 s costs a core for a few hundred hosts."""

PACKET_LIMIT = 1 << 20
"""OpenSSH's own is 256 KiB; paramiko has none."""

UNREAD_LIMIT = 8 << 20
"""The most unread data that is kept of a host: four of its windows (RFC 4254, 5.2)."""

WEAK = ("-cbc", "3des", "md5", "-96")

# Our errors report what matters; without a handler logging prints to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class WatchedPacketizer(Packetizer):
    """Knows when it last received something, and limits the handshake without a timer thread."""

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        self.last_received = time.monotonic()
        self.dead = False
        self._sending = threading.Lock()
        self._handshake_deadline: float | None = None

    def start_handshake(self, timeout: float) -> None:
        self._handshake_deadline = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        return self._handshake_deadline is not None and time.monotonic() > self._handshake_deadline

    def complete_handshake(self) -> None:
        self._handshake_deadline = None

    def send_message(self, data: Any) -> None:
        with self._sending:
            super().send_message(data)

    def is_sending(self) -> bool:
        return self._sending.locked()

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        if n > PACKET_LIMIT:
            raise SSHException(f"a packet of {n} bytes")
        data: bytes = super().read_all(n, check_rekey)
        return data

    def read_message(self) -> Any:
        message = super().read_message()
        self.last_received = time.monotonic()
        return message


class SshProtocol(Transport):
    """A Transport that prefers pinned key types, closes at once, and notices a dead host within a minute."""

    packetizer: WatchedPacketizer
    _remote_kex_init: bytes | None = None
    _server_kex_init = b""
    _send_user_message: Callable[[Message], None]
    _channel_handler_table: Mapping[int, Callable[[Channel, Message], None]]

    def __init__(self, sock: Any, host_key_types: Iterable[str] = (), **options: Any) -> None:
        self.greeted: Callable[[], object] = lambda: None
        """Called in the reading thread when the host's first bytes have come."""
        super().__init__(sock, packetizer_class=WatchedPacketizer, **options)
        self._channel_handler_table = {**self._channel_handler_table, **_FEEDS}
        security = self.get_security_options()
        # AES-GCM is one call into OpenSSL for each packet; the others also need a MAC.
        ciphers = sorted(security.ciphers, key=lambda name: "gcm" not in name)
        security.ciphers = tuple(name for name in ciphers if not any(word in name for word in WEAK))
        security.digests = tuple(name for name in security.digests if not any(word in name for word in WEAK))
        pinned = [known for name in host_key_types for known in _signatures(name) if known in security.key_types]
        security.key_types = tuple(dict.fromkeys([*pinned, *security.key_types]))

    def _check_banner(self) -> None:
        super()._check_banner()  # type: ignore[misc]
        self.greeted()

    def auth_publickey(self, username: str, key: PKey, event: threading.Event | None = None) -> list[str]:
        return self._ask(lambda login, done: login.auth_publickey(username, key, done), event)

    def auth_none(self, username: str) -> list[str]:
        return self._ask(lambda login, done: login.auth_none(username, done), None)

    def _ask(self, what: Callable[[AuthHandler, threading.Event], None], event: threading.Event | None) -> list[str]:
        """Does the same as paramiko's own method, but with a PromptLogin."""
        if not (self.is_active() and self.initial_kex_done):
            raise SSHException("No existing session")
        done = event or threading.Event()
        self.auth_handler = login = PromptLogin(self, first=self.auth_handler is None)
        what(login, done)
        return [] if event is not None else login.wait_for_response(done)

    def settle(self) -> None:
        """Called when the login is complete and the connection may be quiet for long."""
        self.sock.settimeout(IDLE_WAIT_S)
        self.packetizer.set_keepalive(PROBE_AFTER_S, self._probe)

    def _probe(self) -> None:
        """Runs in the reading thread; raising ends the connection."""
        if time.monotonic() - self.packetizer.last_received > DEAD_AFTER_S:
            self.packetizer.dead = True
            raise EOFError
        if self.packetizer.is_sending():
            return  # a send that may be stuck must not be waited for
        request = Message()
        request.add_byte(cMSG_GLOBAL_REQUEST)
        request.add_string("keepalive@openssh.com")
        request.add_boolean(True)  # any answer will do
        self._send_user_message(request)

    def can_send(self) -> bool:
        """Whether a short message could be sent now, without waiting for the host."""
        if self.packetizer.is_sending():
            return False
        if not isinstance(self.sock, socket.socket):
            return bool(self.sock.send_ready())  # a channel of the gateway's connection
        with suppress(OSError, ValueError):
            writable = select.poll()
            writable.register(self.sock, select.POLLOUT)
            return bool(writable.poll(0))
        return False

    def stop_thread(self) -> None:
        # Closing a socket does not wake a thread that reads from it; shutting it down does.
        with suppress(OSError, EOFError):
            self.sock.shutdown(socket.SHUT_RDWR)
        super().stop_thread()

    def key_types(self) -> tuple[str, ...]:
        """Host key algorithms that we support."""
        return tuple(self.get_security_options().key_types)

    def offered_key_types(self) -> list[str]:
        """Host key algorithms that the server offers (RFC 4253, 7.1), known after the handshake."""
        message = Message(self._server_kex_init)
        message.get_bytes(1 + 16)  # the message's number and the cookie
        message.get_list()  # key exchange algorithms
        return list(message.get_list())

    @property
    def remote_kex_init(self) -> bytes | None:
        """The server's KEXINIT during a key exchange, as paramiko needs it; a copy is kept for later."""
        return self._remote_kex_init

    @remote_kex_init.setter
    def remote_kex_init(self, message: bytes | None) -> None:
        self._remote_kex_init = message
        self._server_kex_init = message or self._server_kex_init


def _within_window(feed: Callable[[Channel, Message], None]) -> Callable[[Channel, Message], None]:
    """A channel's handler of data, in the reading thread. paramiko itself does not enforce its own window."""

    def take(channel: Any, message: Message) -> None:
        if len(channel.in_buffer) + len(channel.in_stderr_buffer) > UNREAD_LIMIT:
            raise SSHException("the host sends more than it was allowed to")  # ends the connection
        feed(channel, message)

    return take


_FEEDS = {
    number: _within_window(Transport._channel_handler_table[number])  # type: ignore[attr-defined]
    for number in (MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA)
}


def _signatures(key_type: str) -> tuple[str, ...]:
    """The algorithms by which a key of this type proves itself (RFC 8332)."""
    return ("rsa-sha2-512", "rsa-sha2-256") if key_type == "ssh-rsa" else (key_type,)


SERVICE = "ssh-userauth"


class PromptLogin(AuthHandler):
    """One request of a login. `first`: the service was not requested on this connection yet."""

    private_key: PKey | None
    _get_key_type_and_bits: Callable[[PKey], tuple[str, Any]]

    def __init__(self, transport: Transport, *, first: bool) -> None:
        super().__init__(transport)
        self._first = first
        self._waits = False

    def _request_auth(self) -> None:
        # Decided before the request is sent: another thread may receive the answer before anything else here.
        at_once = not (self._first and self._needs_extensions())
        self._waits = not at_once
        if self._first:
            super()._request_auth()  # type: ignore[misc]
        if at_once:
            self._ask()

    def _needs_extensions(self) -> bool:
        """Whether to wait for the server's extensions: they name the signature algorithms for RSA keys (RFC 8308)."""
        return self.private_key is not None and "rsa" in self._get_key_type_and_bits(self.private_key)[0]

    def _ask(self) -> None:
        self._waits = False
        accepted = Message()
        accepted.add_string(SERVICE)
        accepted.rewind()
        super()._parse_service_accept(accepted)  # type: ignore[misc]

    def _parse_service_accept(self, message: Message) -> None:
        """Called by paramiko when the server has granted the service."""
        if self._waits:
            self._ask()
