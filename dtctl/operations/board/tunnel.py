"""A TensorBoard that an agent runs on its host, as a port of this machine: a browser's connections become frames.

They cross the session that dtctl has anyway, on whatever transport: nothing needs a forwarding sshd, and the host
connects to nothing but the TensorBoard that it has started for this session, which ends with it.
"""

from __future__ import annotations

import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from dtctl.agent.records.board import (
    ALIVE_S,
    MOST_CHANNELS,
    PIECE_BYTES,
    WINDOW_BYTES,
    Board,
    BoardResult,
    ClosedWord,
    PieceWord,
    TakenWord,
)
from dtctl.errors import DtctlError
from dtctl.operations.asking.conversation import final, request, said
from dtctl.operations.asking.plausible import check_run
from dtctl.operations.memory.record import RunRecord
from dtctl.transport.frames import untrue
from dtctl.transport.seam import Message, Transport

FAREWELL_S = 10.0
"""How long the host may take to end TensorBoard, once it is asked to."""

_QUEUED = 1000
"""Frames that have arrived and are still to be seen to; the host waits when there are more."""


@dataclass
class Channel:
    """One connection of the browser's."""

    browser: socket.socket
    room: int = WINDOW_BYTES
    """So much more the host takes."""
    pending: bytearray = field(default_factory=bytearray)
    """For the browser."""
    closing: bool = False
    """The server has closed it: what is pending is all there will be."""


