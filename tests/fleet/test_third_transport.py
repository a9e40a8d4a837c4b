"""A transport that is not part of dtctl: one file with the interface, and its name."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.fleet.test_run import CLUSTER
from tests.hosts.fleet import Fleet
from tests.hosts.nsenter import PLACES
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

PROJECT = Path(__file__).parents[2]
DTCTL = "import tests.hosts.nsenter; from dtctl.cli import main; main()"


class DeskWithNsenter(Desk):
    @staticmethod
    def argv(*words: str) -> list[str]:
        return [sys.executable, "-c", DTCTL, *words]


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    """A desk that knows no host by SSH. At the end of the test none of our processes runs on any host."""
    with desk(tmp_path / "home", kind=DeskWithNsenter) as made:
        made.env["PYTHONPATH"] = str(PROJECT)
        yield made
    for host in fleet.hosts:
        eventually(lambda: not host.processes(), what=f"nothing to be left on {host.name}")  # noqa: B023


def entries(user: Desk, fleet: Fleet, **pids: int) -> str:
    """The entries of `hosts`. `pids`: other pids for some hosts."""
    made = {host.name: (host.box.init, host.login.uid, str(host.login.home_inside)) for host in fleet.hosts[:4]}
    made |= {name: (pid, *made[name][1:]) for name, pid in pids.items()}
    user.env[PLACES] = json.dumps(made)
    return "hosts:\n" + "".join(f"  {name}: {{address: {fleet[name].address}, transport: nsenter}}\n" for name in made)


@pytest.mark.nightly
def test_a_run_is_started_watched_and_stopped_over_it(user: Desk, fleet: Fleet) -> None:
    file = user.write_cluster(CLUSTER, hosts=entries(user, fleet))
    user.dtctl("up")
    assert set(user.states().values()) == {"running"}
    file.unlink()  # the record of the run contains how its hosts are reached
    assert all("sshd" not in line for line in fleet["gpu-3"].processes())
    assert "worker:3 step" in user.dtctl("logs", "worker:3")
    assert "gpu-2" in user.dtctl("exec", "--cluster", "demo", "@gpu-2", "--", "hostname")
    refused = user.run("ssh", "--cluster", "demo", "gpu-1")
    assert (refused.returncode, "gpu-1 is reached by nsenter, not by SSH" in refused.stderr) == (2, True)
    user.dtctl("restart", "--cluster", "demo", "worker:1")
    eventually(lambda: user.task("worker:1")["attempt"] == 2 and user.task("worker:1")["state"] == "running")
    assert user.dtctl("stop", "--cluster", "demo") == "6 tasks stopped, 0 left\n"


def test_a_host_that_cannot_be_entered_is_reported(user: Desk, fleet: Fleet) -> None:
    user.write_cluster(CLUSTER, hosts=entries(user, fleet, **{"gpu-4": 4194305}))  # above any pid_max
    done = user.run("up")
    assert done.returncode == 4
    assert "cannot prepare on 1 of 4 hosts" in done.stderr
    assert "the agent does not start on gpu-4" in done.stderr


def test_a_host_without_an_address_is_reported_with_its_place(user: Desk) -> None:
    user.write_cluster(CLUSTER, hosts="hosts:\n  gpu-1: {transport: nsenter}\n  gpu-[2-4]:\n")
    assert "hosts.gpu-1 has no address" in user.run("validate").stderr
