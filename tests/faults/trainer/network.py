"""A server and its clients: requests and answers are JSON objects, one per line. As in gRPC, no call ends by itself."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Message = dict[str, Any]


class Gone(Exception):
    """The other end has closed or refused the connection, or (if there is a limit) was silent for too long."""


class Server:
    """Answers each connection in a thread of its own.

    `answer(request)` returns the answer; `lost(me)` is called at the end of a connection, with its client's name from
    the requests.
    """

    def __init__(
        self, address: str, answer: Callable[[Message], Message], lost: Callable[[str], None] = lambda me: None
    ) -> None:
        port = int(address.rpartition(":")[2])
        try:
            self._socket = socket.create_server(("", port))
        except OSError as error:
            print(f"E add_port.cc] Failed to add port to server: No address added for '0.0.0.0:{port}'")
            sys.exit(f"UnknownError: Could not start gRPC server ({error.strerror})")
        self._answer, self._lost = answer, lost
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        me = ""
        with suppress(OSError, ValueError), connection, connection.makefile("rwb") as stream:
            for line in stream:
                request = json.loads(line)
                me = request["me"]
                stream.write(json.dumps(self._answer(request)).encode() + b"\n")
                stream.flush()
        if me:
            self._lost(me)


class Peer:
    """A task that is called at its address; connects when it is called."""

    limit_s: float | None = None
    """The limit for an answer; as in gRPC none, unless another is set."""

    def __init__(self, address: str, me: str) -> None:
        self.address, self._me = address, me
        self._socket: socket.socket | None = None
        self._stream: Any = None

    def call(self, do: str, **fields: Any) -> Message:
        try:
            self._connect().settimeout(self.limit_s)
            self._stream.write(json.dumps({"do": do, "me": self._me, **fields}).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
        except OSError as error:
            self.close()
            raise Gone(f"{self.address}: {error}") from None
        if not line:
            self.close()
            raise Gone(f"{self.address}: recvmsg:Connection reset by peer")
        answer: Message = json.loads(line)
        return answer

    def _connect(self) -> socket.socket:
        if self._socket is None:
            host, _, port = self.address.rpartition(":")
            self._socket = socket.create_connection((host, int(port)), timeout=5)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = self._socket.makefile("rwb")
        return self._socket

    def close(self) -> None:
        for part in (self._stream, self._socket):
            with suppress(OSError):  # the unsent rest
                if part is not None:
                    part.close()
        self._stream = self._socket = None

    def wait(self, do: str, until: Callable[[Message], bool] = lambda answer: True, every_s: float = 0.2) -> Message:
        """Calls, silently, until there is an answer for which `until(answer)` holds."""
        while True:
            with suppress(Gone):
                answer = self.call(do)
                if until(answer):
                    return answer
            time.sleep(every_s)
