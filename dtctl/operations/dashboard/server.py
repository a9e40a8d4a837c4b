"""A dashboard as a web server of this machine alone. Starlette and uvicorn are an extra: only this module imports them.

It answers GET and HEAD, changes nothing, and tells what it knows to those alone whom the door has let in.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from dtctl.operations.dashboard.board import Board
from dtctl.operations.dashboard.door import Door

HOSTS = ["127.0.0.1", "localhost"]
"""Names by which a browser may have come: another may be anybody's, which leads here for a moment (DNS rebinding)."""

MOST_READERS = 32
MOST_CONNECTIONS = 128
ALIVE_S = 15.0
"""After so long a silence a reader is told that the connection stands, so that a lost one is noticed."""
RETRY_MS = 2000
FAREWELL_S = 3.0
"""For readers to be told of the end."""

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class Pages:
    """What is sent, as text. `whole`: the page as it stands, which goes on from the number that it is given."""

    policy: str
    """The header Content-Security-Policy."""
    whole: Callable[[dict[str, str], int], str]
    entered: Callable[[str], str]
    """Leads on to an address."""
    refused: str


def application(pages: Pages, board: Board, door: Door) -> Starlette:
    """`/?token=` lets a browser in; the page and what is new of it are where the door has its place."""

    def enter(request: Request) -> Response:
        """A page that leads on, not a redirection: where another site has led here, a browser keeps a strict cookie
        back for as long as it is redirected."""
        cookie = door.enter(request.query_params.get("token", "")) if request.method == "GET" else None
        if cookie is None:
            return _refuse()
        return HTMLResponse(pages.entered(door.place), headers={"Set-Cookie": cookie})

    def page(request: Request) -> Response:
        if not door.knows(request.headers.get("cookie", "")):
            return _refuse()
        number, parts = board.since(0)
        return HTMLResponse(pages.whole(parts, number))

    def news(request: Request) -> Response:
        if not door.knows(request.headers.get("cookie", "")):
            return _refuse()
        if board.readers >= MOST_READERS:
            return Response(status_code=503)
        last = request.headers.get("last-event-id") or request.query_params.get("from", "")
        return StreamingResponse(told(board, int(last) if _is_number(last) else 0), media_type="text/event-stream")

    def _refuse() -> Response:
        return HTMLResponse(pages.refused, status_code=403)

    routes = [Route("/", enter), Route(door.place, page), Route(f"{door.place}news", news)]
    middleware = [Middleware(_Headers, policy=pages.policy), Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)]
    return Starlette(routes=routes, middleware=middleware)


async def told(board: Board, number: int) -> AsyncIterator[str]:
    """Parts as they change, in the words of server-sent events (HTML, "Server-sent events")."""
    yield f"retry: {RETRY_MS}\n\n"
    with board.reading():
        while not board.closed:
            number, parts = board.since(number)
            yield f"id: {number}\nevent: parts\ndata: {json.dumps(parts)}\n\n" if parts else ": alive\n\n"
            await board.newer(number, ALIVE_S)
    yield "event: over\ndata: \n\n"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16


class _Headers:
    """Each answer has them, refusals too."""

    def __init__(self, app: Callable[[Scope, Receive, Send], object], policy: str) -> None:
        self._app = app
        self._added = [
            (name.lower().encode(), value.encode())
            for name, value in {**HEADERS, "Content-Security-Policy": policy}.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._added]}
            await send(message)

        await self._app(scope, receive, with_headers)  # type: ignore[misc]


class Server:
    """Serves in a thread of its own from the beginning to the end of a `with`."""

    def __init__(self, listener: socket.socket, pages: Pages, board: Board, door: Door) -> None:
        self._listener = listener
        self._board = board
        self._door = door
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # what a browser may send is no news
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(pages, board, door),
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, daemon=True, name="dashboard"
        )

    @property
    def address(self) -> str:
        """For one browser, once."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/?token={self._door.token}"

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._board.close()
        self._server.should_exit = True
        self._thread.join(FAREWELL_S)
        self._listener.close()
