"""What a dashboard answers to the browsers that were let in. It changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import parse_qs

from dtctl.operations.dashboard.board import Board
from dtctl.operations.webserver import Answer, Visit

MOST_READERS = 32
ALIVE_S = 15.0
"""After so long a silence a reader is told that the connection stands, so that a lost one is noticed."""
RETRY_MS = 2000


Whole = Callable[[dict[str, str], int], str]
"""The page as it stands, which goes on from the number that it is given."""


def answering(board: Board, whole: Whole, headers: Mapping[str, str]) -> Answer:
    """The page, and what is new of it."""

    def answer(visit: Visit, path: str, query: str) -> None:
        if path not in ("", "news"):
            return visit.refuse(404)
        if visit.command not in ("GET", "HEAD"):
            return visit.refuse(405)
        if not path:
            number, parts = board.since(0)
            return visit.page(200, whole(parts, number), headers)
        if board.readers >= MOST_READERS:
            return visit.refuse(503)
        last = visit.headers.get("Last-Event-ID") or parse_qs(query).get("from", [""])[0]
        visit.begin(200, {"Content-Type": "text/event-stream; charset=utf-8", **headers})
        for text in told(board, int(last) if _is_number(last) else 0) if visit.command == "GET" else ():
            visit.wfile.write(text.encode())
        return None

    return answer


def told(board: Board, number: int) -> Iterator[str]:
    """Parts as they change, in the words of server-sent events (HTML, "Server-sent events")."""
    with board.reading():
        yield f"retry: {RETRY_MS}\n\n"
        while not board.closed:
            number, parts = board.since(number)
            yield f"id: {number}\nevent: parts\ndata: {json.dumps(parts)}\n\n" if parts else ": alive\n\n"
            board.await_newer(number, ALIVE_S)
        yield "event: over\ndata: \n\n"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16
