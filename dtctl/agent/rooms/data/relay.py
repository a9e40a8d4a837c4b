"""One host of a push: it sends the files of a tree that it has to others, and gets missing files from one of them.

Both ends show the certificate that the controller has created for this push, and the frames are those of the
controller's own transfer. Peers are not trusted: files are verified by their hashes, and the controller sends missing
ones.
"""

from __future__ import annotations

import io
import select
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

from ...conversation import Gone, Wire, held
from ...host import files, ports
from ...host.errors import Refused
from ...link.acceptor import PROOF_S, Door, surplus
from ...link.tls import NONCE_BYTES, GivenIdentity
from ...records.values import BLOCK_BYTES, CHUNK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Union

    from ...bundles.tree import Tree
    from ...link.acceptor import Caller
    from ...records.answers import Need
    from ...records.starting import Credentials

CONNECT_S = 5.0
SILENCE_S = 20.0
"""A peer that sends nothing for this long is given up; a feeder that waits for its own files sends more often."""
REVIEW_S = 10.0
"""How often a host asks whether to stay with its feeder: any byte ends a silence, and so silence alone is no limit."""
_ALIVE_S = 5.0
_PAUSE_S = 0.05
"""A guest that is woken for each file takes the processor from what brings the files."""
_BACKLOG = 128
_MOST_GUESTS = 16
"""The most guests; another one displaces the oldest guest of the address that has the most."""


