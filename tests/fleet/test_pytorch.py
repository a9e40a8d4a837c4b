"""A user of PyTorch with two hosts and docs/bring-your-own.md: a run, a lost worker, and the next run."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.documents.blocks import ROOT, Written, blocks
from tests.environments import environment, root
from tests.hosts.fleet import Fleet, missing
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(900)]

PAGE = "docs/bring-your-own.md"
PROGRAM = Path(__file__).with_name("ddp_program.py")
STEPS = 512 // 2 // 32
"""Of an epoch of each rank."""

START_S = 300.0


@pytest.fixture(scope="module")
def torch() -> Path:
    """The virtual environment that the hosts have."""
    return environment("torch").parents[1]


@pytest.fixture(scope="module")
def fleet(torch: Path) -> Iterator[Fleet]:
    if reason := missing():
        pytest.skip(f"no fleet: {reason}")
    with Fleet(2, visible=(Path(sys.base_prefix), Path(sys.prefix), root())) as made:
        yield made


def test_the_program_resumes_as_the_page_says() -> None:
    [snippet] = [text for text in re.findall(r"(?ms)^```python\n(.*?)^```", _section()) if "broadcast" in text]
    assert textwrap.indent(snippet, " " * 8) in PROGRAM.read_text()


def test_a_lost_worker_and_the_next_run_continue_from_the_snapshot(user: Desk, fleet: Fleet, torch: Path) -> None:
    write(user, torch)
    assert "2 tasks on gpu-[1-2]" in user.run("up", timeout_s=120).stderr
    eventually(lambda: epoch(user) >= 3, START_S, "the fourth epoch")
    first = user.task("worker:1")
    fleet["gpu-2"].exec("kill", "-9", str(first["pid"]))
    eventually(lambda: user.task("worker:1")["restarts"] == 1 and epoch(user) >= 6, START_S, "the seventh epoch")
    resumed = re.findall(r"Resuming training from snapshot at Epoch (\d+)", user.dtctl("logs", "worker:1", "-n", "all"))
    assert [int(number) >= 3 for number in resumed] == [True]
    status = user.status()
    assert status["progress"]["position"]["epoch"] >= 6
    assert status["progress"]["step"] == (status["progress"]["position"]["epoch"] + 1) * STEPS
    assert status["progress"]["stepsPerSecond"] > 0
    user.dtctl("stop", timeout_s=120)
    reached = epoch(user)
    user.dtctl("up", timeout_s=120)
    eventually(lambda: epoch(user) > reached, START_S, "an epoch of the second run")
    log = user.dtctl("logs", "worker:0", "-n", "all")
    assert int(re.findall(r"Resuming training from snapshot at Epoch (\d+)", log)[0]) >= reached
    assert user.run("wait", timeout_s=START_S).returncode == 0
    assert epoch(user) == 39
    assert user.status()["progress"]["step"] >= 39 * STEPS, "a later run does not know that epochs begin at 0"
    user.dtctl("down", "--yes", timeout_s=120)


def epoch(user: Desk) -> int:
    """The epoch that `status` shows; -1 before the first."""
    position = user.status()["progress"].get("position")
    return -1 if position is None else int(position["epoch"])


def write(user: Desk, torch: Path) -> None:
    """The cluster.yaml of the page, for these hosts, which have an environment."""
    [text] = [one.text for one in blocks(PAGE) if isinstance(one, Written) and "dialect: pytorch" in one.text][:1]
    changed = re.sub(r"environment: \{.*?\}.*", f"venv: {torch}", text)
    assert changed != text
    (user.project / "cluster.yaml").write_text(changed.replace("node-a", "gpu-1").replace("node-b", "gpu-2"))
    shutil.copy(PROGRAM, user.project / "train.py")


def _section() -> str:
    return (ROOT / PAGE).read_text().partition("\n## PyTorch")[2].partition("\n## ")[0]
