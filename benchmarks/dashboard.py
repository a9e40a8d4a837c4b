"""The dashboard of a run of 100 tasks: how long an update takes to reach a browser, and the bytes of a minute."""

from __future__ import annotations

import itertools
import statistics
import time
import zlib
from collections.abc import Iterator

from benchmarks.measuring import heading, show
from dtctl.rooms.pages.dashboard import EVERY_S
from dtctl.rooms.pages.dashboard_page import Drawing
from tests import many_tasks
from tests.browser import Page

TASKS = 100
ROUNDS = 30
"""Updates that are awaited, about 2 s each."""


def run(rounds: int | None = None) -> None:
    """Prints the time to draw, the time between updates, and the bytes of page, updates and a log."""
    rounds = rounds or ROUNDS
    heading("dashboard", f"a run of {TASKS} tasks in a browser")
    training = many_tasks.Training(TASKS, time.time() - 400)
    drawing, drawn = Drawing(), []
    for number in range(6):
        report = training.report(time.time() + number)
        began = time.perf_counter()
        drawing.parts(report)
        drawn.append(time.perf_counter() - began)
    show("drawing all parts", f"{drawn[0]:.2f} s; then {statistics.median(drawn[1:]):.2f} s")
    with many_tasks.dashboard(TASKS) as address:
        page = Page(address())
        with page.asked(page.place, headers={"Accept-Encoding": "gzip"}) as answer:
            packed = len(answer.read())
        show("page", f"{len(page.below()) / 1000:.0f} kB, {packed / 1000:.0f} kB as it is sent")
        _follow(page, "news?from=1", rounds, "updates")
        _follow(page, "log?task=worker:7", rounds, "a log of two lines a second")


def _follow(page: Page, path: str, rounds: int, what: str) -> None:
    times, sizes = [time.monotonic()], []
    for size in _messages(page, path):
        times.append(time.monotonic())
        sizes.append(size)
        if len(sizes) > rounds:
            break
    apart = [after - before for before, after in itertools.pairwise(times)]
    a_minute = 60 * sum(sizes[1:]) / (times[-1] - times[1])
    show(what, f"every {statistics.median(apart):.1f} s, at most {max(apart):.1f} s (asked every {EVERY_S:.0f} s)")
    show(what, f"{a_minute / 1000:.0f} kB a minute")


def _messages(page: Page, path: str) -> Iterator[int]:
    """The bytes of each message, as they are sent."""
    with page.asked(page.place + path, headers={"Accept-Encoding": "gzip"}) as answer:
        packed = answer.getheader("Content-Encoding") == "gzip"
        unpacking, text, size = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), b"", 0
        while data := answer.read1(1 << 16):
            size += len(data)
            text += unpacking.decompress(data) if packed else data
            if text.endswith(b"\n\n"):
                if b"data: " in text and b"event: begin" not in text:
                    yield size
                text, size = b"", 0
