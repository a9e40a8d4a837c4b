"""A data set on separate hosts, over SSH."""

from __future__ import annotations

import json
import random

import pytest

from dtctl.rooms.data.relay import SPARED_BYTES
from tests.desk import Desk, cluster_text
from tests.hosts.fleet import Fleet

pytestmark = pytest.mark.fleet

HOSTS = "hosts:\n  gpu-[1-4]:\nssh: {connect_timeout: 3s}\nspares: [gpu-4]\n"
CLUSTER = cluster_text(
    jobs='{ps: {hosts: [gpu-1]}, worker: {hosts: "gpu-[2-3]"}}', dirs="{data: ~/digits}", data="{from: digits}"
)


def test_data_is_on_the_hosts_that_read_it_and_moves_with_their_tasks(user: Desk, fleet: Fleet) -> None:
    (user.project / "digits" / "train").mkdir(parents=True)
    for number in range(3):
        (user.project / "digits" / "train" / f"{number}.rec").write_text(f"record {number}\n")
    user.write_cluster(CLUSTER, hosts=HOSTS)
    assert user.dtctl("data", "push").splitlines() == ["gpu-[2-4]: ~/digits: 3 files sent"], "the spare too"
    user.dtctl("up")
    (user.project / "digits" / "new.rec").write_text("new\n")
    live = user.run("data", "push")
    assert "is live" in live.stderr, "what trainers read is not changed"
    (user.project / "digits" / "new.rec").unlink()
    user.dtctl("replace", "gpu-3", "--yes", timeout_s=150)
    here = {host.name for host in fleet.hosts if (host.home / "digits" / "train" / "2.rec").exists()}
    places = json.loads(user.dtctl("data", "-o", "json"))["places"]
    assert [(one["host"], one["state"]) for one in places] == [(f"gpu-{number}", "complete") for number in (2, 3, 4)]
    assert user.task("worker:1")["host"] == "gpu-4"
    assert here >= {"gpu-2", "gpu-3", "gpu-4"}
    user.dtctl("down", "--yes")
    assert user.dtctl("data", "drop", "--yes").splitlines() == ["gpu-[2-4]: ~/digits: 3 files removed, 27 B"]


def test_with_a_narrow_uplink_the_controller_sends_data_once(user: Desk, fleet: Fleet) -> None:
    (user.project / "digits").mkdir()
    size = SPARED_BYTES // 16
    for number in range(4):
        (user.project / "digits" / f"{number}.rec").write_bytes(random.Random(number).randbytes(size))
    hosts = "hosts:\n  gpu-[1-5]:\nssh: {connect_timeout: 3s}\n"
    jobs = '{worker: {hosts: "gpu-[1-5]"}}'
    user.write_cluster(cluster_text(jobs=jobs, dirs="{data: ~/digits}", data="{from: digits}"), hosts=hosts)
    user.dtctl("data", "status")
    with fleet.network.narrow_uplink(100) as sent_bytes:
        assert user.dtctl("data", "push").splitlines() == ["gpu-[1-5]: ~/digits: 4 files sent"]
        assert 4 * size < sent_bytes() < 5 * size, "20 files were needed"
    assert "gpu-[1-5]  ~/digits   complete: 4 files" in user.dtctl("data", "verify")
