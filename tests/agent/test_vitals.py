"""How GPUs are read: by a library of the tests' own, which answers, hangs and crashes as it is asked, and by sysfs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.vitals import Gpus as GpusRecord
from dtctl.agent.vitals import drivers, gpus
from dtctl.agent.vitals.gpus import Reader
from tests.agent.host import AgentHost, shell, task
from tests.hosts.gpus import GB, Gpus, gpu
from tests.waiting import PATIENCE_S, eventually

EVERY_S = 0.1


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    found = Gpus(tmp_path, gpu())
    monkeypatch.setattr(drivers, "_PLACES", (found.env["LD_LIBRARY_PATH"] + "/",))
    monkeypatch.setenv("FAKE_NVML", found.env["FAKE_NVML"])
    return found


@pytest.fixture
def reader() -> Iterator[Reader]:
    """Of a host on which a task may use GPU 0."""
    found = Reader([task("worker:0", "true", env={"CUDA_VISIBLE_DEVICES": "0"})], EVERY_S)  # type: ignore[list-item]
    yield found
    found.close()


def known(reader: Reader, **wanted: Any) -> Any:
    """What it knows once the first GPU, or all, is so."""

    def arrived() -> GpusRecord | None:
        found = reader.read(time.monotonic())
        every: Any = {**found, **(found["each"][0] if found["each"] else {})} if found is not None else {}
        return found if wanted.items() <= every.items() else None

    return eventually(arrived, what=f"{wanted} of the GPUs")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            gpu(busy=97, degrees=71),
            {"busy": 0.97, "degrees": 71, "lost": False, "given": ["worker:0"], "throttled": []},
        ),
        (
            gpu("T4", used=GB, total=2 * GB),
            {"name": "T4", "used_bytes": GB, "memory_bytes": 2 * GB, "driver": "550.54"},
        ),
        (gpu(clock=300, throttled=0x4), {"clock_mhz": 300, "most_clock_mhz": 1410, "throttled": ["power_cap"]}),
        (gpu(throttled=0x48), {"throttled": ["thermal", "hardware"]}),
        (gpu(throttled=0x80), {"throttled": ["power_brake"]}),
        (gpu(throttled=0x1), {"throttled": []}),
        (gpu(ecc=3), {"ecc_errors": 3, "xid": None}),
        (gpu(xid=48), {"xid": 48, "lost": False}),
        (gpu(lost=True, xid=79), {"lost": True, "memory_bytes": 0}),
        ("init 9", {"problem": "no_driver", "text": "Driver Not Loaded", "each": []}),
        ("init 18", {"problem": "error", "text": "Driver/library version mismatch"}),
        ("", {"problem": "no_driver", "text": "the driver finds no GPU"}),
    ],
)
def test_facts_of_the_driver_are_reported(fake: Gpus, reader: Reader, line: str, shown: dict[str, Any]) -> None:
    fake.are(line)
    assert known(reader, **shown)


def test_a_gpu_that_falls_off_the_bus_is_lost_and_the_others_stay_known(fake: Gpus, reader: Reader) -> None:
    fake.are(gpu(), gpu("second"))
    known(reader, lost=False)
    fake.are(gpu(lost=True, xid=79), gpu("second", busy=50))
    found = known(reader, lost=True, xid=79)
    assert [(one["lost"], one["name"]) for one in found["each"]] == [(True, ""), (False, "second")]


def test_a_gpu_that_a_task_is_given_and_that_is_not_there_is_lost(fake: Gpus) -> None:
    reader = Reader([task("worker:0", "true", env={"CUDA_VISIBLE_DEVICES": "0,3"})], EVERY_S)  # type: ignore[list-item]
    found = known(reader, lost=False)
    reader.close()
    assert [(one["index"], one["lost"], one["given"]) for one in found["each"]] == [
        (0, False, ["worker:0"]),
        (3, True, ["worker:0"]),
    ]


@pytest.mark.parametrize("function", ["nvmlInit_v2", "nvmlDeviceGetUtilizationRates", "nvmlEventSetWait_v2"])
def test_hanging_library_delays_no_task_and_is_tried_again(
    fake: Gpus, reader: Reader, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setattr(gpus, "SILENT_S", 0.5)
    monkeypatch.setattr(gpus, "RETRY_S", 0.2)
    fake.are(gpu(), f"hang {function}")
    slowest = 0.0

    def look() -> bool:
        nonlocal slowest
        began = time.monotonic()
        found = reader.read(began)
        slowest = max(slowest, time.monotonic() - began)
        return found is not None and found["problem"] == "silent"

    eventually(look, what="a silent driver")
    assert slowest < 0.25
    fake.are(gpu())
    assert known(reader, problem="", lost=False)


def test_crashing_library_ends_no_other_process(fake: Gpus, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "RETRY_S", 0.2)
    fake.are(gpu(), "crash nvmlDeviceGetTemperature")
    assert known(reader, problem="error", each=[])
    fake.are(gpu())
    assert known(reader, problem="", lost=False)


def test_where_there_is_no_driver_and_no_task_is_given_a_gpu_nothing_is_started(
    fake: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_DRIVERS", ())
    reader = Reader([task("worker:0", "true")])  # type: ignore[list-item]
    assert reader.read(time.monotonic()) is None
    assert reader._pid is None


def test_a_session_waits_for_a_silent_driver_no_longer_than_it_wants(fake: Gpus) -> None:
    fake.are("hang nvmlInit_v2")
    began = time.monotonic()
    assert Reader().wait(0.5)["problem"] == "silent"
    assert time.monotonic() - began < PATIENCE_S


CARD = {"vendor": "0x1002", "mem_info_vram_total": "1000", "mem_info_vram_used": "250", "gpu_busy_percent": "75"}


def test_gpus_of_amd_are_read_from_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Reader) -> None:
    files = {f"devices/gpu{card}/{name}": value for card in "01" for name, value in CARD.items()}
    files |= {"devices/gpu1/hwmon/hwmon3/temp1_input": "64000", "devices/gpu1/hwmon/hwmon3/freq1_input": "1700000000"}
    files |= {"devices/intel/vendor": "0x8086", "module/amdgpu/version": "6.7.0"}
    node = "class/kfd/kfd/topology/nodes/2"
    files |= {f"{node}/properties": "location_id 9\ndrm_render_minor 129\n", f"{node}/gpu_id": "4711"}
    files[f"class/kfd/kfd/proc/{os.getpid()}/vram_4711"] = "200"
    links = {"card0": "gpu0", "card1": "gpu1", "card2": "intel", "renderD128": "gpu0", "renderD129": "gpu1"}
    for name, value in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(value + "\n")
    for name, device in links.items():
        (tmp_path / "class/drm" / name).mkdir(parents=True)
        (tmp_path / "class/drm" / name / "device").symlink_to(tmp_path / "devices" / device)
    monkeypatch.setattr(drivers, "SYSFS", str(tmp_path))
    monkeypatch.setattr(drivers, "_PLACES", (str(tmp_path) + "/",))
    first, second = known(reader, busy=0.75)["each"]
    assert (first["used_bytes"], first["memory_bytes"], first["degrees"], first["users"]) == (250, 1000, None, [])
    assert (second["degrees"], second["clock_mhz"], second["driver"]) == (64, 1700, "6.7.0")
    assert [(one["pid"], one["used_bytes"]) for one in second["users"]] == [(os.getpid(), 200)]


def test_state_names_the_tasks_on_a_gpu_and_a_hung_driver_delays_no_stop(host: AgentHost, tmp_path: Path) -> None:
    fake = Gpus(tmp_path, gpu())
    host.env.update(fake.env)
    spec, pid = host.running(shell("worker:0", "sleep 1000 & wait", env={"CUDA_VISIBLE_DEVICES": "0"}))
    fake.are(gpu(users={pid: GB, os.getpid(): 2 * GB}))

    def users() -> list[Any]:
        machine = host.state(spec)["machine"]
        return machine["gpus"]["each"][0]["users"] if machine and machine["gpus"] else []

    trainer, stranger = eventually(users, 60.0, "the users of the GPU") or [None, None]
    assert (trainer["pid"], trainer["run"], trainer["task"]) == (pid, spec["run"], "worker:0")
    assert (stranger["pid"], stranger["run"], stranger["used_bytes"]) == (os.getpid(), None, 2 * GB)
    assert host.ask("diagnose")["machine"]["gpus"]["each"][0]["given"] == ["worker:0"]
    fake.are(gpu(), "hang nvmlDeviceGetUtilizationRates")
    sampled = host.state(spec)["machine"]["time"]
    host.want(spec, "worker:0", want="stop", grace_s=5.0)
    host.wait_state(spec, "worker:0", "stopped")
    eventually(lambda: host.state(spec)["finished"] or host.state(spec)["machine"]["time"] > sampled)
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_the_reader_ends_with_its_agent(host: AgentHost, tmp_path: Path) -> None:
    host.env.update(Gpus(tmp_path, "hang nvmlInit_v2").env)
    spec = host.started(task("worker:0", "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": "0"}))
    readers = eventually(lambda: _readers(host), what="the process that reads GPUs") or []
    os.kill(host.supervisor(spec), signal.SIGKILL)
    eventually(lambda: not set(readers) & set(host.processes()), what="its end")


def _readers(host: AgentHost) -> list[int]:
    return [pid for pid in host.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == "dtctl-gpus"]


SAYS = "echo step 1; echo UNAVAILABLE: no way to /job:ps/replica:0/task:0 by hunter2; exec sleep 1000"


def test_an_agent_reports_the_vitals_of_its_host_and_tasks(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"), dirs=["\0HOME/out"])
    pid = host.wait_entry(spec, "worker:0", lambda entry: entry["pid"])["pid"]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: host.ask("diagnose")["tasks"]["worker:0"]["frozen"], what="a frozen task")
    answer = host.ask("diagnose")
    assert answer["run"] == spec["run"]
    assert answer["machine"]["memory_bytes"] >= answer["machine"]["available_bytes"] > 0
    assert answer["disks"][0]["size_bytes"] > 0
    assert answer["unreached"] == []
    only = answer["tasks"]["worker:0"]
    assert only["memory_bytes"] > 0
    assert only["cpu"] is not None
    assert only["python"].endswith("/sleep")
    assert pid not in [one["pid"] for one in answer["busy"]]
    os.kill(pid, signal.SIGCONT)


def test_an_error_line_is_kept_until_a_step_with_secrets_masked(host: AgentHost) -> None:
    spec = host.spec(shell("worker:0", SAYS, secrets=["PASSWORD"]))
    host.up(spec, secrets={"PASSWORD": "hunter2"})
    entry = host.wait_entry(spec, "worker:0", lambda entry: entry["complaint"])
    assert entry["complaint"]["text"] == "UNAVAILABLE: no way to /job:ps/replica:0/task:0 by ***"
    entry = host.wait_entry(spec, "worker:0", lambda entry: entry["cpu"] is not None)
    assert entry["memory_bytes"] > 0
    assert host.state(spec)["machine"]["cpus"] >= 1
    assert "hunter2" not in str(host.ask("diagnose"))


def test_the_log_of_a_lost_attempt_is_reported_while_the_next_one_runs(host: AgentHost) -> None:
    script = "[ $DTCTL_ATTEMPT = 1 ] && { echo odd words of $PASSWORD; exit 3; }; echo well; exec sleep 1000"
    recovery = {"max_restarts": 5, "backoff_min_s": 0.05, "backoff_max_s": 0.2, "reset_after_s": 600}
    spec = host.spec(shell("worker:0", script, secrets=["PASSWORD"]), recovery=recovery)
    host.up(spec, secrets={"PASSWORD": "hunter2"})
    host.wait_entry(spec, "worker:0", lambda entry: entry["attempt"] == 2 and entry["state"] == "running")
    answer = eventually(lambda: host.ask("diagnose")["tasks"]["worker:0"], what="an answer")
    assert answer["lost_log"] == "odd words of ***"
    assert "odd words" not in answer["log"]
