"""The answers of a dashboard to the browsers that were admitted. It changes nothing."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs

from dtctl.errors import DtctlError
from dtctl.rooms.pages.report import Following, Report, is_over
from dtctl.rooms.pages.webserver import Answer, Visit

FRESH_S = 5.0
REFRESH_S = 6.0
FAREWELL_S = 3.0
"""How long browsers have to read the end."""


class Board:
    """The parts of the page. The writing thread calls `put`, `close` and `wait_for_readers`, the readers' threads the
    others.
    """

    def __init__(self) -> None:
        self._parts: dict[str, tuple[int, str]] = {}
        self._number = 0
        self.closed = False
        self.readers = 0
        self._put_at = 0.0
        self._changed = threading.Condition()

    def put(self, parts: Mapping[str, str]) -> None:
        """Replaces parts; unchanged ones are not sent again."""
        with self._changed:
            self._put_at = time.monotonic()
            self._changed.notify_all()
            changed = {name: text for name, text in parts.items() if self._parts.get(name, (0, None))[1] != text}
            if changed:
                self._number += 1
                self._parts.update({name: (self._number, text) for name, text in changed.items()})
                self._changed.notify_all()

    def close(self) -> None:
        """Sends readers the end; returns when all have read it, or after FAREWELL_S."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.readers, FAREWELL_S)

    def wait_for_readers(self, timeout_s: float) -> bool:
        """Whether a browser reads; returns as soon as one does."""
        with self._changed:
            return self._changed.wait_for(lambda: self.readers > 0, timeout_s)

    def refresh(self) -> None:
        """Returns when the parts are at most FRESH_S old, or after REFRESH_S: nobody asks the hosts without a reader.

        What has ended changes no more.
        """
        with self.reading(), self._changed:
            if self._parts.get("phase", (0, ""))[1] != "ended" and not self._is_fresh():
                self._changed.wait_for(lambda: self.closed or self._is_fresh(), REFRESH_S)

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._put_at <= FRESH_S

    def since(self, number: int) -> tuple[int, dict[str, str]]:
        """The newest number, and the parts that are newer than the given one. A number that never was is as good as
        0.
        """
        with self._changed:
            known = number if 0 <= number <= self._number else 0
            return self._number, {name: text for name, (at, text) in self._parts.items() if at > known}

    def await_newer(self, number: int, timeout_s: float) -> None:
        """Returns when there is something newer, when the board is closed, or after a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > number or self.closed, timeout_s)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Counts a browser as a reader while it lasts."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._changed:
            self.readers += more
            self._changed.notify_all()


MOST_READERS = 32
ALIVE_S = 15.0
"""A reader that was sent nothing for this long gets a comment, so that a lost connection is noticed."""
RETRY_MS = 2000


FollowLog = Callable[[str, Callable[[], bool]], Generator[str, None, None] | int]
"""The log of the task of this name as server-sent events until the second says so; or the HTTP status of a refusal."""

Whole = Callable[[dict[str, str], int], str]
"""Draws the whole page, which continues from the given number."""


def answering(board: Board, whole: Whole, headers: Mapping[str, str], follow_log: FollowLog) -> Answer:
    """Answers requests: the page, its changes, and the log of a task."""

    def answer(visit: Visit, path: str, query: str) -> None:
        if path not in ("", "news", "log"):
            return visit.refuse(404)
        if visit.command not in ("GET", "HEAD"):
            return visit.refuse(405)
        if not path:
            board.refresh()
            number, parts = board.since(0)
            return visit.page(200, whole(parts, number), headers)
        if path == "log":
            name = parse_qs(query).get("task", [""])[0]
            found = follow_log(name, lambda: board.closed) if visit.command == "GET" else 405
            return visit.refuse(found) if isinstance(found, int) else _send(visit, found, headers)
        if board.readers >= MOST_READERS:
            return visit.refuse(503)
        last = visit.headers.get("Last-Event-ID") or parse_qs(query).get("from", [""])[0]
        news = messages(board, int(last) if _is_number(last) else 0)
        return _send(visit, news if visit.command == "GET" else iter(()), headers)

    return answer


def _send(visit: Visit, texts: Iterator[str], headers: Mapping[str, str]) -> None:
    """Sends texts as they come. A later one repeats much of those before it, so it is compressed with them in view."""
    is_packed = visit.takes_gzip
    packing = zlib.compressobj(wbits=_GZIP)
    encoding = {"Content-Encoding": "gzip"} if is_packed else {}
    try:
        visit.begin(200, {"Content-Type": "text/event-stream; charset=utf-8", **encoding, **headers})
        for text in texts:
            data = text.encode()
            visit.wfile.write(packing.compress(data) + packing.flush(zlib.Z_SYNC_FLUSH) if is_packed else data)
    finally:
        if isinstance(texts, Generator):
            texts.close()  # a log is followed no longer


_GZIP = 16 + zlib.MAX_WBITS


def messages(board: Board, number: int) -> Iterator[str]:
    """The changed parts as server-sent events (HTML, "Server-sent events")."""
    with board.reading():
        yield f"retry: {RETRY_MS}\n\n"
        while not board.closed:
            number, parts = board.since(number)
            yield f"id: {number}\nevent: parts\ndata: {json.dumps(parts)}\n\n" if parts else ": alive\n\n"
            board.await_newer(number, ALIVE_S)
        yield "event: over\ndata: \n\n"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16


EVERY_S = 2.0
SHARE = 0.2
"""The largest share of the time that is spent on asking hosts and drawing: if that is slow, it happens less often."""
LONGEST_S = 30.0

_TICK_S = 0.5


def looks(
    following: Following, first: Report, board: Board, alive: Callable[[], bool]
) -> Iterator[Report | DtctlError]:
    """The run again and again, or the reason why it is unknown, while the server runs. Hosts are only asked while a
    browser reads.

    After the end of the run there is nothing more to look at, and this continues without an error.
    """
    over, took = is_over(first.status), 0.0
    while alive():
        if not _is_time(board, min(LONGEST_S, max(EVERY_S, took / SHARE) - took)) or over:
            continue
        began = time.monotonic()
        report = _report_or_error(following)
        over = isinstance(report, Report) and is_over(report.status)
        yield report
        took = time.monotonic() - began


def _is_time(board: Board, pause_s: float) -> bool:
    """Whether a browser reads, after the pause."""
    time.sleep(pause_s)
    return board.wait_for_readers(_TICK_S)


def _report_or_error(following: Following) -> Report | DtctlError:
    try:
        report = following.report()
    except DtctlError as error:
        return error
    if report.status.time:
        return report
    gone = f"no host has run {report.status.record.run} any more"
    return next(iter(report.errors.values()), DtctlError(gone, hint="dtctl runs    lists those that there are"))
