"""Long conversations with several hosts at once: one that breaks is begun again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.transport.seam import Session, Transport

if TYPE_CHECKING:
    from dtctl.model import Host


QUEUED_BYTES = 64 << 20
"""The most bytes that are kept unread: a host that sends more has to wait."""

_SMALL_BYTES = 1 << 10
"""The estimate for an item of unknown size."""

_RETRY_S = (1.0, 2.0, 4.0, 8.0, 15.0)
_PASSING = ("internal",)
"""Refusals that another try may not meet: an agent that could not be revived just now."""

Converse = Callable[[Session], bool]
"""Holds the conversation. Returns whether it is to be started again."""


@dataclass(frozen=True)
class Disconnected:
    """A host cannot be followed; unless `final`, it is tried again."""

    host: str
    error: DtctlError
    final: bool = False


@dataclass(frozen=True)
class Reconnected:
    """A host that was away is followed again, from where it was left."""

    host: str


@dataclass(frozen=True)
class Through:
    """A host has no more to report, unless it begins again."""

    host: str


class Streams:
    """Conversations, each in its own thread; `all` iterates over the items that they pass on. A context manager."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._items: deque[tuple[object, int]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._sessions: set[Session] = set()

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended.set()
            self._changed.notify_all()
        for session in list(self._sessions):
            session.close()

    @property
    def ended(self) -> bool:
        """Whether the reader has left."""
        return self._ended.is_set()

    def begin(self, host: Host, converse: Converse) -> None:
        self.work(host.name, lambda: self._keep(host, converse))

    def work(self, name: str, work: Callable[[], None]) -> None:
        """Runs `work`, which puts items without a conversation, in a thread; it must end when the reader has left."""
        threading.Thread(target=self._watch, args=(work,), daemon=True, name=f"stream-{name}").start()

    def put(self, what: object, size: int = _SMALL_BYTES) -> None:
        """Called by a conversation, in its thread; returns when there is room, or the reader has left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._bytes or self._bytes + size < QUEUED_BYTES or self.ended)
            if self.ended:
                return
            self._items.append((what, size))
            self._bytes += size
            self._changed.notify_all()

    def all(self, tick_s: float) -> Iterator[object]:
        """Yields the arriving items, and None whenever none came for `tick_s`; never ends."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items, tick_s)
                item, size = self._items.popleft() if self._items else (None, 0)
                self._bytes -= size
                self._changed.notify_all()
            if isinstance(item, _Bug):
                raise item.error
            yield item

    def _watch(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as bug:  # raised in the thread that reads the streams
            if not self.ended:
                self.put(_Bug(bug))

    def _keep(self, host: Host, converse: Converse) -> None:
        failures = 0
        while not self.ended:
            try:
                session = self._transport.open(host)
                self._sessions.add(session)
                if failures:
                    session.greeted()
                    self.put(Reconnected(host.name))
                failures = 0
                try:
                    if not converse(session):
                        return
                finally:
                    session.close()
                    self._sessions.discard(session)
            except DtctlError as error:
                if self.ended:
                    return
                _drop_frames(error)
                passing = isinstance(error, TransportError) or getattr(error, "code", "") in _PASSING
                if not failures:
                    self.put(Disconnected(host.name, error, final=not passing))
                if not passing:
                    return
                self._ended.wait(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1


@dataclass(frozen=True)
class _Bug:
    error: BaseException


def _drop_frames(error: BaseException | None) -> None:
    """Drops the frames of an error and its causes, which keep the received data alive, megabytes per attempt."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


Source = Callable[[], Generator[object, None, None]]
"""Begins a stream; it yields None whenever nothing came for a moment, so that its reader can be stopped."""


MOST = 100
"""Items that wait to be taken; a stream with more has to wait."""


class Feed:
    """Reads a stream from `start` until `close`; what it gives, or the error that ended it, waits to be taken."""

    def __init__(self, begin: Source) -> None:
        self._begin = begin
        self._items: deque[object] = deque()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True, name="feed")

    def start(self) -> Feed:
        self._thread.start()
        return self

    def first(self) -> object:
        """Waits for the first item, and leaves it to be taken. None if the stream ended without one."""
        with self._changed:
            while not self._items and self._thread.is_alive():
                self._changed.wait(0.1)
            return self._items[0] if self._items else None

    def take(self) -> list[object]:
        """The items since the last call; an exception is the last item."""
        with self._changed:
            taken = list(self._items)
            self._items.clear()
            self._changed.notify_all()
        return taken

    def close(self, within_s: float = 1.0) -> None:
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(within_s)

    def _read(self) -> None:
        try:
            with closing(self._begin()) as stream:
                for item in stream:
                    if self._closed.is_set():
                        return
                    if item is not None:
                        self._put(item)
        except BaseException as error:  # raised in the consumer's thread
            self._put(error)

    def _put(self, item: object) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < MOST or self._closed.is_set())
            self._items.append(item)
            self._changed.notify_all()
