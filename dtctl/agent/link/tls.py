"""TLS between the two ends of a link, on a socket that never blocks: each proves which host of the run it is.

The run's authority is the only one that is trusted, and a certificate of its making names the run and one host. Under
which of its network names that host is reached does not matter.
"""

from __future__ import annotations

import hmac
import os
import socket
import ssl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, TextIO

    from ..records.starting import Credentials

NONCE_BYTES = 16
PROOF_BYTES = 32
_TOKEN_BYTES = 32
_PURPOSE = b"dtctl link\n"
_PIECE = 65536
_DISCARDS = 64

QUEUE_LIMIT = 16 << 20
"""Bytes that wait for an end that does not read."""


class Lost(Exception):
    """This connection has ended; the text names the reason in plain words."""


class Identity:
    """The host's credentials in a run directory. Raises OSError or ValueError if they are unusable."""

    def __init__(self, directory: str, run: str) -> None:
        self.run = run
        self._key, self._certificate, self._authority = (
            os.path.join(directory, name) for name in ("link.key", "link.crt", "link.ca")
        )
        with _port_token_file(directory) as file:
            self._port_token = bytes.fromhex(file.read(2 * _TOKEN_BYTES))
        if len(self._port_token) != _TOKEN_BYTES:
            raise ValueError("link.port_token is too short")

    def token_proof(self, nonce: bytes) -> bytes:
        """An agent's answer to the coordinator's port. It only shows that the agent knows the port token of the run."""
        return hmac.new(self._port_token, _PURPOSE + nonce, "sha256").digest()

    def context(self, server: bool) -> ssl.SSLContext:
        context = _context(server)
        context.load_cert_chain(self._certificate, self._key)
        context.load_verify_locations(self._authority)
        return context


def _port_token_file(directory: str) -> TextIO:
    try:
        return open(os.path.join(directory, "link.port_token"), encoding="ascii")
    except FileNotFoundError:
        old = os.path.join(directory, "link.knock")  # of an older version, whose agents are sent the end of their run
        if not os.path.exists(old):
            raise
        return open(old, encoding="ascii")


class GivenIdentity(Identity):
    """Credentials that are on no disk."""

    def __init__(self, credentials: Credentials) -> None:
        self.run = ""
        self._credentials = credentials
        self._port_token = bytes.fromhex(credentials["port_token"])

    def context(self, server: bool) -> ssl.SSLContext:
        return context_of(self._credentials, server)


def context_of(credentials: Credentials, server: bool) -> ssl.SSLContext:
    """The context for credentials that are on no disk."""
    context = _context(server)
    memory = _memory()
    try:
        os.write(memory, (credentials["key"] + credentials["certificate"]).encode("ascii"))
        context.load_cert_chain("/proc/self/fd/%d" % memory)
    finally:
        os.close(memory)
    context.load_verify_locations(cadata=credentials["authority"])
    return context


def _memory() -> int:
    """A descriptor of a file without a name. A Python that was built for an old libc has no memfd_create."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("credentials")
    import tempfile

    descriptor, path = tempfile.mkstemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    os.unlink(path)
    return descriptor


def _context(server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if server:
        context.num_tickets = 0  # every connection proves its identity again
    return context


class Channel:
    """One end of a TLS connection, without the socket. Methods raise Lost.

    `wanted` is the only host that is accepted, `host` the accepted one after the handshake.
    """

    def __init__(self, identity: Identity, context: ssl.SSLContext, server: bool, wanted: Optional[str] = None) -> None:
        self.host = ""
        self._run = identity.run
        self._wanted = wanted
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)

    def feed(self, received: bytes) -> None:
        self._incoming.write(received)

    def to_send(self) -> bytes:
        """Bytes to send to the other end, even after Lost: then they are an alert."""
        return self._outgoing.read()

    def advance(self) -> bool:
        """Continues the handshake; True when it is done and `host` is proved."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise Lost(_explain(error)) from None
        self.host = self._named()
        if self._wanted not in (None, self.host):
            raise Lost("its certificate is that of %s, and %s is wanted" % (self.host, self._wanted))
        return True

    def _named(self) -> str:
        """The host in the other end's certificate, which the run's authority has been found to have signed."""
        certificate = self._tls.getpeercert() or {}
        names = [str(entry[1]) for entry in certificate.get("subjectAltName", ()) if entry[0] == "URI"]
        of_run = "dtctl:%s/" % self._run
        if len(names) != 1 or not names[0].startswith(of_run):
            raise Lost("its certificate names no host of the run")
        return names[0][len(of_run) :]

    def read(self) -> bytes:
        """The plain bytes in what was fed."""
        pieces: List[bytes] = []
        try:
            while True:
                piece = self._tls.read(_PIECE)
                if not piece:
                    raise Lost("the other end has closed the connection")
                pieces.append(piece)
                if not (self._incoming.pending or self._tls.pending()):
                    return b"".join(pieces)
        except ssl.SSLWantReadError:
            return b"".join(pieces)
        except ssl.SSLError as error:
            raise Lost(_explain(error)) from None

    def write(self, data: bytes) -> None:
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise Lost(_explain(error)) from None


def _explain(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not the run's"
    return "TLS failed (%s)" % (error.reason or "no reason given").lower().replace("_", " ")


class TlsStream:
    """A TLS connection. Methods raise Lost when it has ended; it must still be closed then.

    `opening` is sent first, unencrypted.
    """

    def __init__(self, connection: socket.socket, channel: Channel, opening: bytes = b"") -> None:
        self._socket = connection
        self._channel = channel
        self._queue = bytearray(opening)
        self._finishing = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def host(self) -> str:
        """The host that the other end has proved to be."""
        return self._channel.host

    @property
    def is_waiting(self) -> bool:
        """Whether data waits to be pushed until the socket is writable."""
        return bool(self._queue)

    def pull(self) -> bool:
        """Takes in some of what has arrived; False when there is nothing."""
        try:
            received = self._socket.recv(_PIECE)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise Lost(plain(error)) from None
        if not received:
            raise Lost("the other end has closed the connection")
        self._channel.feed(received)
        return True

    def discard(self) -> None:
        """Empties the socket: one that is closed with something unread loses what it still had to send."""
        try:
            for _ in range(_DISCARDS):
                if not self._socket.recv(_PIECE):
                    raise Lost("the other end has closed the connection")
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise Lost(plain(error)) from None

    def advance(self) -> bool:
        """Continues the handshake; True when it is done and `host` is proved."""
        try:
            return self._channel.advance()
        finally:
            self.push()  # after a failure: an alert

    def read(self) -> bytes:
        """The plain bytes in what has been pulled."""
        return self._channel.read()

    def write(self, data: bytes) -> None:
        self._channel.write(data)
        self.push()

    def push(self) -> None:
        """Sends what the socket takes now."""
        self._queue += self._channel.to_send()
        try:
            while self._queue:
                del self._queue[: self._socket.send(self._queue)]
            if self._finishing:
                self._socket.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            if len(self._queue) > QUEUE_LIMIT:
                raise Lost("it does not read what it is sent") from None
        except OSError as error:
            raise Lost(plain(error)) from None

    def finish(self) -> None:
        """Ends writing. Written bytes are still delivered, if the other end's last message is read, too."""
        self._finishing = True
        self.push()

    def close(self) -> None:
        self._socket.close()


def plain(error: OSError) -> str:
    """An error of the system, without its number."""
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
