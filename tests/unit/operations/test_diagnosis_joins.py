"""What is read beside the words of a log: which disk, which GPU, which checkpoint, and who was killed by what."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.operations.checkpoints import Checkpoint, Checkpoints
from dtctl.operations.diagnosis import signatures
from tests.unit.diagnosing import ended, facts, host, machine, running, vitals
from tests.unit.tasks import changed, past_attempt

TASK = running("worker:0")
MEMORY = {"available_bytes": 8 << 30, "memory_bytes": 16 << 30}


def test_a_python_is_told_with_the_package_that_has_the_module() -> None:
    found = signatures.python(facts(TASK), TASK, {"module": "sklearn.svm"})
    assert found == {"python": "PYTHON", "module": "sklearn", "package": "scikit-learn"}
    assert signatures.python(facts(TASK), TASK, {"module": "odd"}) == {
        "python": "PYTHON",
        "module": "odd",
        "package": "odd",
    }


def test_versions_are_told_as_far_as_they_are_known() -> None:
    assert signatures.version(facts(TASK), TASK, {}) == {"python": "PYTHON"}
    told = {"gpu-a": host({"worker:0": vitals(packages={"tensorflow": "2.21", "numpy": "2"})})}
    assert signatures.version(facts(TASK, hosts=told), TASK, {}) == {"python": "PYTHON", "version": "2.21"}


def test_a_port_is_that_of_the_log_or_the_tasks_own_or_unknown() -> None:
    assert signatures.port(facts(TASK), TASK, {"port": "7"}) == {"port": "7"}
    assert signatures.port(facts(TASK), TASK, {}) == {"port": "2222"}
    assert signatures.port(facts(TASK), running("worker:9"), {}) == {"port": "?"}


def test_who_holds_a_port_is_told_as_it_was_at_the_end_before_what_it_is_now() -> None:
    told = {"gpu-a": host({"worker:0": vitals(holder="pid 8 (now)")})}
    assert signatures.port(facts(TASK, hosts=told), TASK, {}) == {"port": "2222", "holder": "pid 8 (now)"}
    held = changed(TASK, why=(fact("port_held", port=9, text="pid 7 (then)"),))
    assert signatures.port(facts(held, hosts=told), held, {}) == {"port": 9, "holder": "pid 7 (then)"}


def disk(path: str, free: int, size: int) -> dict[str, Any]:
    return {"path": path, "free_bytes": free, "size_bytes": size}


def test_the_fullest_disk_is_the_one_with_the_least_share_left() -> None:
    told = {"gpu-a": host(disks=[disk("/large", 50, 1000), disk("/small", 9, 10), disk("/none", 1, 0)])}
    found = signatures.disk(facts(TASK, hosts=told), TASK, {})
    assert found == {"where": "/large", "free_bytes": 50, "size_bytes": 1000}
    assert (
        signatures.disk(facts(TASK), TASK, {}) == signatures.disk(facts(TASK, hosts={"gpu-a": host()}), TASK, {}) == {}
    )


def test_a_disk_of_no_size_that_has_nothing_left_is_full() -> None:
    told = {"gpu-a": host(disks=[disk("/large", 1, 1000), disk("/none", 0, 0)])}
    assert signatures.disk(facts(TASK, hosts=told), TASK, {})["where"] == "/none"


def gpu(index: int, used: int, memory: int) -> dict[str, Any]:
    return {"index": index, "name": "A100", "driver": "550", "busy": None, "used_bytes": used, "memory_bytes": memory}


def test_the_fullest_gpu_is_the_one_with_the_greatest_share_in_use() -> None:
    told = {"gpu-a": host(gpus=[gpu(0, 100, 1000), gpu(1, 90, 100), gpu(2, 0, 0)])}
    found = signatures.gpu(facts(TASK, hosts=told), TASK, {})
    assert found == {"gpu": 1, "used_bytes": 90, "driver": "550", "memory_bytes": 100}
    assert signatures.gpu(facts(TASK), TASK, {}) == signatures.gpu(facts(TASK, hosts={"gpu-a": host()}), TASK, {}) == {}


SAVED = Checkpoint("model.ckpt-7", 7, 900.0, 1, 1, True, "")


@pytest.mark.parametrize(
    ("directories", "fields"),
    [
        ((), {}),
        ((Checkpoints("gpu-a", "/o", None, (), (SAVED,)),), {}),
        (
            (Checkpoints("gpu-b", "/o", SAVED, (), (SAVED,)),),
            {"checkpoint": "/o/model.ckpt-7", "holder_host": "gpu-b"},
        ),
    ],
)
def test_the_checkpoint_that_trainers_restore_is_the_newest_complete_one(
    directories: tuple[Checkpoints, ...], fields: dict[str, str]
) -> None:
    found = facts(TASK)
    found = dataclasses.replace(found, status=dataclasses.replace(found.status, checkpoints=directories))
    assert signatures.checkpoint(found, TASK, {}) == fields


@pytest.mark.parametrize(
    ("how", "short"),
    [
        ({}, False),
        ({"history": (past_attempt(1, 900.0, 960.0, None, 9, asked=False),)}, False),
        ({"history": (past_attempt(1, 900.0, 960.0, None, 9, asked=False, short_of_memory=True),)}, True),
        ({"why": (fact("killed", signal=9), fact("out_of_memory", count=1))}, True),
        ({"why": (fact("killed", signal=9),)}, False),
    ],
)
def test_the_kernel_has_killed_it_where_it_says_so(how: dict[str, Any], short: bool) -> None:
    task = changed(TASK, **how)
    assert signatures.killed(facts(task, machines={"gpu-a": machine()}), task, {}) == (MEMORY if short else None)


NAMES = {4: "SIGILL", 9: "SIGKILL", 11: "SIGSEGV"}


@pytest.mark.parametrize(
    ("code", "signal", "by"),
    [(None, 9, {9}), (137, None, {9}), (139, None, {11}), (1, None, set()), (None, 4, {4}), (None, None, set())],
)
def test_an_end_by_a_signal_is_known_by_itself_or_by_the_shells_code(
    code: int | None, signal: int | None, by: set[int]
) -> None:
    task = ended("worker:0", "", code=code or 0, signal=signal)
    task = changed(task, code=code)
    found = facts(task, machines={"gpu-a": machine()})
    assert {number for number, name in NAMES.items() if signatures.killed_by(name)(found, task, {}) == MEMORY} == by
    assert all(signatures.killed_by(NAMES[number])(found, task, {}) is None for number in NAMES.keys() - by)
    assert signatures.killed_by("SIGKILL")(facts(TASK), TASK, {}) is None, "it has not ended"


def test_nothing_is_told_of_the_memory_of_a_host_that_nobody_has_asked() -> None:
    assert signatures.memory(facts(TASK), TASK, {}) == {}
