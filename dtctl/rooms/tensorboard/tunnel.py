"""Connections to a TensorBoard that an agent runs on its host, as frames of one conversation with it.

SSH's own forwarding would be less code here, and is not used: TensorBoard would have to listen on a port of the host,
which the host's other users can open, the sshd would have to allow forwarding, and other transports have none.
"""

from __future__ import annotations

import io
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, Protocol, cast

from dtctl.agent.rooms.tensorboard.records import (
    ALIVE_S,
    PIECE_BYTES,
    WINDOW_BYTES,
    TakenWord,
    TensorboardReady,
    TensorboardResult,
)
from dtctl.errors import DtctlError
from dtctl.operations.client import final, frames_of, request
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.pages.webserver import Answer, Visit
from dtctl.transport.seam import Message, Transport
from dtctl.transport.wire import untrue

if TYPE_CHECKING:
    from typing_extensions import Buffer


FAREWELL_S = 10.0
"""The time limit for the host to end TensorBoard."""

RESPONSE_S = 120.0
"""The longest silence of a connection to TensorBoard."""


class Channel(io.RawIOBase):
    """One connection to TensorBoard, with the methods that http.client expects of a socket."""

    def __init__(self, tunnel: Tunnel, number: int) -> None:
        self._tunnel = tunnel
        self.number = number
        self.room = WINDOW_BYTES
        """The number of bytes that the host still accepts."""
        self.pending = bytearray()
        """Received bytes that were not read yet; never more than the host was allowed to send."""
        self.over = False
        """Whether the host has closed it: nothing follows the pending bytes."""

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        self._tunnel.await_change(lambda: bool(self.pending or self.over))
        data = bytes(self.pending[: len(view)])
        view[: len(data)] = data
        del self.pending[: len(data)]
        if data and not self.over:
            self._tunnel.send({"type": "taken", "channel": self.number, "size": len(data)})
        return len(data)

    def sendall(self, data: bytes) -> None:
        while data:
            self._tunnel.await_change(lambda: bool(self.room or self.over))
            if self.over:
                raise ConnectionResetError("TensorBoard has closed the connection")
            piece = data[: min(PIECE_BYTES, self.room)]
            self.room -= len(piece)
            data = data[len(piece) :]
            self._tunnel.send({"type": "piece", "channel": self.number}, piece)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._tunnel.drop(self)


