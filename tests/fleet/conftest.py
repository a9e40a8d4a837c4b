"""A user's desk beside the fleet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.hosts.fleet import Fleet
from tests.waiting import eventually


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    """A desk whose ~/.ssh/config knows the fleet. When the test is over nothing of ours runs on any host."""
    with desk(tmp_path / "home", elsewhere=fleet.busy) as made:
        made.write_ssh_config(fleet.ssh_config.read_text())
        yield made
    eventually(lambda: not fleet.busy(), what="nothing to be left on any host")