class FileServer:
    """Serves from the beginning, by a thread a guest; files that are still to come, when they have come."""

    def __init__(self, tree: Tree, lacking: Iterable[int], credentials: Credentials, wanted: Iterable[int]) -> None:
        self._tree = tree
        self._lacking: Set[int] = set(lacking)
        self._growing: Tuple[int, str, int] = (-1, "", 0)
        """A file that arrives in order of its bytes: its index, where it is, and how many are there."""
        self._guests: Dict[Caller, None] = {}
        self._entering = threading.Lock()
        self._identity = GivenIdentity(credentials)
        self._server, self._client = (self._identity.context(server) for server in (True, False))
        self.port: Optional[int] = None
        sockets = next(filter(None, (ports.bound(port, dying=True) for port in wanted)), None)
        held_port = ports.hold(()) if sockets is None else None
        if held_port is not None:
            sockets = held_port[1]
        for one in sockets or ():
            try:
                one.listen(_BACKLOG)
            except OSError:  # another one has begun to listen since
                one.close()
                continue
            one.setblocking(False)
            self.port = one.getsockname()[1]
            threading.Thread(target=self._accept, args=(Door(one, [self._identity]),), daemon=True).start()

    def has(self, index: int) -> None:
        """The file is in its place."""
        self._lacking.discard(index)

    def growing(self, index: int, part: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks of a file; the caller writes them to `part`, one after the other."""
        size = 0
        try:
            for chunk in chunks:
                yield chunk
                size += len(chunk)
                self._growing = index, part, size
        finally:
            self._growing = -1, "", 0

    @contextmanager
    def connected(self, address: str, port: int, stays: Callable[[int], bool]) -> Iterator[Wire]:
        """Connects to another host of the push. Any failure there, at first or later, raises Gone.

        So does `stays`, which gets the bytes received so far every REVIEW_S, by returning False.
        """
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(socket.create_connection((address, port), CONNECT_S))
                connection.sendall(self._identity.token_proof(_nonce(connection)))
                connection.settimeout(SILENCE_S)
                secure = stack.enter_context(self._client.wrap_socket(connection))
            except (OSError, ValueError):  # ValueError: no name of a host
                raise Gone() from None
            yield Wire(io.BufferedReader(_Reviewed(secure, stays), CHUNK_BYTES), secure.makefile("wb"))

    def _accept(self, door: Door) -> None:
        waiting = select.poll()
        waiting.register(door.fileno(), select.POLLIN)
        while True:
            until = door.due()
            timeout_s = None if until is None else max(0.0, until - time.monotonic())
            if door.is_resting:
                time.sleep(timeout_s or 0.0)
            else:
                waiting.poll(None if timeout_s is None else 1000 * timeout_s)
            for caller in door.admitted(time.monotonic()):
                self._let_in(caller)

    def _let_in(self, caller: Caller) -> None:
        with self._entering:
            self._guests[caller] = None
            going = surplus(list(self._guests), _MOST_GUESTS)
            for one in going:
                self._guests.pop(one)
                with suppress(OSError):  # its thread closes it
                    one.connection.shutdown(socket.SHUT_RDWR)
        try:
            threading.Thread(target=self._attend, args=(caller,), daemon=True).start()
        except RuntimeError:  # the user's limit of threads is reached
            self._leave(caller)

    def _attend(self, caller: Caller) -> None:
        try:
            with suppress(OSError, Gone, Refused):
                caller.connection.settimeout(PROOF_S)
                with self._server.wrap_socket(caller.connection, server_side=True) as secure:
                    secure.settimeout(SILENCE_S)
                    wire = Wire(secure.makefile("rb"), secure.makefile("wb"))
                    self._give(held("records.answers.Need", wire.receive()[0], "need"), wire)
                    with suppress(TimeoutError):
                        secure.recv(1)  # the guest closes first: that side's port stays in TIME_WAIT
        finally:
            self._leave(caller)

    def _leave(self, caller: Caller) -> None:
        with self._entering:
            self._guests.pop(caller, None)
        caller.connection.close()

    def _give(self, need: Need, wire: Wire) -> None:
        """Sends the requested files and blocks. Raises Gone, Refused and OSError."""
        entries = self._tree.manifest.files
        wanted: List[Tuple[int, Optional[int]]] = [(index, None) for index in need["files"]]
        wanted += [(block["index"], block["number"]) for block in need["blocks"]]
        for index, number in wanted:
            if index >= len(entries):
                raise Refused("bad_request", "there is no file %d in the bundle" % index)
            end, at = entries[index][2], 0
            if number is not None:
                at = number * BLOCK_BYTES
                end = min(end, at + BLOCK_BYTES)
            self._send(index, at, end, wire)

    def _send(self, index: int, at: int, end: int, wire: Wire) -> None:
        """The bytes of one file between these offsets, and at least one frame."""
        last = False
        while not last:
            place, size = self._readable(index, at, wire)
            with ExitStack() as stack:
                try:
                    source = stack.enter_context(files.opened(place))
                except FileNotFoundError:
                    if place == self._tree.place(self._tree.manifest.files[index][0]):
                        raise
                    continue  # it got its name just now
                while not last and (at < size or size == end):
                    piece = files.read_at(source, at, min(CHUNK_BYTES, size - at, end - at))
                    if not piece and at < end:
                        raise Refused("bundle_damaged", "a file has become shorter", place)
                    at += len(piece)
                    last = at >= end
                    wire.send({"type": "file", "index": index, "encoding": "raw", "last": last}, piece)

    def _readable(self, index: int, at: int, wire: Wire) -> Tuple[str, int]:
        """The path of the file, and its available size: something after `at`, or all."""
        path, _, whole, _ = self._tree.manifest.files[index]
        next_alive = time.monotonic() + _ALIVE_S
        while True:
            growing, part, size = self._growing
            if index not in self._lacking:
                return self._tree.place(path), whole
            if growing == index and size > at:
                return part, size
            time.sleep(_PAUSE_S)
            if time.monotonic() >= next_alive:
                wire.send({"type": "alive"})
                next_alive = time.monotonic() + _ALIVE_S


def _nonce(connection: socket.socket) -> bytes:
    """What a host sends to whoever connects. Raises OSError."""
    until, nonce = time.monotonic() + CONNECT_S, b""
    while len(nonce) < NONCE_BYTES:
        piece = connection.recv(NONCE_BYTES - len(nonce))
        if not piece or time.monotonic() > until:
            raise OSError("it sends no nonce")
        nonce += piece
    return nonce


class _Reviewed(io.RawIOBase):
    """A feeder's bytes; between two of them it is asked whether to stay. Raises Gone."""

    def __init__(self, secure: ssl.SSLSocket, stays: Callable[[int], bool]) -> None:
        self._secure = secure
        self._stays = stays
        self._received = 0
        self._next = time.monotonic() + REVIEW_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Union[bytearray, memoryview]) -> int:  # type: ignore[override]
        if time.monotonic() >= self._next:
            if not self._stays(self._received):
                raise Gone()
            self._next = time.monotonic() + REVIEW_S
        size = self._secure.recv_into(buffer)
        self._received += size
        return size
