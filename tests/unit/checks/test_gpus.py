"""Which GPUs a plan gives that are not there, or not free, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtctl.operations.checks.machine import gpu_findings, gpu_words
from dtctl.operations.checks.topic import Scene
from tests.unit.checks.scenes import GB, machine, scene
from tests.unit.clusters import cluster, job, ssh_host


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
