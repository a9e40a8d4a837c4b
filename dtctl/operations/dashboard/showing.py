"""Looks at a run again and again for as long as somebody looks at what is shown of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from dtctl.errors import DtctlError
from dtctl.operations.dashboard.board import Board
from dtctl.operations.report.following import Following, is_over
from dtctl.operations.report.tree import Report

EVERY_S = 2.0
SHARE = 0.2
"""Of the time, for looking and drawing: where that takes long, it is done less often."""
LONGEST_S = 30.0

_TICK_S = 0.5


def looks(
    following: Following, first: Report, board: Board, alive: Callable[[], bool]
) -> Iterator[Report | DtctlError]:
    """How the run stands, or why nobody can tell, until nobody serves it any more; while nobody reads, nobody is asked.

    After the end of the run there is nothing more to look at, and this goes on without a word.
    """
    over, took = is_over(first.status), 0.0
    while alive():
        if not _is_time(board, min(LONGEST_S, max(EVERY_S, took / SHARE - took))) or over:
            continue
        began = time.monotonic()
        told = _look(following)
        over = isinstance(told, Report) and is_over(told.status)
        yield told
        took = time.monotonic() - began


def _is_time(board: Board, pause_s: float) -> bool:
    """After the pause: somebody reads."""
    time.sleep(pause_s)
    return board.wait_for_readers(_TICK_S)


def _look(following: Following) -> Report | DtctlError:
    try:
        report = following.look()
    except DtctlError as error:
        return error
    if report.status.time:
        return report
    gone = f"no host has run {report.status.record.run} any more"
    return next(iter(report.errors.values()), DtctlError(gone, hint="dtctl runs    lists those that there are"))
