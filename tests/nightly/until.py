"""A pytest plugin that begins no test after a while: `pytest -p tests.nightly.until`, with NIGHT_SECONDS set.

They count from the first test, as thousands are collected for longer than a short night lasts.

A test that has begun goes on to its end. As not all have their turn, another test than last time is the first, unless
NIGHT_SEED is empty.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Generator

import pytest

SECONDS, SEED = "NIGHT_SECONDS", "NIGHT_SEED"
NO_TIME = "the time of this part was over"
_ENDS = pytest.StashKey[float]()


def settings(minutes: float) -> dict[str, str]:
    """For the environment of a run of pytest."""
    return {SECONDS: str(60 * minutes), SEED: str(random.randrange(1_000_000))}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """After all others have chosen and sorted; every worker of pytest-xdist has to come to the same order."""
    yield
    if items and (seed := os.environ[SEED]):
        first = random.Random(seed).randrange(len(items))
        items[:] = items[first:] + items[:first]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    now = time.monotonic()
    if now > item.config.stash.setdefault(_ENDS, now + float(os.environ[SECONDS])):
        pytest.skip(NO_TIME)
