"""Waiting for something to become true, without a guess of how long it takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import IO, TypeVar

T = TypeVar("T")


PATIENCE_S = 120.0
"""The time limit on machines that are busy with other tests; what works is there long before."""

_OF_THE_WAIT = 0.05
_OF_THE_CONDITION = 2
_LONGEST_PAUSE_S = 0.5


def eventually(condition: Callable[[], T], timeout_s: float = PATIENCE_S, what: str = "", every_s: float = 0.02) -> T:
    """The first true value of `condition`; fails the test when there is none in time.

    The longer the wait, and the longer the condition itself takes, the rarer it is asked: those who are waited for need
    the processor, too.
    """
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        assert now - began < timeout_s, f"waited {timeout_s} s for {what or condition}"
        time.sleep(
            max(every_s, min(max(_OF_THE_WAIT * (now - began), _OF_THE_CONDITION * (now - asked)), _LONGEST_PAUSE_S))
        )


def read_until(stream: IO[str] | None, pattern: str, times: int = 1) -> list[str]:
    """The lines up to the one that matches for the last of these times; fails the test when the stream ends before."""
    assert stream is not None
    lines: list[str] = []
    while times:
        line = stream.readline()
        assert line, f"it ended and never said {pattern!r}: {lines[-20:]}"
        lines.append(line)
        times -= bool(re.search(pattern, line))
    return lines
