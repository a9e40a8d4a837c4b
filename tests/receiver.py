"""A receiver of posts on the loopback address, which answers as its path says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, ClassVar

HANGS_S = 60.0
"""Who waits for an answer to `hang` waits so long, or until the receiver ends."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.over = Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    CODES: ClassVar = {"gone": 404, "busy": 503, "later": 429, "redirect": 307}

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.bodies.append(json.loads(data))
        word = self.path.split("/")[1]
        if word == "hang":
            self.server.over.wait(HANGS_S)
        if word == "babble":
            self.wfile.write(b"\x00not HTTP\r\n\r\n")
            return
        self.send_response(self.CODES.get(word, 200))
        if word == "redirect":
            self.send_header("Location", self.server.url("elsewhere"))
        self.end_headers()
        with suppress(OSError):  # who has hung up
            self.wfile.write(f"no_service at {self.path}".encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiver(server: Server | None = None) -> Iterator[Server]:
    made = server or Server()
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        made.shutdown()
        thread.join()
        made.server_close()
