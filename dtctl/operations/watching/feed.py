"""What is told by a stream, collected by a thread for somebody who looks now and then."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing

Told = Callable[[], Generator[object, None, None]]
"""Begins a stream: it gives None whenever nothing came for a moment, so that whoever reads it can be ended."""


MOST = 100
"""What waits to be taken; a stream that tells more has to wait, too."""


class Feed:
    """Reads a stream from `start` until `close`; what it gives, or the error that ended it, waits to be taken."""

    def __init__(self, begin: Told) -> None:
        self._begin = begin
        self._told: deque[object] = deque()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True, name="feed")

    def start(self) -> Feed:
        self._thread.start()
        return self

    def first(self) -> object:
        """Waits for it, and leaves it to be taken. None where the stream has ended without a word."""
        with self._changed:
            while not self._told and self._thread.is_alive():
                self._changed.wait(0.1)
            return self._told[0] if self._told else None

    def take(self) -> list[object]:
        """What has come since the last time; an exception is the last of all."""
        with self._changed:
            taken = list(self._told)
            self._told.clear()
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
                for told in stream:
                    if self._closed.is_set():
                        return
                    if told is not None:
                        self._tell(told)
        except BaseException as error:  # raised by whoever takes it
            self._tell(error)

    def _tell(self, told: object) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._told) < MOST or self._closed.is_set())
            self._told.append(told)
            self._changed.notify_all()
