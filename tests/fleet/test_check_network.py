"""The findings of `dtctl check` about the network between separate hosts, before anything starts."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest

from tests.desk import Desk, cluster_text
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.hosts.network import ip
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

HOSTS = "hosts:\n" + "".join(f"  gpu-{number}: {{address: gpu-{number}}}\n" for number in range(1, 6))


def write(user: Desk, env: str = "{}", hosts: str = HOSTS) -> None:
    jobs = '{ps: {hosts: [gpu-1]}, worker: {hosts: "gpu-[2-5]"}}'
    trainer = f"command: [python, stand_in.py], dialect: flags, env: {env}"
    user.write_cluster(cluster_text(jobs=jobs, trainer=trainer), hosts=hosts)


def check(user: Desk, *words: str) -> dict[str, dict[str, Any]]:
    """The names of the signatures that were found, of this topic and of SSH."""
    done = user.run("check", "-o", "json", *words)
    reported = json.loads(done.stdout)
    assert reported["errors"] == []
    assert (done.returncode == 5) == bool(reported["problems"]), done.stderr
    return {one["signature"]: one for one in [*reported["problems"], *reported["warnings"]]}


def test_check_reports_several_faults_at_once_with_their_hosts(user: Desk, fleet: Fleet) -> None:
    write(user)
    with ExitStack() as wrong:
        wrong.enter_context(faults.shut(fleet["gpu-2"], "2222"))
        wrong.enter_context(faults.name_stands_for(fleet["gpu-3"], "gpu-1", "127.0.1.1"))
        wrong.enter_context(taken(fleet["gpu-4"], 2222))
        wrong.enter_context(
            log_in_with(fleet["gpu-5"], "export http_proxy=http://me:hunter2@proxy.lab:3128; echo hello")
        )
        shown = user.run("check")
        found = check(user)
    assert found["firewall_in"]["hosts"] == ["gpu-2"]
    assert found["firewall_in"]["fields"]["dropped_s"] > 0
    assert (found["loopback_name"]["hosts"], found["loopback_name"]["fields"]["others"]) == (["gpu-3"], ["gpu-1"])
    assert found["port_taken"]["hosts"] == ["gpu-4"]
    assert found["port_taken"]["tasks"] == ["worker:2"]
    assert found["proxy_left_out"]["hosts"] == found["noisy_start_up"]["hosts"] == ["gpu-5"]
    assert found["exposed"]["fields"]["seen_from"] == fleet.network.gateway
    assert shown.returncode == 5
    assert "no host reaches port 2222 of gpu-2" in shown.stdout
    assert "gpu-3 resolves gpu-1 to 127.0.1.1" in shown.stdout
    assert "can run code there as your user" in shown.stdout
    assert "hunter2" not in shown.stdout
    eventually_free(fleet)


def eventually_free(fleet: Fleet) -> None:
    """Checks that neither a process nor a port of a check remains."""
    assert not any("dtctl" in command for commands in fleet.busy().values() for command in commands)
    for host in fleet.hosts:
        assert ":2222" not in host.exec("ss", "-Hltn")


Injected = Callable[[Fleet], AbstractContextManager[None]]
PORTS = "2221:2299"


def shut(ports: str, how: str = "DROP", *, source: str = "", chain: str = "INPUT") -> tuple[str, Injected]:
    """Closes the firewall of gpu-2; `source`: for this host alone."""

    def inject(fleet: Fleet) -> AbstractContextManager[None]:
        return faults.shut(fleet["gpu-2"], ports, how, source=source and fleet[source].address, chain=chain)

    return "gpu-2", inject


def stands_for(name: str, other: str) -> tuple[str, Injected]:
    """Maps a name on gpu-3; `other`: an address, or the host that has it."""
    return "gpu-3", lambda fleet: faults.name_stands_for(
        fleet["gpu-3"], name, fleet[other].address if other.startswith("gpu") else other
    )


FAULTS = {
    "a firewall that drops what comes in": (shut(PORTS), "firewall_in"),
    "a firewall that rejects what comes in": (shut(PORTS, "REJECT"), "firewall_in"),
    "a firewall that drops what goes out": (shut(PORTS, chain="OUTPUT"), "firewall_out"),
    "one direction between two hosts": (shut(PORTS, source="gpu-3"), "one_way"),
    "large packets that are lost": (
        ("gpu-2", lambda fleet: faults.without_large_packets(fleet["gpu-2"], PORTS)),
        "large_packets",
    ),
    "the coordinator's port alone": (shut("2221"), "firewall_in"),
    "a name of another host that is loopback": (stands_for("gpu-1", "127.0.1.1"), "loopback_name"),
    "the own name that is loopback": (stands_for("gpu-3", "127.0.1.1"), "own_loopback"),
    "a name that is of another host": (stands_for("gpu-1", "gpu-4"), "other_address"),
    "a name that nobody has": (stands_for("nobody", "gpu-1"), ""),
}


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_network_is_found_and_no_other(user: Desk, fleet: Fleet, fault: str) -> None:
    (host, inject), signature = FAULTS[fault]
    write(user)
    assert set(check(user)) == {"exposed"}
    with inject(fleet):
        found = check(user)
    assert set(found) == {"exposed", *filter(None, [signature])}
    if signature:
        assert found[signature]["hosts"] == [host]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["iptables", "nftables"])
def test_the_printed_firewall_rules_admit_the_hosts_alone(user: Desk, fleet: Fleet, kind: str) -> None:
    if kind == "nftables" and shutil.which("nft") is None:
        pytest.skip("nft (Debian: nftables) not found")
    write(user, hosts="hosts:\n  gpu-[1-5]:\n")
    refused = user.run("up", "--require-private")
    assert refused.returncode == 5
    assert "strangers reach the ports of tasks on gpu-[1-5]" in refused.stderr
    reported = json.loads(user.dtctl("check", "--print-firewall", kind, "-o", "json"))
    with ExitStack() as loaded:
        for block in reported["rules"]:
            for name in block["hosts"]:
                loaded.enter_context(rules(fleet[name], kind, block))
        assert check(user) == {}
        assert "none of 5 task ports answers this machine" in user.dtctl("check")
        with taken(fleet["gpu-4"], 2222):
            refused = user.run("up", "--require-private")
            assert refused.returncode == 5, "the rules admit the tested ports alone"
            assert "2222" in refused.stderr
            assert not [one for host in fleet.hosts for one in host.processes() if "stand_in" in one]
        user.dtctl("up", "--require-private")
        user.dtctl("stop")


@pytest.mark.nightly
def test_a_host_with_a_slow_link_is_reported_with_the_cause(user: Desk, fleet: Fleet) -> None:
    """Others may be reported, too: all five share two processors with other tests."""
    write(user)
    with slow_link(fleet["gpu-4"]):
        reported = json.loads(user.dtctl("check", "--deep", "-o", "json", code=None))
    slow_named = ("host_exchanges_slowly", ["gpu-4"])
    (slow,) = (one for one in reported["warnings"] if (one["signature"], one["hosts"]) == slow_named)
    assert slow["fields"]["sent_bytes"] < 20e6 < slow["fields"]["usual_sent_bytes"]
    assert (slow["fields"]["queue"], slow["fields"]["usual_queue"]) == ("tbf", "noqueue")


@contextmanager
def slow_link(host: FleetHost) -> Iterator[None]:
    """Limits the host to sending 80 Mbit/s."""
    words = ["ip", "netns", "exec", host.box.netns, "tc", "qdisc"]
    shape = [*words, "add", "dev", "eth0", "root", "tbf", "rate", "80mbit", "burst", "64kb", "latency", "50ms"]
    done = subprocess.run(shape, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no tbf in this kernel: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run([*words, "del", "dev", "eth0", "root"], check=True)


@contextmanager
def taken(host: FleetHost, port: int) -> Iterator[None]:
    """As faults.taken_port, with a listener from the start."""
    with faults.taken_port(host, port):
        eventually(lambda: f":{port}" in host.exec("ss", "-Hltn"), what="somebody to listen")
        yield


@contextmanager
def log_in_with(host: FleetHost, line: str) -> Iterator[None]:
    """Adds a line to the start-up file of a login."""
    (host.home / ".bashrc").write_text(line + "\n")
    try:
        yield
    finally:
        (host.home / ".bashrc").unlink()


@contextmanager
def rules(host: FleetHost, kind: str, block: Mapping[str, Any]) -> Iterator[None]:
    """The rules, loaded in the host's network as its root would load them, twice, and removed on request."""
    inside = ["ip", "netns", "exec", host.box.netns]
    words, look = {
        "iptables": (["sh", "-e"], ["sh", "-c", "iptables -S; ip6tables -S"]),
        "nftables": (["nft", "-f", "-"], ["nft", "list", "ruleset"]),
    }[kind]
    for _ in range(2):
        subprocess.run([*inside, *words], input="\n".join(block["lines"]), text=True, check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, "sh", "-e"], input="\n".join(block["undo"]), text=True, check=True)
        assert "dtctl" not in ip("netns", "exec", host.box.netns, *look).lower()
