"""A compromised host of a `data push` that hands the files to the others a byte at a time: they finish without it."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.rooms.data.relay import FAN_OUT, PATIENCE_S, SPARED_BYTES
from tests.desk import Desk, cluster_text, desk
from tests.hosts import faults
from tests.hosts.fleet import Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.timeout(600)]

HOSTS = "hosts:\n  gpu-[1-5]:\nssh: {connect_timeout: 3s}\n"
CLUSTER = cluster_text(jobs='{worker: {hosts: "gpu-[1-5]"}}', dirs="{data: ~/digits}", data="{from: digits}")
UPLINK_MBIT = 100
EVIL = "gpu-2"


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home", name="slow-feeder") as made:
        made.write_ssh_config(fleet.ssh_config.read_text())
        yield made


def push_to_those_that_lack_it(user: Desk, fleet: Fleet) -> float:
    """All but the host that is or will be compromised. Returns how long that takes."""
    honest = [host for host in fleet.hosts if host.name != EVIL]
    assert len(honest) > FAN_OUT
    for host in honest:
        shutil.rmtree(host.home / "digits")
    began = time.monotonic()
    with fleet.network.narrow_uplink(UPLINK_MBIT):
        user.dtctl("data", "push", timeout_s=500)
    took_s = time.monotonic() - began
    for host in honest:
        for path in (user.project / "digits").iterdir():
            assert (host.home / "digits" / path.name).read_bytes() == path.read_bytes(), host.name
    return took_s


def test_a_feeder_that_drips_delays_the_others_by_little_more_than_their_patience(user: Desk, fleet: Fleet) -> None:
    (user.project / "digits").mkdir()
    for number in range(4):
        (user.project / "digits" / f"{number}.rec").write_bytes(random.Random(number).randbytes(SPARED_BYTES // 16))
    user.write_cluster(CLUSTER, hosts=HOSTS)
    user.dtctl("data", "push", timeout_s=200)
    undisturbed_s = push_to_those_that_lack_it(user, fleet)
    with faults.other_python(fleet[EVIL], Path(__file__).with_name("slow_feeder.py")):
        disturbed_s = push_to_those_that_lack_it(user, fleet)
    print(f"undisturbed {undisturbed_s:.1f} s, with a feeder that drips {disturbed_s:.1f} s")
    assert disturbed_s > PATIENCE_S, "it fed nobody"
    assert disturbed_s < undisturbed_s + 2 * PATIENCE_S
