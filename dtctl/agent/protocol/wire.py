"""Frames over a pair of byte streams (docs/agent.md, "Frames")."""

from __future__ import annotations

import _thread
import json
import os
import select
import time
from collections import deque
from contextlib import contextmanager

from ..host.errors import Refused
from ..records import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Deque, Dict, Iterator, Mapping, Optional, Tuple

    Frame = Tuple[Dict[str, Any], bytes]

_LOOK_S = 1.0
LONGEST_LINE = 16 * 1024 * 1024
MOST_BYTES = 256 * 1024 * 1024
"""The most bytes that may follow a line."""


class Gone(Exception):
    """The controller is gone: its end of the conversation is closed."""


class Wire:
    """One conversation. `send` and `fill_silence` may be called from any thread, everything else from one.

    At first `receive` reads the stream itself, which is fastest for a bundle's bytes. A request that has to
    notice frames or the end of input while it works calls `start_listening` once; from then on a thread reads,
    `poll` waits with a limit, `fileno` can be waited for with select, and `receive` still works.

    What is no frame raises Refused, and nothing is read after it.
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = _thread.allocate_lock()
        self._frames: Optional[Deque[Frame]] = None
        self._bell = (-1, -1)
        self._fault: Optional[BaseException] = None
        self._last_sent = time.monotonic()
        self.noticed = False
        """Whoever works for the controller has been told that it is gone."""

    def send(self, fields: Mapping[str, object], payload: bytes = b"") -> None:
        """Writes one frame; `bytes` is added when there is a payload. Raises Gone."""
        with self._sending, self._noticing():
            self._write(fields, payload)

    def fill_silence(self, fields: Mapping[str, object], silence_s: float) -> float:
        """Writes a frame if nothing was sent for that long; returns the seconds until the next look. Raises Gone."""
        if not self._sending.acquire(False):
            return silence_s  # something is being sent
        try:
            left_s = self._last_sent + silence_s - time.monotonic()
            if left_s > 0:
                return left_s
            self._write(fields, b"")
            return silence_s
        finally:
            self._sending.release()

    def _write(self, fields: Mapping[str, object], payload: bytes) -> None:
        if payload:
            fields = dict(fields, bytes=len(payload))
        line = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            self._writer.write(line)
            self._writer.write(payload)
            self._writer.flush()
        except OSError:
            raise Gone() from None
        self._last_sent = time.monotonic()

    def receive(self) -> Frame:
        """The next frame, however long it takes. Raises Gone and Refused."""
        if self._frames is None:
            with self._noticing():
                return self._read()
        frame = None
        while frame is None:
            frame = self.poll(None)
        return frame

    def start_listening(self) -> None:
        """Lets a thread read from now on. Does nothing the second time."""
        if self._frames is not None:
            return
        self._bell = os.pipe()
        self._frames = deque()
        _thread.start_new_thread(self._listen, ())

    def poll(self, timeout_s: Optional[float]) -> Optional[Frame]:
        """The next frame, or None when none has come within `timeout_s` (None: no limit). Raises Gone and Refused."""
        assert self._frames is not None, "start_listening comes first"
        if not select.select([self._bell[0]], [], [], timeout_s)[0]:
            return None
        if not os.read(self._bell[0], 1):  # the thread has ended
            self.noticed = True
            raise self._fault or Gone()
        return self._frames.popleft()

    def is_gone(self) -> bool:
        """True once the controller has closed its end; only after `start_listening`."""
        return self._fault is not None

    def await_hangup(self, wanted: Callable[[], bool]) -> bool:
        """True when the controller has closed its end, whether or not all that it said was read; else not `wanted`."""
        try:
            poll = select.poll()
            poll.register(self._reader.fileno(), select.POLLRDHUP)
        except (OSError, ValueError):  # no stream of the system's
            return False
        while wanted():
            if poll.poll(1000 * _LOOK_S):
                return True
        return False

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except Gone:
            self.noticed = True
            raise

    def fileno(self) -> int:
        """A descriptor that is readable whenever `poll` would not wait; only after `start_listening`."""
        return self._bell[0]

    def _listen(self) -> None:
        assert self._frames is not None
        try:
            while True:
                self._frames.append(self._read())
                os.write(self._bell[1], b".")
        except BaseException as fault:  # raised by `poll`, in the thread that waits for frames
            self._fault = fault
        finally:
            os.close(self._bell[1])

    def _read(self) -> Frame:
        try:
            line = self._reader.readline(LONGEST_LINE + 1)
            if len(line) > LONGEST_LINE:
                raise Refused("bad_request", "a line of more than %d bytes is not a frame" % LONGEST_LINE)
            if not line.endswith(b"\n"):
                raise Gone()
            fields, size = _frame(line)
            payload = self._reader.read(size) if size else b""
        except OSError:
            raise Gone() from None
        if len(payload) != size:
            raise Gone()
        return fields, payload


def _frame(line: bytes) -> Tuple[Dict[str, Any], int]:
    """The fields of a frame, and how many bytes follow it. Raises Refused."""
    try:
        fields = json_text.parse(line)
    except ValueError as error:
        raise Refused("bad_request", "what arrived is not a frame", "it is not JSON: %s" % error) from None
    if type(fields) is not dict or type(fields.get("type")) is not str:
        raise Refused("bad_request", "what arrived is not a frame", "it has to be an object with a type")
    size = fields.get("bytes", 0)
    if type(size) is not int or not 0 <= size <= MOST_BYTES:
        raise Refused(
            "bad_request", "what arrived is not a frame", "bytes: expected a number from 0 to %d" % MOST_BYTES
        )
    return fields, size
