"""What a browser that was let in asks TensorBoard, and what that answers, without the browser's cookies.

TensorBoard runs on a host, which may lie: it gets no cookie, and sets none.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any, Protocol, cast

from dtctl.errors import DtctlError
from dtctl.operations.webserver import Answer, Visit

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
    """No page of another origin has sent it; a browser names the origin of what changes something."""
    origin = visit.headers.get("Origin")
    return origin is None or origin.partition("://")[2] == visit.headers.get("Host")


def _pass_on(visit: Visit, connect: Callable[[], Upstream], target: str, length: int) -> None:
    begun = False
    try:
        upstream = connect()
        try:
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
        finally:
            upstream.close()
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
    """Those that are wanted; none that would be more than a line."""
    for name, value in headers:
        if wanted(name.lower()) and not set(value) & {"\r", "\n", "\0"}:
            yield name, value
