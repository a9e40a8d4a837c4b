"""A pytest plugin that selects a few cases of each test: `pytest -p tests.sampling`, with SAMPLE_ALSO="data top" set.

Of a test with many cases it takes the first, the last and some between, and each whose name has one of these words.
"""

from __future__ import annotations

import os
import re
from itertools import groupby

import pytest

ALSO = "SAMPLE_ALSO"
FEW = 5


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    words = "|".join(map(re.escape, os.environ[ALSO].split()))
    chosen = set[pytest.Item]()
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        cases = [*group]
        chosen.update(cases[at] for at in few_of(len(cases)))
        chosen.update(case for case in cases if re.search(rf"\b({words})\b", case.nodeid.partition("[")[2]))
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def few_of(count: int) -> set[int]:
    """Positions of at most FEW of so many cases."""
    return {at * (count - 1) // (FEW - 1) for at in range(FEW)} if count > FEW else set(range(count))
