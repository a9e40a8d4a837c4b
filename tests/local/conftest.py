from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.host import compiled_program
from tests.desk import Desk, desk


@contextmanager
def settled_desk(home: Path) -> Iterator[Desk]:
    """A desk with the agent's program, which the first session on each host would otherwise compile."""
    with desk(home, elsewhere=lambda: False) as made:
        root = made.home / ".dtctl"
        root.mkdir(mode=0o700)
        shutil.copytree(compiled_program(sys.executable), root / "agent")
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Desk]:
    with settled_desk(tmp_path / "home") as made:
        yield made
