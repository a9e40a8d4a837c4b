"""One host of a push: it sends the files of a tree that it has to others, and gets missing files from one of them.

Both ends show the certificate that the controller has created for this push, and the frames are those of the
controller's own transfer. Peers are not trusted: files are verified by their hashes, and the controller sends missing
ones.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

from ..conversation import Gone, Wire, held
from ..host import files, ports
from ..host.errors import Refused
from ..link.tls import context_of
from ..records.values import BLOCK_BYTES, CHUNK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator, List, Optional, Set, Tuple

    from ..records.answers import Need
    from ..records.starting import Credentials
    from .tree import Tree

CONNECT_S = 5.0
SILENCE_S = 20.0
"""A peer that sends nothing for this long is given up; a feeder that waits for its own files sends more often."""
_ALIVE_S = 5.0
_PAUSE_S = 0.05
"""A guest that is woken for each file takes the processor from what brings the files."""
_MOST_GUESTS = 16


class Relay:
    """Serves from the beginning, by a thread a guest; files that are still to come, when they have come."""

    def __init__(self, tree: Tree, lacking: Iterable[int], credentials: Credentials, wanted: Iterable[int]) -> None:
        self._tree = tree
        self._lacking: Set[int] = set(lacking)
        self._growing: Tuple[int, str, int] = (-1, "", 0)
        """A file that arrives in order of its bytes: its index, where it is, and how many are there."""
        self._guests = threading.Semaphore(_MOST_GUESTS)
        self._server, self._client = (context_of(credentials, server) for server in (True, False))
        self.port: Optional[int] = None
        sockets = next(filter(None, (ports.bound(port, dying=True) for port in wanted)), None)
        held_port = ports.hold(()) if sockets is None else None
        if held_port is not None:
            sockets = held_port[1]
        for one in sockets or ():
            try:
                one.listen(_MOST_GUESTS)
            except OSError:  # another one has begun to listen since
                one.close()
                continue
            self.port = one.getsockname()[1]
            threading.Thread(target=self._accept, args=(one,), daemon=True).start()

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
    def connected(self, address: str, port: int) -> Iterator[Wire]:
        """Connects to another host of the push. Any failure there, at first or later, raises Gone."""
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(socket.create_connection((address, port), CONNECT_S))
                connection.settimeout(SILENCE_S)
                secure = stack.enter_context(self._client.wrap_socket(connection))
            except (OSError, ValueError):  # ValueError: no name of a host
                raise Gone() from None
            yield _wire(secure)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            with suppress(OSError):  # a guest that has already disconnected
                connection = listener.accept()[0]
                if self._guests.acquire(blocking=False):
                    threading.Thread(target=self._attend, args=(connection,), daemon=True).start()
                else:
                    connection.close()

    def _attend(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError, Gone, Refused):
                connection.settimeout(SILENCE_S)
                with self._server.wrap_socket(connection, server_side=True) as secure:
                    wire = _wire(secure)
                    self._give(held("answers.Need", wire.receive()[0], "need"), wire)
                    with suppress(TimeoutError):
                        secure.recv(1)  # the guest closes first: that side's port stays in TIME_WAIT
        finally:
            self._guests.release()

    def _give(self, need: Need, wire: Wire) -> None:
        """Sends the requested files and blocks. Raises Gone, Refused and OSError."""
        entries = self._tree.manifest.files
        wanted: List[Tuple[int, Optional[int]]] = [(index, None) for index in need["files"]]
        wanted += [(one["index"], one["number"]) for one in need["blocks"]]
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


def _wire(secure: socket.socket) -> Wire:
    return Wire(secure.makefile("rb"), secure.makefile("wb"))
