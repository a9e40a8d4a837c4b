"""Every template on separate hosts, which share no disk."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import environments
from tests.desk import Desk, desk
from tests.hosts.fleet import Fleet, missing
from tests.templates.cases import CASES, Case
from tests.templates.project import Project
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[Fleet]:
    if reason := missing():
        pytest.skip(f"no fleet: {reason}")
    visible = (Path(sys.base_prefix), Path(sys.prefix), environments.root())
    with Fleet(3, visible=visible) as made:
        yield made


@pytest.fixture
def fleet(three_hosts: Fleet) -> Iterator[Fleet]:
    """Without the output of other cases, which is as if it were of one cluster."""
    yield three_hosts
    three_hosts.restore()


def write_addresses(user: Desk, fleet: Fleet) -> None:
    """Into the file that `dtctl init` wrote, as its user would."""
    file = user.project / "cluster.yaml"
    addresses = (host.address for host in fleet.hosts)
    place = re.compile(r"^(  node-\d:(?: |\n    ssh: ))\S+", re.MULTILINE)
    text, count = place.subn(lambda found: found[1] + next(addresses), file.read_text())
    assert count
    file.write_text(text)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_it_learns_on_separate_hosts(case: Case, fleet: Fleet, tmp_path: Path) -> None:
    with desk(tmp_path / "home") as user:
        (user.home / ".ssh").mkdir(mode=0o700)
        (user.home / ".ssh" / "config").write_text(fleet.ssh_config.read_text())
        project = Project(user, case)
        write_addresses(user, fleet)
        project.up(case.steps)
        project.succeed()
        lead = fleet.hosts[int(user.task(case.lead)["host"].removeprefix("node-")) - 1]
        project.check_what_it_learnt(lead.home, case.steps)
        project.check_that_it_can_be_restored(lead.home, case.steps)
    for host in fleet.hosts:
        eventually(lambda: not host.processes(), what=f"nothing to be left on {host.name}")  # noqa: B023
