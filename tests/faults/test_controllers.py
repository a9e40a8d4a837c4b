"""Controllers that meet, that die at any moment, and runs that share hosts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.faults.scene import ASYNC, RECOVERY_S, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet
from tests.waiting import eventually, read_until

pytestmark = [pytest.mark.fleet, pytest.mark.faults]

STEPS_OF_UP = ("asked for up", "prepared after", "asked for start", "started after", "asked for keep", "result after")
"""In their order; each is told once for each host."""


@dataclass(frozen=True)
class Moment:
    step: str
    hosts: int
    """How many have taken the step by then."""

    def __str__(self) -> str:
        return f"{self.step}, on {self.hosts} hosts"

    def wait_for(self, command: subprocess.Popen[str]) -> None:
        """`command` was given -v, and both its streams go to one pipe."""
        read_until(command.stdout, f": {self.step}", self.hosts)


def of_up(number: int, hosts: int) -> Moment:
    """Every step at some number of hosts, each number a different one for as long as there are any."""
    step, turn = number % len(STEPS_OF_UP), number // len(STEPS_OF_UP)
    return Moment(STEPS_OF_UP[step], 1 + (number + turn) % hosts)


@pytest.mark.parametrize("moment", [pytest.param(n, marks=pytest.mark.nightly) if n else n for n in range(20)])
def test_up_that_is_interrupted_leaves_a_whole_run_or_none_and_no_lock(fleet: Fleet, user: Desk, moment: int) -> None:
    step = of_up(moment, len(fleet.hosts))
    print(f"up is interrupted at: {step}")
    scene = stand_in(fleet, user, ASYNC)
    with user.start("up", "-v") as starting:
        step.wait_for(starting)
        starting.send_signal(signal.SIGKILL if moment % 2 else signal.SIGINT)
        starting.communicate()
    eventually(lambda: not sessions(fleet), RECOVERY_S, "the sessions to end")
    eventually(lambda: is_none(fleet) or scene.is_whole(), RECOVERY_S, "a whole run or none")
    user.dtctl("up", timeout_s=120)
    eventually(scene.is_whole, RECOVERY_S, "the run to train")


STEPS_OF_REPLACE = (
    Moment("prepared after", 5),
    Moment("asked for stop", 1),
    Moment("asked for start", 1),
    Moment("started after", 5),
    Moment("asked for keep", 1),
    Moment("asked for keep", 5),
)


@pytest.mark.parametrize(
    "step",
    [pytest.param(one, id=str(one), marks=[pytest.mark.nightly] * (at > 0)) for at, one in enumerate(STEPS_OF_REPLACE)],
)
def test_an_up_replace_that_is_killed_names_no_successor_that_did_not_begin(
    fleet: Fleet, user: Desk, step: Moment
) -> None:
    scene = stand_in(fleet, user, ASYNC)
    scene.up()
    old = user.status()["run"]
    with user.start("up", "--replace", "--set", "grace=1s", "-v") as starting:
        step.wait_for(starting)
        starting.kill()
        starting.communicate()
    eventually(lambda: not sessions(fleet), RECOVERY_S, "the sessions to end")
    eventually(lambda: is_none(fleet) or scene.is_whole(), RECOVERY_S, "a whole run or none")
    found = user.status()
    if step.step == "prepared after":
        assert (found["run"], set(user.states().values())) == (old, {"running"}), "nothing was stopped for it"
    if found["run"] == old:
        begun = {run["run"] for run in json.loads(user.dtctl("runs", "-o", "json"))["runs"]}
        assert {*re.findall(rf"{user.name}-\d{{8}}-\d{{6}}-[0-9a-f]{{4}}", json.dumps(found))} <= begun
    user.dtctl("up", "--replace", timeout_s=120)
    eventually(scene.is_whole, RECOVERY_S, "the run to train")


def sessions(fleet: Fleet) -> list[str]:
    return [line for host in fleet.hosts for line in host.processes() if "-ISc" in line]


def is_none(fleet: Fleet) -> bool:
    return not any(host.processes() for host in fleet.hosts)


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["stop", "down --yes", "restart worker:1"])
def test_a_command_that_is_killed_can_be_given_again(fleet: Fleet, user: Desk, command: str) -> None:
    stand_in(fleet, user, ASYNC).up()
    kill_in_its_midst(user, command)
    user.dtctl("stop", code=None)
    eventually(lambda: is_none(fleet), RECOVERY_S, "the end of all")


def kill_in_its_midst(user: Desk, command: str) -> None:
    """Once the first host has been asked."""
    with user.start(*command.split(), "-v") as running:
        read_until(running.stdout, "asked for")
        running.kill()


@pytest.mark.nightly
def test_runs_that_share_their_hosts_do_not_touch_each_other(fleet: Fleet, user: Desk, tmp_path: Path) -> None:
    first = stand_in(fleet, user, ASYNC)
    first.up()
    ports = {"ps": {"hosts": "gpu-[1-2]", "port": 2322}, "worker": {"hosts": "gpu-[3-5]", "port": 2332}}
    with desk(tmp_path / "other", name=f"{user.name}-too", client=user.client) as other:
        second = stand_in(fleet, other, ASYNC, jobs=ports, coordinator={"port": 2331})
        second.up()
        before = {name: task["pid"] for name, task in first.tasks().items()}
        second.kill("ps:0")
        second.recover()
        faults.send(fleet["gpu-3"], second.agent(fleet["gpu-3"]))
        second.recover()
        other.dtctl("stop")
        other.dtctl("down", "--yes")
        assert {name: task["pid"] for name, task in first.tasks().items()} == before
        first.recover()
        first.enough()
        user.dtctl("wait", timeout_s=120)


def test_a_port_that_is_taken_between_plan_and_start_starts_nothing(fleet: Fleet, user: Desk) -> None:
    stand_in(fleet, user, ASYNC)
    when = "ls .dtctl/bundles/*/manifest.json >/dev/null 2>&1"
    with faults.taken_port(fleet["gpu-5"], 2222, when):
        # Time for the other one to take it; the hosts would choose another for a port that the file does not set.
        done = user.run("up", "--set", "trainer.setup=sleep 2", "--set", "jobs.worker.port=2222")
    assert done.returncode == 5, done.stderr
    assert "2222" in done.stderr
    assert "gpu-5" in done.stderr
    eventually(lambda: is_none(fleet), RECOVERY_S, "nothing to be left")
    status = subprocess.run(
        user.argv("status", "-o", "json"), cwd=user.project, env=user.env, capture_output=True, text=True
    )
    assert not status.stdout or not json.loads(status.stdout)["run"]
