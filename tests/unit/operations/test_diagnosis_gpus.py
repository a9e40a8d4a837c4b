"""What `status` and `diagnose` find wrong with GPUs, by what agents sample of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dtctl.agent.records.vitals import Machine
from dtctl.operations.findings import Facts
from dtctl.render.findings import paragraph
from dtctl.render.gpus import rows
from dtctl.render.machine.status import run_status
from dtctl.render.roster import cells_of, rows_of
from dtctl.rooms.diagnose import gpus
from dtctl.rooms.diagnose.operation import in_short
from dtctl.rooms.top.model import Histories
from dtctl.rooms.top.table import COLUMNS, RowData
from tests.unit.diagnosing import facts, machine, running

GB = 10**9
STRANGER = {"pid": 41, "name": "python", "user": "eve", "used_bytes": 3 * GB}
TRAINS: dict[str, Any] = {"rate": 60.0, "step": 100, "step_time": 999.0, "since": 700.0}
WORKERS = [running(f"worker:{n}", f"gpu-{n}", **TRAINS) for n in range(4)]


def user(task: str, used: int = 30 * GB, run: str = "demo-1") -> dict[str, Any]:
    return {"pid": 7, "name": "python", "user": "me", "used_bytes": used, "run": run, "task": task}


def gpu(index: int = 0, task: str | None = "worker:0", **fields: Any) -> dict[str, Any]:
    """At work for a task that may use it."""
    own = {"given": [task], "users": [user(task)]} if task is not None else {}
    usual = {"name": "A100", "busy": 0.9, "used_bytes": 30 * GB, "memory_bytes": 40 * GB, "degrees": 60}
    return {"index": index, "clock_mhz": 1400, "most_clock_mhz": 1410, **usual, **own, **fields}


def on(*each: dict[str, Any], problem: str = "", text: str = "") -> Machine:
    return machine(gpus={"each": list(each), "problem": problem, "text": text})


def one_each(*last: dict[str, Any]) -> Facts:
    """A worker and a GPU on each of four hosts, the last with these."""
    usual = {f"gpu-{n}": on(gpu(task=f"worker:{n}")) for n in range(4)}
    return facts(*WORKERS, machines={**usual, "gpu-3": on(*last)})


def of_last(**fields: Any) -> Facts:
    return one_each(gpu(task="worker:3", **fields))


PS = running("ps:0", "gpu-3")
OF_GPUS = [
    (
        "gpu_lost",
        of_last(lost=True, xid=79, busy=None),
        "GPU 0 of gpu-3 does not respond to its driver, or is missing; the driver's last error is Xid 79. worker:3",
    ),
    (
        "gpu_unknown",
        facts(*WORKERS[:1], machines={"gpu-0": on(problem="silent")}),
        "the GPUs of gpu-0 are unknown, because their driver does not answer: its calls do not return",
    ),
    (
        "gpu_unknown",
        facts(*WORKERS[:1], machines={"gpu-0": on(problem="error", text="Driver/library version mismatch")}),
        "because their driver does not answer: Driver/library version mismatch",
    ),
    ("gpu_errors", of_last(xid=74), "the driver of gpu-3 has reported Xid 74 of GPU 0: an error of NVLink"),
    ("gpu_errors", of_last(xid=999), "the driver of gpu-3 has reported Xid 999 of GPU 0\n"),
    ("gpu_memory_errors", of_last(ecc_errors=2), "GPU 0 of gpu-3 has had 2 memory errors that ECC could not correct"),
    (
        "gpu_throttled",
        of_last(throttled=["thermal", "hardware"], degrees=91, clock_mhz=600),
        "GPU 0 of gpu-3 lowers its clock to 600 of 1410 MHz: it is too hot, its protection, at 91 degrees. worker:3 is",
    ),
    ("gpu_throttled", of_last(throttled=["power_cap"], clock_mhz=500), "500 of 1410 MHz: its power limit"),
    ("gpu_slow", of_last(clock_mhz=900), "GPU 0 of gpu-3, which worker:3 uses, is at 900 MHz, others at 1400"),
    ("gpu_slow", of_last(busy=0.2), "GPU 0 of gpu-3, which worker:3 uses, is 20 % busy, others 90 %"),
    (
        "gpu_held",
        facts(WORKERS[3], PS, machines={"gpu-3": on(gpu(task="worker:3", users=[user("worker:3"), user("ps:0")]))}),
        "ps:0 on gpu-3 uses 30.0 GB of the memory of GPU 0, which trainers need",
    ),
    (
        "gpu_shared",
        of_last(users=[user("worker:3"), STRANGER, user("worker:0", GB, "other-1")]),
        "GPU 0 of gpu-3, which worker:3 may use, is also used by python of eve (pid 41, 3.0 GB), python of me "
        "(worker:0 of run other-1, pid 7, 1.0 GB)",
    ),
    (
        "gpu_unused",
        of_last(users=[], busy=0.0, used_bytes=0),
        "worker:3 on gpu-3 has GPU 0 but uses none: it trains on the CPU",
    ),
]


@pytest.mark.parametrize(("name", "found", "text"), OF_GPUS, ids=[f"{n}-{one[0]}" for n, one in enumerate(OF_GPUS)])
def test_gpu_problems_are_found_from_the_status_alone(name: str, found: Facts, text: str) -> None:
    (only,) = in_short(found.status)
    assert only.signature.name == name
    assert text in "\n".join([*paragraph(only), ""])
    assert "{" not in "".join(paragraph(only))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"throttled": ["power_cap"]},
        {"throttled": ["power_cap"], "clock_mhz": 210, "busy": 0.0},
        {"xid": 31},
        {"clock_mhz": 1000},
        {"clock_mhz": None, "busy": None},
        {"busy": 0.5},
        {"name": "T4", "clock_mhz": 300},
        {"users": [], "busy": 0.5},
        {"task": None, "lost": True},
        {"task": None, "users": [STRANGER]},
        {"task": None, "ecc_errors": 4},
    ],
)
def test_normal_values_and_gpus_without_tasks_are_no_findings(fields: dict[str, Any]) -> None:
    found = one_each(gpu(task="worker:3"), gpu(1, **{"task": "worker:3", **fields}))
    assert in_short(found.status) == ()


def test_a_ps_that_is_given_a_gpu_may_use_it() -> None:
    assert not list(gpus.held_by_servers(facts(PS, machines={"gpu-3": on(gpu(task="ps:0"))})))


def test_a_task_has_trained_for_a_while_before_its_gpus_are_called_unused() -> None:
    idle = {"gpu-0": on(gpu(users=[], busy=0.0))}
    young = running("worker:0", "gpu-0", **{**TRAINS, "since": 950.0})
    without_step = running("worker:0", "gpu-0", since=700.0)
    assert [list(gpus.unused(facts(one, machines=idle))) for one in (young, without_step)] == [[], []]


@pytest.mark.parametrize(
    ("each", "cells"),
    [
        ([gpu()], ["90%", "30.0 of 40.0 GB", "60 C"]),
        ([gpu(), gpu(1, busy=0.124, degrees=None)], ["90 12%", "30.0 of 40.0 GB", "60 C"]),
        ([gpu(n, busy=n / 10) for n in range(8)], ["0..70%", "30.0 of 40.0 GB", "60 C"]),
        ([gpu(n) for n in range(8)], ["90%", "30.0 of 40.0 GB", "60 C"]),
        ([gpu(used_bytes=10**6), gpu(1, busy=None, used_bytes=0)], ["90%", "1.0 MB of 40.0 GB", "60 C"]),
        ([gpu(degrees=93, throttled=["thermal", "hardware"])], ["90%", "30.0 of 40.0 GB", "93 C thermal hardware"]),
        ([gpu(), gpu(1, lost=True, busy=None, memory_bytes=0)], ["90% lost", "30.0 of 40.0 GB", "60 C"]),
        ([gpu(task="worker:9")], ["", "", ""]),
        ([gpu(given=[])], ["90%", "30.0 of 40.0 GB", "60 C"]),
        ([gpu(given=[], users=[user("worker:0", run="demo-0")])], ["", "", ""]),
    ],
)
def test_a_task_has_the_gpus_that_it_may_use_and_those_that_it_uses(
    each: list[dict[str, Any]], cells: list[str]
) -> None:
    status = facts(running("worker:0"), machines={"gpu-a": on(*each)}).status
    (row,) = rows_of(status)
    assert [cells_of(row, status)[name] for name in ("GPU USE", "GPU MEMORY", "GPU HEAT")] == cells


def test_every_gpu_is_listed_with_its_figures_and_who_uses_it() -> None:
    each = [gpu(throttled=["thermal"], degrees=93), gpu(1, task=None, lost=True, busy=None, memory_bytes=0)]
    status = facts(running("worker:0"), PS, machines={"gpu-a": on(*each)}).status
    figures = ["90%", "30.0 of 40.0 GB", "93 C", "1400 MHz", "thermal", "worker:0"]
    used = "python of me (worker:0 of run demo-1, pid 7, 30.0 GB)"
    first, second = rows(status)
    assert first == ["gpu-a", "0", "A100", *figures, used]
    assert (second[1], second[3], second[4], second[-1]) == ("1", "lost", "", "")
    document = run_status(status)
    assert [one["gpus"] for one in document["tasks"]] == [[0], []]
    assert [(one["host"], one["index"], one["lost"], one["tasks"]) for one in document["gpus"]] == [
        ("gpu-a", 0, False, ["worker:0"]),
        ("gpu-a", 1, True, []),
    ]
    assert document["gpus"][0]["users"][0]["usedBytes"] == 30 * GB


def test_a_run_without_gpus_reads_nothing_of_them() -> None:
    """`dtctl status` imports what it needs alone."""
    script = "import sys, dtctl.render.status, dtctl.operations.status; print([m for m in sys.modules if 'gpus' in m])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_top_sorts_tasks_by_the_gpu_that_has_least_to_do() -> None:
    tasks = [running("worker:0"), running("worker:1"), running("ps:0")]
    each = [gpu(busy=0.9), gpu(1, busy=0.2), gpu(2, "worker:1", busy=0.5)]
    status = facts(*tasks, machines={"gpu-a": on(*each)}).status
    column = next(one for one in COLUMNS if one.heading == "GPU USE")
    assert column.key is not None
    assert [column.key(RowData(task, 0, status, Histories(), fine=True)) for task in tasks] == [0.2, 0.5, None]
