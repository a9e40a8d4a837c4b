"""A pytest plugin that begins no test after a moment: `pytest -p tests.nightly.until`, with NIGHT_ENDS set.

A test that has begun goes on to its end. As not all have their turn, another test than last time is the first.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Generator

import pytest

ENDS, SEED = "NIGHT_ENDS", "NIGHT_SEED"
NO_TIME = "the time of this part was over"


def settings(minutes: float) -> dict[str, str]:
    """For the environment of a run of pytest that begins now."""
    return {ENDS: str(time.time() + 60 * minutes), SEED: str(random.randrange(1_000_000))}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """After all others have chosen and sorted; every worker of pytest-xdist has to come to the same order."""
    yield
    if items:
        first = random.Random(os.environ[SEED]).randrange(len(items))
        items[:] = items[first:] + items[:first]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ[ENDS]):
        pytest.skip(NO_TIME)
