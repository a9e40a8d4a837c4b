"""Frames over a pair of byte streams (docs/agent.md, "Frames")."""

from __future__ import annotations

import _thread
import json
import os
import select
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Deque, Dict, Optional, Tuple

    Frame = Tuple[Dict[str, Any], bytes]

START = b"\x1e"
"""Written once, before the greeting: what comes before it is the noise of a login shell."""


class Gone(Exception):
    """The controller is gone: its end of the conversation is closed."""


class Wire:
    """One conversation. `send` may be called from any thread, everything else from one.

    At first `receive` reads the stream itself, which is fastest for a bundle's bytes. A request that has to
    notice frames or the end of input while it works calls `start_listening` once; from then on a thread reads,
    `poll` waits with a limit, `fileno` can be waited for with select, and `receive` still works.
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = _thread.allocate_lock()
        self._frames: Optional[Deque[Frame]] = None
        self._bell = (-1, -1)
        self._fault: Optional[BaseException] = None

    def send(self, fields: Dict[str, Any], payload: bytes = b"") -> None:
        """Writes one frame; `bytes` is added when there is a payload. Raises Gone."""
        if payload:
            fields = dict(fields, bytes=len(payload))
        line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        try:
            with self._sending:
                self._writer.write(line)
                self._writer.write(payload)
                self._writer.flush()
        except OSError:
            raise Gone() from None

    def receive(self) -> Frame:
        """The next frame, however long it takes. Raises Gone."""
        if self._frames is None:
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
        """The next frame, or None when none has come within `timeout_s` (None: no limit). Raises Gone."""
        assert self._frames is not None, "start_listening comes first"
        if not select.select([self._bell[0]], [], [], timeout_s)[0]:
            return None
        if not os.read(self._bell[0], 1):  # the thread has ended
            raise self._fault or Gone()
        return self._frames.popleft()

    def is_gone(self) -> bool:
        """True once the controller has closed its end; only after `start_listening`."""
        return self._fault is not None

    def fileno(self) -> int:
        """A descriptor that is readable whenever `poll` would not wait; only after `start_listening`."""
        return self._bell[0]

    def _listen(self) -> None:
        assert self._frames is not None
        try:
            while True:
                self._frames.append(self._read())
                os.write(self._bell[1], b".")
        except BaseException as fault:
            self._fault = fault
        finally:
            os.close(self._bell[1])

    def _read(self) -> Frame:
        try:
            line = self._reader.readline()
            if not line.endswith(b"\n"):
                raise Gone()
            fields = json.loads(line)
            size = fields.get("bytes", 0)
            payload = self._reader.read(size) if size else b""
        except OSError:
            raise Gone() from None
        if len(payload) != size:
            raise Gone()
        return fields, payload
