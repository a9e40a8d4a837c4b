"""How far programs have come that name no step: by what they save, and by their positions within an epoch."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.desk import Desk
from tests.waiting import eventually

CLUSTER = """\
name: demo
hosts: {node-1: }
jobs: {worker: {hosts: node-1}}
trainer: {command: [python, program.py], dialect: none, args: ["{output_dir}"]}
dirs: {output: output}
"""

SAVES = """
import os, sys, time
out = sys.argv[1]
print(FIRST, flush=True)
for step in range(500, 50000, 500):
    time.sleep(2)
    os.makedirs(f"{out}/new/default")
    open(f"{out}/new/default/_METADATA", "w").close()
    os.rename(f"{out}/new", f"{out}/{step}")
    if EVERY:
        print(EVERY.replace("STEP", str(step)), flush=True)
"""

POSITIONS = """
import sys, time
for batch in range(1, 1000):
    sys.stdout.write(f"\\rEpoch 1/3:  1%|#    | {batch}/1000 [00:05<01:10,  2.00it/s]")
    sys.stdout.flush()
    time.sleep(0.5)
"""


def write(home: Desk, program: str, more: str = "") -> None:
    (home.project / "program.py").write_text(program)
    (home.project / "cluster.yaml").write_text(CLUSTER + more)


def progress(home: Desk) -> dict[str, Any]:
    found: dict[str, Any] = home.status()["progress"]
    return found


@pytest.mark.parametrize(
    ("first", "every"),
    [
        ("Starting training loop from step 0", "Saved checkpoint at step STEP"),
        ("Starting training loop from step 0", ""),
        ("INFO:tensorflow:global_step/sec: 250.0", "INFO:tensorflow:global_step/sec: 250.0"),
    ],
    ids=["its log names only checkpoints", "its log names nothing", "its log names only a rate"],
)
def test_a_checkpoint_is_progress(home: Desk, first: str, every: str) -> None:
    write(home, SAVES.replace("FIRST", repr(first)).replace("EVERY", repr(every)))
    home.dtctl("up", "--local")
    eventually(lambda: (home.task("worker:0")["step"] or 0) >= 2000, what="steps")
    screen = home.dtctl("status")
    [task] = home.status()["tasks"]
    assert task["step"] >= 2000
    assert task["restarts"] == 0
    assert 100 < task["stepsPerSecond"] <= 300
    assert "goodput" in screen, screen
    assert "goodput 0 %" not in screen, screen
    assert "stalled" not in screen, screen
    home.dtctl("down", "--yes")


def test_positions_of_a_slow_first_epoch_are_progress_and_what_is_left_is_estimated(home: Desk) -> None:
    write(home, POSITIONS, "recovery: {stall: 6s}\n")
    home.dtctl("up", "--local")
    eventually(lambda: (progress(home)["step"] or 0) >= 30, what="more than twice the limit of a hang")
    screen = home.dtctl("status")
    assert "epoch 1/3, " in screen
    assert "done in about " in screen
    assert "~" in screen
    assert progress(home)["stepIsEstimated"] is True
    assert progress(home)["targetStep"] == 3000
    [task] = home.status()["tasks"]
    assert (task["state"], task["restarts"]) == ("running", 0)
    home.dtctl("down", "--yes")


WITH_PS = """\
name: demo
hosts: {node-1: , node-2: }
jobs: {ps: {hosts: node-1}, worker: {hosts: "node-[1-2]"}}
trainer: {command: [python, program.py], dialect: none, args: ["{job_name}", "{task_index}", "{output_dir}"]}
dirs: {output: output}
"""

BARRIER = """
import os, sys, time
job, index, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if job == "ps":
    time.sleep(9999)
for step in range(1, 9999):
    open(f"{out}/token-{index}-{step}", "w").close()
    other, waits_s = f"{out}/token-{1 - index}-{step}", 0.1
    while not os.path.exists(other):
        time.sleep(waits_s)
        waits_s = min(2 * waits_s, 30)
    os.remove(other)
    if index == 0 and step == 1:
        os.makedirs(f"{out}/{int(time.time())}/default", exist_ok=True)
        open(f"{out}/{int(time.time())}/default/_METADATA", "w").close()
    print("step", step, flush=True)
    time.sleep(0.5)
"""


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_workers_at_a_barrier_that_a_lost_one_left_standing_restart_within_a_minute(home: Desk) -> None:
    (home.project / "program.py").write_text(BARRIER)
    (home.project / "cluster.yaml").write_text(WITH_PS)
    home.dtctl("up", "--local")
    eventually(lambda: (home.task("worker:1")["step"] or 0) >= 5, what="steps")
    os.kill(home.task("worker:1")["pid"], signal.SIGKILL)
    eventually(lambda: home.task("worker:0")["attempt"] == 2, 120.0, "the restart of all")
    eventually(lambda: (home.task("worker:1")["step"] or 0) >= 2, what="steps after it")
    assert "they wait for each other" in home.dtctl("events")
    home.dtctl("down", "--yes")