class Tunnel(AbstractContextManager["Tunnel"]):
    """A context manager: at its end TensorBoard on the host has ended, or the conversation with it is over.

    One thread reads what the host sends, and keeps of it what a connection has room for and no more: a host that sends
    more than that is hung up on. Any thread may `connect`.
    """

    def __init__(self, record: RunRecord, transport: Transport, host: str) -> None:
        self._record = record
        self._session = transport.open(record.route_to(host))
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._next = 0
        self._ready: TensorboardReady | None = None
        self._end: TensorboardResult | BaseException | None = None
        self._receiver = threading.Thread(target=self._receive, daemon=True, name=f"tensorboard-{host}")

    def __exit__(self, *_: object) -> None:
        """Waits until the host has ended TensorBoard, so that nothing is left there."""
        try:
            if self._receiver.is_alive() and self._end is None:
                with suppress(DtctlError):
                    self._session.send({"type": "abort"})
                    with self._changed:
                        self._changed.wait_for(lambda: self._end is not None, FAREWELL_S)
        finally:
            self._finish(ConnectionAbortedError("the tunnel has ended"))
            self._session.close()

    def begin(self) -> TensorboardReady:
        """Returns when TensorBoard accepts connections. Raises the host's refusal, and the error of a lost
        connection.
        """
        self._session.send(request(self._record, self._session.host, "tensorboard"))
        self._receiver.start()
        self._stay(lambda: self._ready is not None)
        if self._ready is None:
            raise untrue(self._session.host.name, "ends TensorBoard before it begins")
        return self._ready

    def wait(self) -> TensorboardResult:
        """Waits until TensorBoard has ended on the host. Raises as `begin`."""
        self._stay(lambda: self._end is not None)
        assert isinstance(self._end, dict)
        return self._end

    def _stay(self, until: Callable[[], bool]) -> None:
        """Sends signs of life."""
        while not until():
            with self._changed:
                waited = self._changed.wait_for(lambda: self._end is not None or until(), ALIVE_S)
            if self._end is not None:
                break
            if not waited:
                self.send({"type": "alive"})
        if isinstance(self._end, BaseException):
            raise self._end

    def connect(self) -> Channel:
        with self._changed:
            channel = self._channels[self._next] = Channel(self, self._next)
            self._next += 1
        self.send({"type": "open", "channel": channel.number})
        return channel

    # for channels

    def send(self, fields: dict[str, object], payload: bytes = b"") -> None:
        """Raises ConnectionError, and DtctlError when the host accepts nothing for too long."""
        with self._sending:
            if self._end is not None:
                raise ConnectionAbortedError("the tunnel has ended")
            self._session.send(fields, payload)

    def await_change(self, wanted: Callable[[], bool]) -> None:
        """Raises TimeoutError, and ConnectionError at the end of the tunnel."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._end or wanted(), RESPONSE_S):
                raise TimeoutError
            if not wanted():
                raise ConnectionAbortedError("the tunnel has ended")

    def drop(self, channel: Channel) -> None:
        with self._changed:
            known = self._channels.pop(channel.number, None)
        if known is not None and not channel.over:
            with suppress(DtctlError, ConnectionError):
                self.send({"type": "closed", "channel": channel.number})

    # the work of the reading thread

    def _receive(self) -> None:
        try:
            for message in frames_of(self._session, "tensorboard_ready", "piece", "taken", "closed", most_bytes=None):
                if message.type != "result":
                    self._take(message)
            self._finish(final(self._record, self._session, "tensorboard", message, TensorboardResult))
        except BaseException as error:  # raised in the thread that waits
            self._finish(error)

    def _finish(self, end: TensorboardResult | BaseException) -> None:
        with self._changed:
            self._end = self._end or end
            self._channels.clear()
            self._changed.notify_all()

    def _take(self, message: Message) -> None:
        with self._changed:
            if message.type == "tensorboard_ready":
                if self._ready is not None:
                    raise untrue(self._session.host.name, "begins TensorBoard a second time")
                self._ready = message.of(TensorboardReady)
            else:
                self._take_of_channel(message)
            self._changed.notify_all()

    def _take_of_channel(self, message: Message) -> None:
        number = int(message["channel"])
        if number >= self._next:
            raise untrue(self._session.host.name, f"speaks of connection {number}, which was not opened")
        channel = self._channels.get(number)
        if channel is None:
            return  # the channel was closed here meanwhile
        if message.type == "taken":
            channel.room = min(WINDOW_BYTES, channel.room + message.of(TakenWord)["size"])
        elif message.type == "closed":
            channel.over = True
        elif len(channel.pending) + len(message.payload) > WINDOW_BYTES:
            raise untrue(self._session.host.name, "sends more than it was allowed to")
        else:
            channel.pending += message.payload


_SENT = ("accept", "accept-encoding", "content-length", "content-type", "if-modified-since", "if-none-match", "range")
_OF_TENSORBOARD = "x-tensorboard-"
_ANSWERED = (
    *("accept-ranges", "cache-control", "content-disposition", "content-encoding", "content-length", "content-range"),
    *("content-security-policy", "content-type", "etag", "expires", "last-modified", "vary", "x-content-type-options"),
)
_ADDED = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_METHODS = ("GET", "HEAD", "POST")
_LENGTH = re.compile(r"[0-9]{1,18}")


class Upstream(Protocol):
    """A connection to TensorBoard."""

    def makefile(self, mode: Any) -> io.BufferedIOBase: ...

    def sendall(self, data: bytes) -> None: ...

    def close(self) -> None: ...


def proxy(connect: Callable[[], Upstream]) -> Answer:
    def answer(visit: Visit, path: str, query: str) -> None:
        if visit.command not in _METHODS:
            return visit.refuse(405)
        if not _is_own(visit):
            return visit.refuse(403)
        lengths = visit.headers.get_all("Content-Length", ["0"])
        if "Transfer-Encoding" in visit.headers or len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
            return visit.refuse(411)
        return _pass_on(visit, connect, f"/{path}" + (f"?{query}" if query else ""), int(lengths[0]))

    return answer


def _is_own(visit: Visit) -> bool:
    """Whether the request is not from a page of another origin; browsers name the origin of requests that change
    something.
    """
    origin = visit.headers.get("Origin")
    return origin is None or origin.partition("://")[2] == visit.headers.get("Host")


def _pass_on(visit: Visit, connect: Callable[[], Upstream], target: str, length: int) -> None:
    begun = False
    try:
        with closing(connect()) as upstream:
            upstream.sendall("\r\n".join([*_request(visit, target), "", ""]).encode("latin-1"))
            while length > 0 and (data := visit.rfile.read1(min(length, io.DEFAULT_BUFFER_SIZE))):
                upstream.sendall(data)
                length -= len(data)
            with HTTPResponse(cast("Any", upstream), method=visit.command) as response:
                response.begin()
                headers = dict(_named(response.getheaders(), lambda name: name in _ANSWERED))
                begun = True
                visit.begin(response.status, {**headers, **_ADDED})
                shutil.copyfileobj(response, visit.wfile)
    except (HTTPException, OSError, DtctlError, ValueError):
        if not begun:
            visit.refuse(502)


def _request(visit: Visit, target: str) -> Iterator[str]:
    yield f"{visit.command} {target} HTTP/1.1"
    yield "Host: tensorboard"
    yield "Connection: close"
    for name, value in _named(visit.headers.items(), lambda name: name in _SENT or name.startswith(_OF_TENSORBOARD)):
        yield f"{name}: {value}"


def _named(headers: Any, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The wanted headers; none that is longer than a line."""
    for name, value in headers:
        if wanted(name.lower()) and not set(value) & {"\r", "\n", "\0"}:
            yield name, value
