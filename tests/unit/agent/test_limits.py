"""Which limits and which full disks may have ended a program."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import limits, machine
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Ending
from dtctl.agent.supervise import autopsy
from dtctl.agent.vitals import machine_load

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              60                   unlimited            seconds
Max file size             2048                 unlimited            bytes
Max data size             unlimited            unlimited            bytes
Max processes             126917               126917               processes
Max open files            1024                 1048576              files
Max address space         419430400            unlimited            bytes
"""


def limit(option: str, value: int, text: str) -> Any:
    return {"option": option, "value": value, "text": text}


CPU = limit("-t", 60, "60 s")
ADDRESSES, PROCESSES, FILES, SIZE = (
    limit("-v", 419430400, "409600 kB"),
    limit("-u", 126917, "126917"),
    limit("-n", 1024, "1024"),
    limit("-f", 2048, "2 kB"),
)


def test_the_limits_of_a_process_are_those_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "text", lambda path: LIMITS if path == "/proc/7/limits" else "")
    assert limits.limits_of(7) == [CPU, SIZE, PROCESSES, FILES, ADDRESSES]
    assert limits.soft_limits(7) == {"-t": 60, "-f": 2048, "-u": 126917, "-n": 1024, "-v": 419430400}
    assert limits.limits_of(8) == []


@pytest.mark.parametrize(
    ("cause", "may_be"),
    [
        ("MemoryError", [ADDRESSES]),
        ("RuntimeError: can't start new thread", [PROCESSES, ADDRESSES]),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", [PROCESSES, ADDRESSES]),
        ("OSError: [Errno 24] Too many open files: 'x'", [FILES]),
        ("OSError: [Errno 27] File too large", [SIZE]),
        ("ValueError: bad", []),
        ("", []),
    ],
)
def test_a_limit_is_named_if_it_may_be_the_cause(cause: str, may_be: list[Any]) -> None:
    assert limits.met([SIZE, PROCESSES, FILES, ADDRESSES], cause) == may_be


@pytest.mark.parametrize(
    ("number", "cpu_s", "may_be"),
    [
        (signal.SIGXCPU, 59.0, [limit("-t", 59, "59 s")]),
        (signal.SIGXCPU, None, [limit("-t", 59, "59 s")]),
        (signal.SIGXFSZ, 1.0, [SIZE]),
        (signal.SIGKILL, 60.0, [CPU]),
        (signal.SIGKILL, 37.2, [CPU]),
        (signal.SIGKILL, 29.0, []),
        (signal.SIGKILL, None, []),
        (signal.SIGTERM, 61.0, []),
    ],
)
def test_a_limit_is_named_by_the_signal_with_which_it_ends(number: int, cpu_s: float | None, may_be: list[Any]) -> None:
    assert limits.met([CPU, SIZE, ADDRESSES], "", number, cpu_s) == may_be


@pytest.mark.parametrize(("oom_kills", "may_be"), [(0, [CPU]), (1, [])])
def test_a_limit_of_cpu_time_is_not_named_beside_an_oom_kill(oom_kills: int, may_be: list[Any]) -> None:
    ended = made(Ending, signal=int(signal.SIGKILL), cpu_s=61.0, limits=[CPU])
    assert autopsy._met(ended, "", oom_kills) == may_be


NO_ROOM = "OSError: [Errno 28] No space left on device"


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """Free bytes of each mount of a machine; of those that are not named there is enough."""
    free: dict[str, int] = {}

    def mount(path: str) -> str:
        return max((one for one in free if path.startswith(one)), key=len, default="/")

    def disks_of(places: list[str]) -> Any:
        found = [{"path": one, "free_bytes": free.get(mount(one), 10**9), "size_bytes": 2 * 10**9, "free_files": 9}
                 for one in places]  # fmt: skip
        return found, []

    monkeypatch.setattr(machine_load, "disks_of", disks_of)
    monkeypatch.setattr(machine_load, "_mount", mount)
    monkeypatch.setattr(machine_load, "_local_mounts", lambda: ["/", *free])
    monkeypatch.setattr(machine_load, "nearest_directory", lambda path: path)
    return free


@pytest.mark.parametrize(
    ("cause", "full", "found"),
    [
        (NO_ROOM, {"/mnt/out": 0, "/mnt/data": 10**9}, ["/mnt/out"]),
        (f"{NO_ROOM}: '/mnt/out/x'", {"/mnt/out": 0, "/mnt/data": 0}, ["/mnt/out"]),
        ("ResourceExhaustedError: /mnt/data/m.tmp; No space left on device", {"/mnt/data": 0, "/a": 0}, ["/mnt/data"]),
        (f"{NO_ROOM}: '/mnt/out/x'", {"/mnt/data": 0}, []),
        (NO_ROOM, {}, []),
        ("ValueError: /mnt/out/x", {"/mnt/out": 0}, []),
    ],
)
def test_the_disk_that_is_full_is_that_of_the_path_in_the_message(
    disks: dict[str, int], cause: str, full: dict[str, int], found: list[str]
) -> None:
    disks.update(full)
    assert machine_load.full_disks(cause, "/root/.dtctl") == [{"path": one, "own": False} for one in found]


def test_a_full_disk_that_holds_the_run_is_told_from_others(disks: dict[str, int]) -> None:
    disks.update({"/home": 0})
    assert machine_load.full_disks(NO_ROOM, "/home/ada/.dtctl") == [{"path": "/home", "own": True}]


def test_the_mounts_of_this_machine_can_be_written_to() -> None:
    """Its own: where tests write is among them, or below one of them."""
    found = machine_load._local_mounts()
    assert all(os.access(one, os.W_OK) for one in found)
    assert machine_load._mount("/proc/self") == "/proc"
    assert machine_load._mount("/proc/self/no/such/file") == "/proc"
