from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, desk


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home", elsewhere=lambda: False) as made:
        yield made
