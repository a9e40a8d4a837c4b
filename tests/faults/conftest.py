"""A user's desk for each fault, and the report of the results."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.faults import report
from tests.faults.report import Row
from tests.hosts.fleet import Fleet
from tests.nightly import until
from tests.waiting import eventually

FOLDER = "tests/faults"
NUMBERS = itertools.count(1)


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path, client: str) -> Iterator[Desk]:
    """A desk whose cluster has a name of its own, as trainers' output stays.

    At the end no process and no run is left.
    """
    with desk(tmp_path / "home", name=f"fault-{next(NUMBERS)}", client=client) as made:
        yield made
    eventually(lambda: not fleet.busy(), what="nothing to be left on any host")
    for host in fleet.hosts:
        assert list((host.home / ".dtctl").glob("runs/*")) == [], host.name


@pytest.fixture
def rows(report_rows: list[Row], client: str) -> list[Row]:
    """The report's rows, one for each fault: no recovery depends on the client."""
    return report_rows if client == "fabric" else []


@pytest.fixture(scope="session")
def report_rows(pytestconfig: pytest.Config) -> Iterator[list[Row]]:
    """Writes the page that `make faults` names in DTCTL_FAULT_REPORT."""
    found: list[Row] = []
    yield found
    if page := os.environ.get("DTCTL_FAULT_REPORT"):
        report.write(Path(page), found, keep=_are_some(pytestconfig))


def _are_some(config: pytest.Config) -> bool:
    """Not every fault is tried: the rows of the others stay."""
    every = FOLDER in (argument.rstrip("/") for argument in config.args)
    chosen = config.getoption("keyword") or config.getoption("markexpr") or until.SECONDS in os.environ
    return bool(chosen) or not every