def listen(port: int) -> socket.socket:
    """Of this machine alone; 0 takes a free one. Raises OSError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class Tunnel:
    """A context manager: at its end TensorBoard on the host has ended, or the conversation with it is over."""

    def __init__(self, record: RunRecord, transport: Transport, host: str, listener: socket.socket) -> None:
        self._record = record
        self._listener = listener
        self._session = transport.open(record.way_to(host))
        self._arrived: queue.Queue[Message | BaseException | BoardResult] = queue.Queue(_QUEUED)
        self._bell, self._ring = socket.socketpair()
        self._channels: dict[int, Channel] = {}
        self._next = 0
        self._over = False
        self._receiver = threading.Thread(target=self._receive, daemon=True, name=f"board-{host}")

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self._over:
                self._say_farewell()
        finally:
            self._over = True
            self._session.close()
            for number in list(self._channels):
                self._drop(number)
            self._ring.close()
            self._bell.close()

    def serve(self, begun: Callable[[Board], None]) -> BoardResult:
        """Until TensorBoard has ended on the host, or an exception here. `begun` is told once that it listens there.

        Raises what the host refuses, and what a lost connection is.
        """
        self._session.send(request(self._record, self._session.host, "tensorboard"))
        self._receiver.start()
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            listening = False
            next_word = time.monotonic() + ALIVE_S
            while True:
                self._watch(selector)
                ready = selector.select(max(0.0, min(1.0, next_word - time.monotonic())))
                if time.monotonic() >= next_word:
                    self._session.send({"type": "alive"})
                    next_word = time.monotonic() + ALIVE_S
                for key, events in ready:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is not self._bell:
                        self._move(key.data, events)
                for told in self._all_arrived():
                    if isinstance(told, BaseException):
                        self._over = True
                        raise told
                    if not isinstance(told, Message):
                        self._over = True
                        return told
                    if told.type != "board":
                        self._take(told)
                    elif not listening:
                        listening = True
                        selector.register(self._listener, selectors.EVENT_READ)
                        begun(told.of(Board))

    # what the thread does that reads

    def _receive(self) -> None:
        try:
            frames = ("board", "piece", "taken", "closed")
            for message in said(self._session, *frames, most_bytes=None):
                if message.type != "result":
                    self._pass_on(message)
            self._pass_on(final(self._session, "tensorboard", message, BoardResult, self._check))
        except BaseException as error:  # raised in the thread that serves
            self._pass_on(error)

    def _check(self, answer: BoardResult) -> None:
        check_run(self._record.cluster, self._record.run, answer["run"])

    def _pass_on(self, told: Message | BaseException | BoardResult) -> None:
        while not self._over:
            with suppress(queue.Full):
                self._arrived.put(told, timeout=1.0)
                break
        with suppress(OSError):
            self._ring.send(b".", socket.MSG_DONTWAIT)

    # what the thread does that serves

    def _all_arrived(self) -> list[Message | BaseException | BoardResult]:
        with suppress(BlockingIOError):
            self._bell.recv(4096, socket.MSG_DONTWAIT)
        found: list[Message | BaseException | BoardResult] = []
        with suppress(queue.Empty):
            while len(found) < _QUEUED:
                found.append(self._arrived.get_nowait())
        return found

    def _watch(self, selector: selectors.BaseSelector) -> None:
        """A browser is read while there is room on its way, and written to while something is pending."""
        known = {key.data: key for key in selector.get_map().values() if key.data is not None}
        for number in known.keys() - self._channels.keys():
            selector.unregister(known[number].fileobj)
        for number, channel in self._channels.items():
            events = selectors.EVENT_READ if channel.room > 0 and not channel.closing else 0
            events |= selectors.EVENT_WRITE if channel.pending else 0
            if number in known and known[number].events != events:
                selector.unregister(channel.browser)
            if events and (number not in known or known[number].events != events):
                selector.register(channel.browser, events, number)

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionError):
            browser, _ = self._listener.accept()
            if len(self._channels) >= MOST_CHANNELS:
                browser.close()
                return
            browser.setblocking(False)
            self._channels[self._next] = Channel(browser)
            self._session.send({"type": "open", "channel": self._next})
            self._next += 1

    def _move(self, number: int, events: int) -> None:
        if events & selectors.EVENT_WRITE and number in self._channels:
            self._write(number, self._channels[number])
        if events & selectors.EVENT_READ and number in self._channels:
            self._read(number, self._channels[number])

    def _read(self, number: int, channel: Channel) -> None:
        try:
            data = channel.browser.recv(min(PIECE_BYTES, channel.room))
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            return self._close(number)
        channel.room -= len(data)
        self._session.send({"type": "piece", "channel": number}, data)
        return None

    def _write(self, number: int, channel: Channel) -> None:
        try:
            sent = channel.browser.send(channel.pending)
        except BlockingIOError:
            return None
        except OSError:
            return self._close(number)
        del channel.pending[:sent]
        if channel.closing and not channel.pending:
            return self._drop(number)
        if not channel.closing:
            self._session.send({"type": "taken", "channel": number, "size": sent})
        return None

    def _take(self, message: Message) -> None:
        number = int(message["channel"])
        if number >= self._next:
            raise untrue(self._session.host.name, f"speaks of connection {number}, which nobody has opened")
        channel = self._channels.get(number)
        if channel is None:
            return  # it was closed here meanwhile
        if message.type == "taken":
            channel.room = min(WINDOW_BYTES, channel.room + message.of(TakenWord)["size"])
        elif message.type == "closed":
            assert message.of(ClosedWord)
            channel.closing = True
            if not channel.pending:
                self._drop(number)
        else:
            assert message.of(PieceWord)
            if len(channel.pending) + len(message.payload) > WINDOW_BYTES:
                raise untrue(self._session.host.name, "sends more than it was allowed to")
            channel.pending += message.payload

    def _close(self, number: int) -> None:
        self._drop(number)
        self._session.send({"type": "closed", "channel": number})

    def _drop(self, number: int) -> None:
        self._channels.pop(number).browser.close()

    def _say_farewell(self) -> None:
        """Waits until the host has ended it: when the command is over, nothing is left there."""
        if not self._receiver.is_alive():
            return
        with suppress(DtctlError):
            self._session.send({"type": "abort"})
            until = time.monotonic() + FAREWELL_S
            while time.monotonic() < until:
                with suppress(queue.Empty):
                    if not isinstance(self._arrived.get(timeout=0.2), Message):
                        return
