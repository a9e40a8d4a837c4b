"""`up --allow-missing` with real TensorFlow: a ps and three workers, of which one's host is down."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.hosts.fleet import Fleet, module_fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(900)]

START_S = 300.0
"""Three imports of TensorFlow at once on two cores."""


fleet = module_fleet(4)


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    """A desk with the template of `dtctl init`, its ps on gpu-1 and its workers on the others; gpu-4 is down."""
    with desk(tmp_path / "home", name="digits") as made:
        made.write_ssh_config(fleet.ssh_config.read_text())
        made.project = made.home / "digits"
        made.dtctl("init", "digits", cwd=made.home)
        write_inventory(made, fleet)
        fleet.crash(fleet["gpu-4"])
        yield made
        fleet.restore()


def idle(fleet: Fleet) -> bool:
    """Nothing of ours runs on any host."""
    return not any(host.processes() for host in fleet.hosts)


def write_inventory(user: Desk, fleet: Fleet) -> None:
    """Puts the fleet's hosts and this Python into the file that `dtctl init` wrote, as its user would."""
    file = user.project / "cluster.yaml"
    text = file.read_text()
    hosts = "hosts:\n" + "".join(f"  {host.name}: {host.address}\n" for host in fleet.hosts)
    text = re.sub(r"^hosts:\n(?:  .*\n)+", hosts, text, flags=re.MULTILINE)
    text = re.sub(r"^  ps: .*$", "  ps: {hosts: gpu-1}", text, flags=re.MULTILINE)
    text = re.sub(r"^  worker: .*$", '  worker: {hosts: "gpu-[2-4]"}', text, flags=re.MULTILINE)
    text = text.replace("  # python: /opt/venv/bin/python", f"  python: {sys.executable}")
    file.write_text(text)


def newest_step(user: Desk, *, code: int = 0) -> int:
    """Step of the run's newest complete checkpoint; 0 if there is none."""
    found = json.loads(user.dtctl("checkpoints", "-o", "json", code=code))["checkpoints"]
    return max((entry["newestComplete"]["step"] for entry in found if entry["newestComplete"]), default=0)


def test_a_run_without_a_host_trains_to_its_end(user: Desk, fleet: Fleet) -> None:
    refused = user.run("up")
    assert refused.returncode == 4
    assert "dtctl up --allow-missing 1    goes on without it" in refused.stderr
    assert idle_but(fleet, "gpu-4")

    begun = user.run("up", "--allow-missing", "1", "--set", "trainer.args.train_steps=600", timeout_s=START_S)
    assert begun.returncode == 0, begun.stderr
    assert "the run continues without gpu-4: worker:2 is not started" in begun.stderr
    done = user.run("wait", timeout_s=START_S)
    assert done.returncode == 0, done.stderr
    assert user.outcome() == "Succeeded"
    ended = user.states()
    assert ended.pop("worker:1") in ("succeeded", "stopped"), (
        "the goal is everybody's, and the chief may be there first"
    )
    assert ended == {"ps:0": "stopped", "worker:0": "succeeded", "worker:2": "pending"}
    assert newest_step(user, code=7) >= 600, "gpu-4 is asked too, and gives no answer"
    assert re.search(r"held-out accuracy 0\.9", user.dtctl("logs", "worker:0", "-n", "all"))
    assert idle_but(fleet, "gpu-4")
    assert user.run("down", "--yes").returncode == 0


def test_the_next_up_takes_the_host_back_and_it_trains_with_the_others(user: Desk, fleet: Fleet) -> None:
    endless = ("--set", "trainer.args.train_steps=100000000", "--set", "trainer.args.save_secs=2")
    user.dtctl("up", "--allow-missing", "1", *endless, timeout_s=START_S)
    trained = eventually(lambda: step_of(user), START_S, "a step")
    said = user.dtctl("status")
    assert "without gpu-4: dtctl up    takes in those that are back" in said
    assert user.states()["worker:2"] == "pending"
    before = {task["task"]: task["pid"] for task in user.status()["tasks"]}

    fleet.boot(fleet["gpu-4"])
    joined = json.loads(user.dtctl("up", *endless, "-o", "json", timeout_s=START_S))
    assert (joined["unchanged"], joined["joined"], joined["missing"]) == (True, ["worker:2"], [])
    eventually(lambda: re.search(r"step \d+ +loss", log_of(user, "worker:2")), START_S, "a step of worker:2")
    first = re.search(r"step (\d+) +loss", log_of(user, "worker:2"))
    assert first
    assert int(first[1]) > trained, "it goes on from where the ps is"
    assert set(user.states().values()) == {"running"}
    now = {task["task"]: task["pid"] for task in user.status()["tasks"]}
    assert {**now, "worker:2": None} == before, "nobody else was touched"
    assert "without gpu-4" not in user.dtctl("status")
    assert user.dtctl("stop", timeout_s=START_S) == "4 tasks stopped, 0 left\n"
    assert idle(fleet)


def idle_but(fleet: Fleet, down: str) -> bool:
    return not any(host.processes() for host in fleet.hosts if host.name != down)


def step_of(user: Desk) -> int:
    return int(user.status()["progress"]["step"] or 0)


def log_of(user: Desk, task: str) -> str:
    return user.dtctl("logs", task, "-n", "all", code=None)
