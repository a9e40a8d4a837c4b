"""Draws docs/images/top.svg: the screen of `dtctl top` on a run of this machine, whose trainers are played.

python docs/screens.py --top    draws it; needs the extra `top`, and neither root nor TensorFlow
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

import recorded
from played import WITHIN_S, played

from tests.documents.blocks import ROOT

if TYPE_CHECKING:
    from dtctl.model import TaskId
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.snapshot import RunStatus
    from dtctl.rooms.top.app import Top

PICTURE = ROOT / "docs" / "images" / "top.svg"
SIZE = (120, 38)


def draw() -> None:
    """Once the run has trained for a while and has lost a worker."""
    with played():
        svg = asyncio.run(_svg())
    same = re.sub(r"terminal-\d+-", "top-", svg)  # by which a page may hold several
    recorded.write(PICTURE, recorded.tidy(same))


async def _svg() -> str:
    app = _top()
    deadline = time.monotonic() + WITHIN_S
    async with app.run_test(size=SIZE) as pilot:
        while not _worth_seeing(app.model.status):
            assert time.monotonic() < deadline, "the run is not worth a picture"
            await pilot.pause(0.2)
        await pilot.pause(3.0)
        return app.export_screenshot(title="dtctl top")


def _worth_seeing(status: RunStatus | None) -> bool:
    return status is not None and any(task.state.value == "backoff" for task in status.tasks.values())


def _top() -> Top:
    from dtctl.cli.scope import Scope
    from dtctl.operations.client.streams import Feed
    from dtctl.operations.follow import follow_log
    from dtctl.operations.watch import watch_run
    from dtctl.rooms.metrics.operation import follow_loss
    from dtctl.rooms.speed.operation import follow_speed
    from dtctl.rooms.top.app import Top
    from dtctl.rooms.top.command import LOG_LINES

    scope = Scope("top")
    record, transport = scope.record(), scope.transport
    run = Feed(lambda: watch_run(record, transport)).start()
    loss = Feed(lambda: follow_loss(record, transport)).start()
    speed = Feed(lambda: follow_speed(record, transport)).start()

    def log(known: RunRecord, task: TaskId) -> Feed:
        return Feed(lambda: follow_log(known, transport, task, LOG_LINES)).start()

    return Top(run, loss, speed, log, with_tail=True)
