"""Concurrent controllers, controllers that die at any time, and runs that share hosts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from dataclasses import dataclass

import pytest

from tests.desk import Desk
from tests.faults.scene import ASYNC, RECOVERY_S, stand_in
from tests.hosts.fleet import Fleet
from tests.waiting import eventually, read_until

pytestmark = [pytest.mark.fleet, pytest.mark.faults]

STEPS_OF_UP = ("asked for up", "prepared after", "asked for start", "started after", "asked for keep", "result after")
"""In order; each is reported once for each host."""


@dataclass(frozen=True)
class Moment:
    step: str
    hosts: int
    """The number of hosts that have taken the step by then."""

    def __str__(self) -> str:
        return f"{self.step}, on {self.hosts} hosts"

    def wait_for(self, command: subprocess.Popen[str]) -> None:
        """Waits for output of `command`, which was given -v, with both its streams in one pipe."""
        read_until(command.stdout, f": {self.step}", self.hosts)


def of_up(number: int, hosts: int) -> Moment:
    """Every step at some number of hosts; the numbers differ as long as there are different ones."""
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
def test_a_killed_up_replace_records_no_successor_that_did_not_start(fleet: Fleet, user: Desk, step: Moment) -> None:
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
def test_a_killed_command_can_be_repeated(fleet: Fleet, user: Desk, command: str) -> None:
    stand_in(fleet, user, ASYNC).up()
    kill_in_its_midst(user, command)
    user.dtctl("stop", code=None)
    eventually(lambda: is_none(fleet), RECOVERY_S, "the end of all")


def kill_in_its_midst(user: Desk, command: str) -> None:
    """Kills the command once the first host has been queried."""
    with user.start(*command.split(), "-v") as running:
        read_until(running.stdout, "asked for")
        running.kill()
