"""The conversation with a controller, which every request uses."""

from __future__ import annotations

import _thread
import json
import os
import select
import time
from collections import deque
from contextlib import contextmanager, suppress

from .host.errors import Refused
from .records import kinds
from .records.kinds import InvalidValue, checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, BinaryIO, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar

    from .records.answers import Alive

    R = TypeVar("R")
    Frame = Tuple[Dict[str, Any], bytes]


_LOOK_S = 1.0
LONGEST_LINE = 16 * 1024 * 1024
MOST_BYTES = 256 * 1024 * 1024
"""The most bytes that may follow a line."""


class Gone(Exception):
    """The controller has disconnected: its end of the conversation is closed."""


class Wire:
    """One conversation. `send` and `fill_silence` may be called from any thread, everything else from one.

    At first `receive` reads the stream itself, which is fastest for a bundle's bytes. A request that must notice frames
    or the end of input during its work calls `start_listening` once; from then on a thread reads, `poll` waits with a
    limit, `fileno` can be waited for with select, and `receive` still works.

    Anything but a frame raises Refused, and nothing is read after it.
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
        """Whether the code that works for the controller has noticed that it has disconnected."""

    def send(self, fields: Mapping[str, object], payload: bytes = b"") -> None:
        """Writes one frame; `bytes` is added when there is a payload. Raises Gone."""
        with self._sending, self._noticing():
            self._write(fields, payload)

    def fill_silence(self, fields: Mapping[str, object], silence_s: float) -> float:
        """Writes a frame if nothing was sent for `silence_s`; returns the seconds until the next check. Raises Gone."""
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
        """The next frame, without a time limit. Raises Gone and Refused."""
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
        """The next frame, or None if there is none within `timeout_s` (None: no limit). Raises Gone and Refused."""
        assert self._frames is not None, "start_listening comes first"
        if not select.select([self._bell[0]], [], [], timeout_s)[0]:
            return None
        if not os.read(self._bell[0], 1):  # the thread has ended
            self.noticed = True
            raise self._fault or Gone()
        return self._frames.popleft()

    def is_gone(self) -> bool:
        """Whether the controller has closed its end; only after `start_listening`."""
        return self._fault is not None

    def await_hangup(self, wanted: Callable[[], bool]) -> bool:
        """Waits while `wanted`; True once the controller has closed its end, even with unread frames."""
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
    """The fields of a frame, and the number of bytes that follow it. Raises Refused."""
    try:
        fields = kinds.parse_json(line)
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


BEAT_S = 5.0


_HIDDEN = ("secrets", "credentials", "hooks")
"""Fields whose values are not shown, not even in an error."""


class Conversation:
    """The conversation of one controller."""

    def __init__(self, root: str, wire: Wire) -> None:
        self.root = root
        self.wire = wire
        self._at: Optional[str] = None
        self._at_since = 0.0
        self._has_beaten = False
        self.held: List[socket.socket] = []
        """Sockets that hold the ports of tasks that will start."""
        self.leaving: List[Callable[[], object]] = []
        """Functions that `leave` calls; their OSErrors are ignored."""

    def send(self, kind: str, frame: Mapping[str, object]) -> None:
        """Sends a frame. Raises Gone."""
        self.wire.send(dict(frame, type=kind))

    @contextmanager
    def at(self, what: Optional[str]) -> Iterator[None]:
        """While it lasts, beats report `what` as the session's work; None: no beats, as it is the controller's turn."""
        before = self._at
        self._turn_to(what)
        try:
            yield
        finally:
            self._turn_to(before)

    def _turn_to(self, what: Optional[str]) -> None:
        self._at_since = time.monotonic()
        self._at = what
        if what is not None and not self._has_beaten:
            self._has_beaten = True
            _thread.start_new_thread(self._beat, ())

    def _beat(self) -> None:
        pause_s = BEAT_S
        try:
            while True:
                time.sleep(pause_s)
                what = self._at
                pause_s = BEAT_S
                if what is not None:
                    beat: Alive = {"at": what, "for_s": max(0.0, round(time.monotonic() - self._at_since, 1))}
                    pause_s = self.wire.fill_silence(dict(beat, type="beat"), BEAT_S)
        except (Gone, ValueError):
            pass  # ValueError: the stream was closed

    def expect(self, *types: str) -> str:
        """The type of the next frame, which must be one of these. Raises Gone, Refused, and Aborted for `abort`."""
        return str(self.receive(*types)["type"])

    def receive(self, *types: str) -> Dict[str, Any]:
        """The next frame, which must be one of these. Raises as `expect`."""
        with self.at(None):
            return expect_control(self.wire.receive()[0], *types)

    def leave(self) -> None:
        """Releases the resources of the conversation, at its end for any reason, or earlier."""
        while self.leaving:
            with suppress(OSError):
                self.leaving.pop(0)()

    def pause(self, seconds: float) -> None:
        """Waits, and reads from the controller: raises Gone when it has disconnected, Aborted for `abort`."""
        self.wire.start_listening()
        frame = self.wire.poll(seconds)
        if frame is not None:
            expect_control(frame[0])

    def wait(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Polls until `done`; False when the time is over. Raises as `pause`."""

        deadline = time.monotonic() + limit_s
        delay = 0.01
        while not done():
            if time.monotonic() > deadline:
                return False
            self.pause(delay)
            delay = min(delay * 1.5, 0.1)
        return True


class Aborted(Exception):
    """The controller has cancelled the current work."""


def expect_control(frame: Mapping[str, Any], *types: str) -> Dict[str, Any]:
    """A frame within a request, checked to be one of these. Raises Refused, and Aborted for `abort`."""
    from .rooms import WORDS

    name = frame["type"]
    if name == "abort":
        raise Aborted()
    if name not in types:
        awaited = " or ".join(types or ["abort"])
        raise Refused("bad_request", "%s came where %s was awaited" % (ascii(name)[:60], awaited))
    return dict(held(WORDS[name], frame, name), type=name)


def held(record: str, frame: Mapping[str, Any], name: str) -> Any:
    """A frame as the record of this name, which is imported. Raises Refused, which names the field."""
    from .rooms import load

    try:
        return checked(load(record), frame)
    except InvalidValue as wrong:
        hidden = wrong.path and wrong.path[0] in _HIDDEN
        what = "%s: expected %s" % (wrong.field, wrong.expected) if hidden else str(wrong)
        raise Refused("bad_request", "%s: %s" % (name, what)) from None
