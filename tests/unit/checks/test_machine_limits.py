"""A machine's limits to the byte, GPUs that a plan gives and that are missing or busy, and what is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.operations.checks.machine import (
    FEW_FILES,
    FEW_INODES,
    FEW_THREADS,
    LOW_BYTES,
    TOPIC,
    disk_row,
    gpu_findings,
    gpu_words,
)
from dtctl.operations.checks.topic import Heard, Line, Scene
from dtctl.operations.client.kept import Greeted
from dtctl.operations.diagnosis.facts import FULL_BYTES
from tests.unit.checks.scenes import GB, disk, judged, machine, scene, told
from tests.unit.clusters import cluster, job, ssh_host

LARGE, SMALL = 1 << 50, 100 << 20


@pytest.mark.parametrize(
    ("left", "name"),
    [
        (disk(free=FULL_BYTES - 1, size=LARGE), "disk_full_before"),
        (disk(free=FULL_BYTES, size=LARGE), "disk_low"),
        (disk(free=(SMALL // 100) - 1, size=SMALL), "disk_full_before"),
        (disk(free=SMALL // 100, size=SMALL), "disk_low"),
        (disk(free=LOW_BYTES - 1, size=LARGE), "disk_low"),
        (disk(free=LOW_BYTES, size=LARGE), None),
        (disk(free=SMALL // 20 - 1, size=SMALL), "disk_low"),
        (disk(free=SMALL // 20, size=SMALL), None),
        (disk(files=FEW_INODES - 1), "inodes_gone"),
        (disk(files=FEW_INODES), None),
        (disk(files=None), None),
    ],
)
def test_a_disk_is_full_or_low_below_a_size_and_a_share(left: Any, name: str | None) -> None:
    assert disk_row(left) == name


@pytest.mark.parametrize(
    ("took", "available", "taking", "name"),
    [
        (16 * GB, 16, 0, None),
        (16 * GB + 1, 16, 0, "memory_short"),
        (8 * GB, 8, 0, None),
        (8 * GB + 1, 8, 0, "memory_taken"),
        (9 * GB, 8, GB, None),
        (9 * GB + 1, 8, GB, "memory_taken"),
    ],
)
def test_memory_is_short_when_the_tasks_took_more_than_there_is_or_is_free(
    took: int, available: int, taking: int, name: str | None
) -> None:
    value = scene(cluster(job("worker", ["a", "a"], [2222, 2223])))
    earlier = {"worker:0": took - GB, "worker:1": GB, "ps:7": 99 * GB}
    facts = {"a": machine(available=available, took=earlier, taking_bytes=taking)}
    found = judged(TOPIC, value, facts)
    assert [one.signature.name for one in found] == ([name] if name else [])
    fields = {"took_bytes": took, "memory_bytes": 16 * GB, "available_bytes": available * GB}
    assert all(one.seen.fields == fields for one in found)


@pytest.mark.parametrize(
    ("rights", "name"),
    [
        ({"open_files": FEW_FILES}, None),
        ({"open_files": FEW_FILES - 1}, "few_files"),
        ({"processes": FEW_THREADS}, None),
        ({"processes": FEW_THREADS - 1}, "few_processes"),
    ],
)
def test_limits_are_few_below_a_number(rights: dict[str, int], name: str | None) -> None:
    assert list(told(judged(TOPIC, scene(), {"a": machine(rights=rights)}))) == ([name] if name else [])


def test_clocks_are_judged_with_the_machines() -> None:
    clocks = {"a": (0.0, 0.1), "b": (0.0, 0.1), "c": (90.0, 90.1)}
    found = judged(TOPIC, scene(), {host: machine() for host in "abc"}, clocks=clocks)
    assert told(found) == {"clock_wrong": ("c",)}


def lines(heard: Heard[Any]) -> Mapping[str, Mapping[str, object]]:
    return {one.what: one.values for one in TOPIC.describe(scene(), heard) if isinstance(one, Line)}


def test_each_figure_of_a_machine_is_told_by_host() -> None:
    full = machine(
        available=3,
        took={"worker:0": 1, "worker:1": 2},
        disks=[disk(free=9), disk("/b", free=5), disk("/proc", free=0, size=0)],
        rights={"selinux": "enforcing"},
    )
    greeted = {"a": Greeted({"system": "Debian 12"}, 0.1), "b": Greeted({}, 0.1)}
    assert lines(Heard([{"a": full, "b": machine()}], clocks={"a": (90.0, 90.1)}, greeted=greeted)) == {
        "system": {"a": "Debian 12", "b": ""},
        "processors": {"a": 8, "b": 8},
        "memory_bytes": {"a": 16 * GB, "b": 16 * GB},
        "free memory_bytes": {"a": 3 * GB, "b": 8 * GB},
        "tasks took_bytes": {"a": 3, "b": None},
        "GPUs": {"a": "", "b": ""},
        "free disk_bytes": {"a": 5, "b": None},
        "clock": {"a": "90 s ahead"},
        "SELinux": {"a": "enforcing"},
    }


def gpu(index: int, used: int = 0, name: str = "A100", driver: str = "550.54") -> dict[str, Any]:
    return {
        "index": index,
        "name": name,
        "driver": driver,
        "busy": None,
        "used_bytes": used,
        "memory_bytes": 80 * GB,
    }


def planned(tasks: int, have: int, **settings: Any) -> Scene:
    jobs = [job("worker", ["a"] * tasks, list(range(tasks)), **settings), job("ps", ["a"], [99])]
    return scene(cluster(*jobs, hosts=[ssh_host("a", gpus=have)]))


def found(value: Scene, **told: Any) -> list[tuple[str, tuple[str, ...], Mapping[str, object]]]:
    facts = {"a": machine(nvidia_smi=True, **told)}
    return [
        (one.signature.name, tuple(map(str, one.seen.tasks)), one.seen.fields) for one in gpu_findings(value, facts)
    ]


def test_one_task_may_have_all_gpus() -> None:
    assert found(planned(1, 2), gpus=[gpu(0), gpu(1)]) == []


def test_those_that_are_missing_are_named_with_whom_they_were_for() -> None:
    missing = {"wanted": "1, 2, 3", "have": 1}
    assert found(planned(2, 4), gpus=[gpu(0)]) == [("gpus_missing", ("worker:0", "worker:1"), missing)]
    assert found(planned(2, 4), gpus=[gpu(0), gpu(1)]) == [
        ("gpus_missing", ("worker:1",), {"wanted": "2, 3", "have": 2})
    ]


def test_who_would_take_all_gpus_is_named_and_a_ps_takes_none() -> None:
    for settings in ({}, {"gpus_per_task": 1}):
        shared = found(planned(2, 0, **settings), gpus=[gpu(0), gpu(1)])
        assert shared == [("gpus_shared", ("worker:0", "worker:1"), {"have": 2})]
    assert found(planned(1, 0), gpus=[gpu(0), gpu(1)]) == []
    assert found(planned(2, 0), gpus=[]) == []


def test_a_gpu_is_in_use_above_a_tenth_of_its_memory_and_only_where_it_is_given() -> None:
    assert found(planned(1, 1), gpus=[gpu(0, 8 * GB), gpu(1, 70 * GB)]) == []
    user = {"gpu": 0, "pid": 7, "name": "python", "user": "ada", "used_bytes": None}
    users = [user, {**user, "gpu": 1}, {**user, "pid": 8, "user": ""}, {**user, "pid": 9}, {**user, "pid": 10}]
    ((name, _, fields),) = found(planned(1, 1), gpus=[gpu(0, 8 * GB + 1)], gpu_users=users)
    assert name == "gpus_in_use"
    assert fields == {
        "gpu": 0,
        "users": "python of ada (pid 7), python of ? (pid 8), python of ada (pid 9)",
        "used_bytes": 8 * GB + 1,
        "memory_bytes": 80 * GB,
    }


def test_gpus_are_told_in_short_by_their_kind() -> None:
    told = machine(gpus=[gpu(0), gpu(1), gpu(2, name="T4", driver="535.1")])["gpus"]
    assert gpu_words(told) == "2 x A100, driver 550.54; 1 x T4, driver 535.1"
    assert gpu_words([]) == ""


def test_drivers_that_differ_are_told_with_those_that_fewer_hosts_have() -> None:
    other = gpu(0, driver="535.1")
    facts = {"a": machine(gpus=[gpu(0), gpu(1)]), "b": machine(gpus=[gpu(0)]), "c": machine(gpus=[other])}
    (one,) = gpu_findings(scene(), facts)
    versions = (("535.1", ("c",)), ("550.54", ("a", "b")))
    assert (one.signature.name, one.seen.hosts, one.seen.fields) == ("drivers_differ", ("c",), {"versions": versions})
    assert list(gpu_findings(scene(), {"a": facts["a"], "b": facts["b"]})) == []
