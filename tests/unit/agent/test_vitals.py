"""What the agent samples of its host and of processes, and finds beside a Python."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dtctl.agent.host import machine, processes
from dtctl.agent.records.kinds import checked
from dtctl.agent.records.vitals import Machine
from dtctl.agent.rooms.diagnose import serving as health
from dtctl.agent.rooms.network.records import Peer
from dtctl.agent.vitals import machine_load, usage
from dtctl.agent.vitals.machine_load import MachineLoad, presses
from dtctl.agent.vitals.usage import Others, Quota, Usage


def test_a_busy_process_is_reported_with_its_processors_and_memory() -> None:
    usage = Usage(os.getpid())
    usage.sample(time.monotonic())
    assert usage.cpu is None
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    usage.sample(time.monotonic())
    assert usage.cpu is not None
    assert usage.cpu > 0
    assert usage.memory_bytes is not None
    assert usage.memory_bytes > 1 << 20


STAT = "7 (python) %s 1 7 7 0 -1 4 0 0 0 0 %d 0 0 0 20 0 1 0 99 1000 10"
IDLE: dict[str, object] = {"state": "S", "ticks": 0, "io": "rchar: 0\nwchar: 0", "received": 0}


@pytest.mark.parametrize(
    ("later", "works"),
    [
        ({}, False),
        ({"ticks": 9, "received": 80_000}, False),
        ({"ticks": 10}, True),
        ({"state": "R"}, True),
        ({"state": "D"}, True),
        ({"io": "rchar: 80000\nwchar: 2000"}, True),
        ({"received": 82_000}, True),
    ],
    ids=["nothing", "heartbeats", "a processor", "waits for a processor", "waits for a disk", "reads", "receives"],
)
def test_task_with_cpu_disk_or_network_activity_is_active(
    monkeypatch: pytest.MonkeyPatch, later: dict[str, object], works: bool
) -> None:
    now = {**IDLE}
    net = "Inter-| Receive\n face |bytes\n    lo: 999999999 1\n  eth0: %d 1\n"
    files: dict[str, Callable[[], str]] = {
        "stat": lambda: STAT % (now["state"], now["ticks"]),
        "io": lambda: str(now["io"]),
        "net/dev": lambda: net % now["received"],
    }
    monkeypatch.setattr(processes, "_read_proc", lambda _, name: files[name]().encode() if name in files else b"")
    usage = Usage(7)
    usage.sample(100.0)
    assert usage.works is None
    now.update(later)
    usage.sample(105.0)
    assert usage.works is works


def test_ended_process_has_no_facts() -> None:
    usage = Usage(2**22 - 1)
    usage.sample(1.0)
    usage.sample(2.0)
    assert (usage.cpu, usage.memory_bytes, usage.works) == (None, None, None)


def test_a_sample_of_the_machine_holds() -> None:
    load = MachineLoad()
    load.sample(1.0)
    sample = checked(Machine, load.sample(2.0))
    assert sample["cpus"] >= 1
    assert sample["memory_bytes"] > sample["available_bytes"] > 0


@pytest.mark.parametrize(("free", "full"), [(0, True), (900, False)])
def test_a_full_disk_of_the_run_is_news_of_its_agent(free: int, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = os.statvfs_result((4096, 4096, 1000, free, free, 10, 9, 9, 0, 255))
    monkeypatch.setattr(machine_load, "_disk", lambda place: (1, disk))
    sample = checked(Machine, MachineLoad().sample(2.0, "/run"))
    assert (sample["full"] is not None) is full
    assert ("full" in presses(sample)) is full


FILES = {
    "/proc/stat": "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n",
    "/proc/meminfo": "MemTotal:       1000 kB\nMemAvailable:    250 kB\nHugePages_Total:       0\n",
    "/proc/net/snmp": "Tcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 1000 10\n",
    "/proc/pressure/cpu": "some avg10=45.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 total=0\n",
}
LATER = {
    **FILES,
    "/proc/stat": "cpu  150 0 100 730 100 0 0 20 0 0\n",
    "/proc/net/snmp": "Tcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 2000 110\n",
}


def test_shares_are_those_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    load = MachineLoad()
    monkeypatch.setattr(machine, "text", lambda path: FILES.get(path, ""))
    load.sample(1.0)
    monkeypatch.setattr(machine, "text", lambda path: LATER.get(path, ""))
    sample = load.sample(2.0)
    assert (sample["busy"], sample["stolen"], sample["resent"]) == (0.5, 0.2, 0.1)
    assert (sample["memory_bytes"], sample["available_bytes"]) == (1000 * 1024, 250 * 1024)
    assert sample["waiting"] == {"cpu": 0.455, "memory": None, "io": None}
    assert presses(sample) == ["cpu"]


def test_old_kernel_omits_some_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    load = MachineLoad()
    monkeypatch.setattr(machine, "text", lambda path: "")
    load.sample(1.0)
    sample = checked(Machine, load.sample(2.0))
    assert (sample["busy"], sample["resent"], sample["waiting"]["cpu"]) == (None, None, None)
    assert presses(sample) == []


def test_versions_are_read_from_the_names_beside_a_python(tmp_path: Path) -> None:
    site = tmp_path / "venv/lib/python3.11/site-packages"
    for name in ("tensorflow-2.21.0", "Keras-3.15.1", "tf_keras-2.21.0", "requests-2.0", "numpy-2.0.0rc1"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").touch()
    found = machine_load.package_versions(str(tmp_path / "venv/bin/python"), str(tmp_path))
    assert found == {"tensorflow": "2.21.0", "keras": "3.15.1", "tf-keras": "2.21.0", "numpy": "2.0.0rc1"}


def test_python_is_managed_by_the_system_unless_it_is_an_environment(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/python3.12").mkdir(parents=True)
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/python3").touch()
    python = str(tmp_path / "usr/bin/python3")
    assert not machine_load.is_managed(python)
    (tmp_path / "usr/lib/python3.12/EXTERNALLY-MANAGED").touch()
    assert machine_load.is_managed(python)
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").touch()
    (tmp_path / "venv/bin/python").symlink_to(python)
    assert not machine_load.is_managed(str(tmp_path / "venv/bin/python"))


def peers(addresses: Mapping[str, str]) -> list[Peer]:
    return [{"whose": task, "host": "b", "address": address, "live": True} for task, address in addresses.items()]


def test_an_address_that_listens_is_reached_and_one_that_does_not_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        addresses = {
            "ps:0": f"127.0.0.1:{listening.getsockname()[1]}",
            "ps:1": f"127.0.0.1:{silent.getsockname()[1]}",
            "ps:2": "no-such-host.invalid:2222",
        }
        found = {one["task"]: one["problem"] for one in health.unreached(peers(addresses), 5.0)}
    assert found == {"ps:1": "refused", "ps:2": "unresolved"}


def test_a_way_that_swallows_everything_is_reported_after_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for one in fillers:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        found = health.unreached(peers({"ps:0": f"127.0.0.1:{port}"}), 0.3)
        for one in fillers:
            one.close()
    assert [one["problem"] for one in found] == ["timeout"]


def test_processes_of_others_that_do_nothing_are_not_reported() -> None:
    others = Others(time.monotonic())
    assert all(one["pid"] != os.getpid() for one in others.busy(time.monotonic() + 1.0, {os.getpid()}))


V1 = "4:memory:/box\n1:cpu,cpuacct:/slice/job\n0::/\n"


@pytest.mark.parametrize(("cgroups", "group"), [(V1, "cpu,cpuacct/slice"), ("0::/slice/job\n", "slice")])
def test_a_process_whose_group_or_one_above_is_out_of_time_is_throttled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cgroups: str, group: str
) -> None:
    (tmp_path / group / "job").mkdir(parents=True)
    (tmp_path / group / "job" / "cpu.stat").write_text("nr_periods 0\nnr_throttled 0\n")
    stat = tmp_path / group / "cpu.stat"
    stat.write_text("usage_usec 5\nnr_periods 100\nnr_throttled 90\n")
    monkeypatch.setattr(usage, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(processes, "proc_text", lambda _, name: cgroups if name == "cgroup" else "")
    looks = Quota(7)
    assert looks.sample() is None
    stat.write_text("usage_usec 9\nnr_periods 150\nnr_throttled 110\n")
    assert looks.sample() == 0.4
    assert looks.sample() is None
    stat.unlink()
    assert looks.sample() is None


@pytest.mark.parametrize("cgroups", ["", "0::/../../up\n", "3:cpuset:/slice\n", "0::/\n", "nonsense\n"])
def test_one_without_a_group_of_its_own_is_limited_by_nothing(monkeypatch: pytest.MonkeyPatch, cgroups: str) -> None:
    monkeypatch.setattr(processes, "proc_text", lambda _, name: cgroups)
    looks = Quota(7)
    assert (looks.sample(), looks.sample()) == (None, None)
