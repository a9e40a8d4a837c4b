"""`dtctl check` on eight hosts that all have something else wrong with them, at once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.fleet.test_check import TRAIN, make_environment
from tests.fleet.test_check_network import log_in_with, taken
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost, module_fleet

pytestmark = [pytest.mark.fleet, pytest.mark.nightly, pytest.mark.timeout(600)]

CLUSTER = cluster_text(
    ssh="{connect_timeout: 5s}",
    jobs='{ps: {hosts: "gpu-[1-2]"}, worker: {hosts: "gpu-[3-8]"}}',
    trainer="command: [python, train.py], venv: ~/venv",
    dirs="{output: ~/saved}",
)
HOSTS = "hosts:\n" + "".join(f"  gpu-{number}: {{address: gpu-{number}}}\n" for number in range(1, 9))
VERSIONS = {"gpu-8": "", "gpu-2": "2.19.0"}


eight = module_fleet(8)


@pytest.fixture
def user(eight: Fleet, tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home", elsewhere=eight.busy) as made:
        made.write_ssh_config(eight.ssh_config.read_text())
        made.write_cluster(CLUSTER, hosts=HOSTS)
        (made.project / "train.py").write_text(TRAIN)
        for host in eight.hosts:
            make_environment(host, VERSIONS.get(host.name, "2.21.0"))
        yield made
    eight.restore()


@contextmanager
def everything(fleet: Fleet) -> Iterator[None]:
    with ExitStack() as wrong:
        wrong.enter_context(faults.shut(fleet["gpu-4"], "2222", source=fleet["gpu-5"].address))
        wrong.enter_context(faults.name_stands_for(fleet["gpu-5"], "gpu-1", "127.0.1.1"))
        wrong.enter_context(faults.shut(fleet["gpu-6"], "2222", "REJECT"))
        wrong.enter_context(taken(fleet["gpu-7"], 2222))
        wrong.enter_context(log_in_with(fleet["gpu-8"], "export http_proxy=http://proxy.lab:3128"))
        wrong.enter_context(faults.small_disk(fleet["gpu-1"], "saved", 4))
        wrong.enter_context(faults.full_disk(fleet["gpu-1"], "saved"))
        wrong.enter_context(faults.clock_of_its_own(fleet["gpu-2"])).write_text("300")
        yield


NAMED = "host_exchanges_slowly"

FOUND = {
    "one_way": ["gpu-4"],
    "loopback_name": ["gpu-5"],
    "firewall_in": ["gpu-6"],
    "port_taken": ["gpu-7"],
    "modules_missing": ["gpu-8"],
    "framework_differs": ["gpu-2"],
    "clock_wrong": ["gpu-2"],
    "checkpoints_not_shared": ["gpu-1", "gpu-2"],
    "disk_full_before": ["gpu-1"],
    "proxy_left_out": ["gpu-8"],
    "exposed": [f"gpu-{number}" for number in (1, 2, 3, 4, 5, 8)],
}


def findings(user: Desk, *words: str) -> dict[str, dict[str, Any]]:
    """By signature; of several of one kind the first, which is that of the earliest host."""
    told = json.loads(user.dtctl("check", "-o", "json", *words, code=None))
    assert told["errors"] == []
    return {one["signature"]: one for one in reversed([*told["problems"], *told["warnings"]])}


def test_each_of_nine_faults_is_found_beside_the_others_and_nothing_else(user: Desk, eight: Fleet) -> None:
    with everything(eight):
        found = findings(user)
        shown = user.run("check")
    assert {name: one["hosts"] for name, one in found.items()} == FOUND
    assert found["one_way"]["fields"]["others"] == ["gpu-5"]
    assert found["loopback_name"]["fields"]["others"] == ["gpu-1"]
    assert shown.returncode == 5
    kinds = [line.partition(":")[0] for line in shown.stdout.splitlines() if line.startswith(("problem:", "warning:"))]
    assert kinds == sorted(kinds)  # what the run fails of comes first
    for remedy in (one for each in found.values() for one in each["remedies"] if "{" in one):
        raise AssertionError(remedy)


def test_a_host_with_a_slow_link_is_named_with_what_holds_its_packets_back(user: Desk, eight: Fleet) -> None:
    """Others may be named, too: all eight share two processors with other tests."""
    with slow_link(eight["gpu-6"]):
        told = json.loads(user.dtctl("check", "--deep", "-o", "json", code=None))
    (slow,) = (one for one in told["warnings"] if (one["signature"], one["hosts"]) == (NAMED, ["gpu-6"]))
    assert slow["fields"]["sent_bytes"] < 20e6 < slow["fields"]["usual_sent_bytes"]
    assert (slow["fields"]["queue"], slow["fields"]["usual_queue"]) == ("tbf", "noqueue")


@contextmanager
def slow_link(host: FleetHost) -> Iterator[None]:
    """It sends at most 80 Mbit/s."""
    words = ["ip", "netns", "exec", host.box.netns, "tc", "qdisc"]
    shape = [*words, "add", "dev", "eth0", "root", "tbf", "rate", "80mbit", "burst", "64kb", "latency", "50ms"]
    done = subprocess.run(shape, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no tbf in this kernel: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run([*words, "del", "dev", "eth0", "root"], check=True)
