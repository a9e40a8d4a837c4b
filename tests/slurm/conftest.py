"""A real Slurm with four nodes, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.slurm import Slurm, missing

HERE = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """One worker of pytest-xdist has them all, because each would start a Slurm of its own."""
    if HERE in item.path.parents:
        item.add_marker(pytest.mark.xdist_group("slurm"))


@pytest.fixture(scope="session")
def lasting_slurm() -> Iterator[Slurm]:
    if reason := missing():
        pytest.skip(f"no Slurm: {reason}")
    with Slurm(4) as made:
        yield made


@pytest.fixture
def slurm(lasting_slurm: Slurm) -> Iterator[Slurm]:
    """Four idle nodes, n1 to n4, and a login node; nothing runs there, and all homes are empty."""
    yield lasting_slurm
    lasting_slurm.restore()
