"""A web server of this machine for one user, who knows its address: `dtctl dashboard` and `dtctl tensorboard`.

Python's own server does: it serves a few connections, one request each, and what is particular about it, who is let in,
no library would do for it.
"""

from __future__ import annotations

import gzip
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from dtctl.dataclass import dataclass
from dtctl.folder import temporary_folder

HERE = "127.0.0.1"
COOKIE = "dtctl"

MOST_UNKNOWN = 64
"""The most connections without the cookie: a new one replaces the oldest, so that the owner can always connect."""
MOST_ADMITTED = 64
PATIENCE_S = 30.0
"""The time limit for a browser that stops sending its request or reading the answer."""

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def listen(port: int, *, apart: bool = False) -> socket.socket:
    """Listens on this machine only; port 0 takes a free one. Raises OSError.

    `apart`: at an address that nothing else of this machine has, where that is possible. Browsers send the cookies of
    an address to all of its ports, and take them for one site, so a page that is not dtctl's own gets one to itself.
    macOS has 127.0.0.1 alone, and from Windows a browser reaches no other in WSL.
    """
    address = f"127.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"
    if not apart or "microsoft" in os.uname().release.lower():
        return _bound(HERE, port)
    with suppress(OSError):
        return _bound(address, port)
    return _bound(HERE, port)


def _bound(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(MOST_UNKNOWN)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class Door:
    """Everything that is served is below `place`, whose name only its viewers know.

    Browsers do not distinguish the ports of an address, and show the cookies of one to all servers of the other ports.
    They do distinguish paths.
    """

    def __init__(self) -> None:
        self.place = f"/{secrets.token_urlsafe(12)}/"
        self._key = secrets.token_urlsafe(32)
        self._token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self.on_entry: Callable[[], None] = lambda: None
        """Called when a token was used, from a thread of the server."""

    @property
    def token(self) -> str:
        """The token, which admits one browser once."""
        return self._token

    def enter(self, token: str) -> str | None:
        """The cookie's header for a browser that presents the token; the token then changes."""
        with self._lock:
            if not secrets.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
                return None
            self._token = secrets.token_urlsafe(24)
        self.on_entry()
        return f"{COOKIE}={self._key}; Path={self.place}; HttpOnly; SameSite=Strict"

    def knows(self, cookies: str) -> bool:
        """Whether the browser has the cookie. `cookies`: the header of a request."""
        # Other servers at this address set cookies, too: none of them must hide ours.
        values = (
            value for name, _, value in (one.strip().partition("=") for one in cookies.split(";")) if name == COOKIE
        )
        return any(secrets.compare_digest(value.encode("utf-8", "replace"), self._key.encode()) for value in values)


@dataclass(frozen=True)
class Entrance:
    """The pages for browsers that were not admitted. `headers`: of these pages and of every refusal."""

    entered: Callable[[str], str]
    """A page that leads on to an address."""
    refused: Callable[[int], str]
    """What is shown with an HTTP status of 400 and above."""
    headers: Mapping[str, str]


class Visit(BaseHTTPRequestHandler):
    """One request, on a connection of its own."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    server: _Listening

    def serve(self) -> None:
        self.close_connection = True
        path, _, query = self.path.partition("?")
        if self.headers.get("Host", "").partition(":")[0] not in self.server.names:
            return self.refuse(400)  # a stranger's name may resolve to this machine (DNS rebinding)
        if path == "/":
            return self._enter(query)
        if not path.startswith(self.server.door.place):
            return self.refuse(404)
        if not self.server.door.knows(self.headers.get("Cookie", "")):
            return self.refuse(403)
        if not self.server.admit(self.connection):
            return self.refuse(503)
        return self.server.answer(self, path[len(self.server.door.place) :], query)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = serve

    def _enter(self, query: str) -> None:
        """A page that leads on, not a redirection."""
        if self.command not in ("GET", "HEAD"):
            return self.refuse(405)
        token = parse_qs(query).get("token", [""])[0]
        cookie = self.server.door.enter(token) if self.command == "GET" else None
        if cookie is None:
            return self.refuse(403)
        entrance = self.server.entrance
        page = entrance.entered(self.server.door.place)
        return self.page(200, page, {**entrance.headers, "Set-Cookie": cookie})

    def refuse(self, code: int) -> None:
        self.page(code, self.server.entrance.refused(code), self.server.entrance.headers)

    @property
    def takes_gzip(self) -> bool:
        headers = getattr(self, "headers", None)  # an invalid request has none
        return headers is not None and "gzip" in headers.get("Accept-Encoding", "")

    def page(self, code: int, text: str, headers: Mapping[str, str]) -> None:
        body, encoding = text.encode(), {}
        if self.takes_gzip:
            body, encoding = gzip.compress(body, mtime=0), {"Content-Encoding": "gzip"}
        answer = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body)), **encoding, **headers}
        self.begin(code, answer)
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, code: int, headers: Mapping[str, str]) -> None:
        """Sends the status line and the headers; the end of the connection ends the body."""
        self.send_response_only(code)
        for name, value in {**headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers an invalid request. Called by the base class."""
        self.close_connection = True
        with suppress(OSError):
            self.refuse(code)

    def log_message(self, *_: Any) -> None:
        """Logs nothing: a browser may send anything."""


Answer = Callable[[Visit, str, str], None]
"""Answers an admitted request, given its path below the door's place and its query."""


class _Listening(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, door: Door, entrance: Entrance, answer: Answer) -> None:
        super().__init__(listener.getsockname(), Visit, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.door, self.entrance, self.answer = door, entrance, answer
        self.names = {HERE, "localhost", listener.getsockname()[0]}
        self._unknown: dict[object, None] = {}
        self._admitted: set[object] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._unknown[request] = None
            if len(self._unknown) > MOST_UNKNOWN:
                oldest: Any = next(iter(self._unknown))
                del self._unknown[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def admit(self, request: object) -> bool:
        """Admits a connection that presented the cookie. False if there are too many of them."""
        with self._lock:
            self._unknown.pop(request, None)
            self._admitted.add(request)
            return len(self._admitted) <= MOST_ADMITTED

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._unknown.pop(request, None)
            self._admitted.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores a browser that has disconnected; any other error is a bug and is raised."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Server:
    """Serves in a thread of its own while its `with` block lasts."""

    def __init__(self, listener: socket.socket, door: Door, entrance: Entrance, answer: Answer) -> None:
        self._listening = _Listening(listener, door, entrance, answer)
        self._door = door
        self._thread = threading.Thread(target=self._listening.serve_forever, args=(0.1,), daemon=True, name="web")

    @property
    def address(self) -> str:
        """The address for one browser, which works once."""
        here, port = self._listening.socket.getsockname()
        return f"http://{here}:{port}/?token={self._door.token}"

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown()
        self._thread.join()
        self._listening.server_close()


@contextmanager
def opened(page: str) -> Iterator[None]:
    """Opens an address with a secret in it in the user's browser, for as long as this is entered.

    `page` leads to it: a file for the user alone, because all users of a machine see what programs are started with.
    """
    with temporary_folder("dtctl-") as folder:
        with folder.new("dtctl.html") as file:
            file.write(page.encode())
        webbrowser.open((folder.path / "dtctl.html").as_uri())
        yield
