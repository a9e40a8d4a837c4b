"""Four separate hosts for the tests of a module, and a user's desk beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.hosts.fleet import Fleet, missing
from tests.waiting import eventually


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    if reason := missing():
        pytest.skip(f"no fleet: {reason}")
    with Fleet(4) as made:
        yield made


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    """A desk whose ~/.ssh/config knows the fleet. When the test is over nothing of ours runs on any host."""
    with desk(tmp_path / "home") as made:
        config = made.home / ".ssh" / "config"
        config.parent.mkdir(mode=0o700)
        config.write_text(fleet.ssh_config.read_text())
        yield made
    for host in fleet.hosts:
        eventually(lambda: not host.processes(), what=f"nothing to be left on {host.name}")  # noqa: B023
