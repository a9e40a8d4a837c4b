"""A pytest plugin that selects every N-th test: `pytest -p tests.nightly.slices`, with NIGHT_SLICE=K/N set.

It counts in the order in which pytest would run them, where trainings stand together: each slice gets its share.
Trainings run first, since only one runs at a time, and before others those that may take long, which could otherwise
begin last. The rest is in another order for each NIGHT_ORDER, so that a run without time for all of them leaves out
other tests the next time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator

import pytest

SLICE, ORDER = "NIGHT_SLICE", "NIGHT_ORDER"


def settings(number: int, of: int, order: str) -> dict[str, str]:
    """For the environment of a run of pytest."""
    return {SLICE: f"{number}/{of}", ORDER: order}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """After all others have chosen and sorted; every worker of pytest-xdist has to come to the same order."""
    yield
    number, of = map(int, os.environ[SLICE].split("/"))
    chosen = items[number % of :: of]
    config.hook.pytest_deselected(items=[item for at, item in enumerate(items) if at % of != number % of])
    random.Random(os.environ[ORDER]).shuffle(chosen)
    items[:] = sorted(chosen, key=lambda item: (item.get_closest_marker("training") is None, -_timeout_s(item)))


def _timeout_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark else 0.0
