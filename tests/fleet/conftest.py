"""A user's desk with the fleet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.hosts.fleet import Fleet
from tests.waiting import eventually


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    """A desk whose ~/.ssh/config knows the fleet. At the end of the test none of our processes runs on any host."""
    with desk(tmp_path / "home", elsewhere=fleet.busy) as made:
        made.write_ssh_config(fleet.ssh_config.read_text())
        yield made
    eventually(lambda: not fleet.busy(), what="nothing to be left on any host")
