"""Every template on this machine and on separate hosts: it learns, through the loss of a task and through a stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dtctl.rooms.init.operation import template_names, templates_directory
from tests import environments
from tests.desk import Desk, desk
from tests.environments import environment
from tests.hosts.fleet import Fleet, module_fleet
from tests.templates.cases import CASES, ENDLESS, OFTEN, ONE_PS, SHARDED, TRAINED_ELSEWHERE, Case
from tests.waiting import eventually

pytestmark = [pytest.mark.training, pytest.mark.timeout(1200)]


def test_every_template_is_tried() -> None:
    assert {case.template for case in CASES} | {"hello"} == set(template_names())


def test_who_makes_an_environment_makes_it_alike() -> None:
    """Each template stands alone, with a copy of its own."""
    assert len({file.read_text() for file in templates_directory().glob("*/setup.sh")}) == 1


def test_a_wrong_flag_is_reported_without_importing_tensorflow() -> None:
    # -S: no site-packages, so no TensorFlow.
    trainer = templates_directory() / "ps-async" / "train.py"
    done = subprocess.run([sys.executable, "-S", trainer, "--ps_host=a:1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--ps_hosts" in done.stderr
    assert "Traceback" not in done.stderr


def for_the_night(case: Case) -> tuple[pytest.MarkDecorator, ...]:
    return () if case.by_day else (pytest.mark.nightly,)


ONCE = [case for case in CASES if not case.variant and case.template not in TRAINED_ELSEWHERE]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id, marks=for_the_night(case)) for case in ONCE])
def test_it_learns(case: Case, tmp_path: Path) -> None:
    with desk(tmp_path / "home") as user:
        project = Project(user, case)
        project.up(case.steps, "--local")
        project.succeed()
        project.check_what_it_learnt(user.home, case.steps)


@pytest.mark.nightly
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_it_survives_a_loss_continues_after_a_stop_and_learns(case: Case, tmp_path: Path) -> None:
    with desk(tmp_path / "home") as user:
        project = Project(user, case)
        project.up(ENDLESS, "--local")
        project.trains_beyond(0)
        before = project.step()
        os.kill(project.tasks()[case.lost]["pid"], signal.SIGKILL)
        project.wait_until(lambda: project.restarted() == set(case.restarted.split()), "restarts")
        project.wait_until(project.is_whole, "all to run again")
        project.trains_beyond(max(before, project.step()))

        last = project.step()
        user.dtctl("stop", timeout_s=120)
        goal = last + case.steps
        output = project.up(goal, "--local")
        assert ("found a checkpoint of an earlier run" in output) is case.has_tensorflow_checkpoints
        project.succeed()
        assert project.resumed_at() >= last  # by the clock alone it would have been an earlier one
        project.check_what_it_learnt(user.home, goal)
        project.check_that_it_can_be_restored(user.home, goal)


EVERY_SYNC_TASK = "ps:0 worker:0 worker:1 worker:2"
LOSSES = {
    "ps-sync": {"worker:1": "worker:1", "ps:0": EVERY_SYNC_TASK, "worker:0": EVERY_SYNC_TASK},
    "ps-strategy": {"worker:1": "worker:1", "ps:0": "ps:0 chief:0", "chief:0": "chief:0"},
}
"""Template -> a task that is killed: those that are started anew. tests/faults/test_tensorflow.py has ps-async."""


@pytest.mark.nightly
@pytest.mark.parametrize("template", LOSSES)
def test_it_continues_after_the_loss_of_a_worker_of_a_ps_and_of_the_lead(template: str, tmp_path: Path) -> None:
    case = next(one for one in CASES if one.template == template)
    with desk(tmp_path / "home") as user:
        project = Project(user, replace(case, settings=(OFTEN, ONE_PS)))
        project.up(ENDLESS, "--local")
        for lost, restarted in LOSSES[template].items():
            project.trains_beyond(project.step())
            step, attempts = project.step(), {name: task["attempt"] for name, task in project.tasks().items()}
            os.kill(project.tasks()[lost]["pid"], signal.SIGKILL)
            project.wait_until(partial(_are_anew, project, attempts, restarted), f"the restarts after {lost}")
            project.wait_until(project.is_whole, "all to run again")
            project.trains_beyond(max(step, project.step()))
            assert _are_anew(project, attempts, restarted), lost
        user.dtctl("stop", timeout_s=120)


def _are_anew(project: Project, attempts: Mapping[str, int], names: str) -> bool:
    """These, and no others."""
    return {name for name, task in project.tasks().items() if task["attempt"] > attempts[name]} == set(names.split())


three_hosts = module_fleet(3, visible=(*Fleet.visible, environments.root()))


@pytest.fixture
def fleet(three_hosts: Fleet) -> Iterator[Fleet]:
    """Without the output of other cases, which is as if it were of one cluster."""
    yield three_hosts
    three_hosts.restore()


def write_addresses(user: Desk, fleet: Fleet) -> None:
    """Into the file that `dtctl init` wrote, as its user would."""
    file = user.project / "cluster.yaml"
    addresses = (host.address for host in fleet.hosts)
    place = re.compile(r"^(  node-\d:(?: |\n    ssh: ))\S+", re.MULTILINE)
    text, count = place.subn(lambda found: found[1] + next(addresses), file.read_text())
    assert count
    file.write_text(text)


@pytest.mark.fleet
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES if case is not SHARDED])
def test_it_learns_on_separate_hosts(case: Case, fleet: Fleet, tmp_path: Path) -> None:
    with desk(tmp_path / "home") as user:
        user.write_ssh_config(fleet.ssh_config.read_text())
        project = Project(user, case)
        write_addresses(user, fleet)
        project.up(case.steps)
        project.succeed()
        lead = fleet.hosts[int(user.task(case.lead)["host"].removeprefix("node-")) - 1]
        project.check_what_it_learnt(lead.home, case.steps)
        project.check_that_it_can_be_restored(lead.home, case.steps)
    for host in fleet.hosts:
        eventually(lambda: not host.processes(), what=f"nothing to be left on {host.name}")  # noqa: B023


PATIENCE_S = 300.0
"""Several imports of TensorFlow at once on two busy cores take a minute."""


class Project:
    def __init__(self, user: Desk, case: Case) -> None:
        self.user, self.case = user, case
        user.dtctl("init", "--template", case.template)
        (name,) = re.findall(r"^name: (\S+)", (user.project / "cluster.yaml").read_text(), re.MULTILINE)
        self.output = Path("dtctl", name, "output")
        """Below a home."""
        self.python = str(environment(case.environment)) if case.environment else sys.executable

    def up(self, train_steps: int, *args: str) -> str:
        """What it says besides."""
        args = (*args, *self._environment(), *self.case.overrides(train_steps))
        done = self.user.run("up", *args, timeout_s=PATIENCE_S)
        assert done.returncode == 0, f"{done.stderr}\n{self.logs()}"
        return done.stderr

    def _environment(self) -> list[str]:
        """The Python that has what the trainer needs; templates make one where the tests have it already."""
        # What a framework of its time does, and its successors warn of, is no mistake of the template.
        own = ["trainer.venv=", "trainer.setup=", "trainer.env.PYTHONWARNINGS=ignore"]
        settings = own if self.case.environment else []
        return [word for text in (*settings, f"trainer.python={self.python}") for word in ("--set", text)]

    def succeed(self) -> None:
        done = self.user.run("wait", timeout_s=PATIENCE_S)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.logs()}"

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Tells the logs if it comes to nothing."""
        try:
            eventually(condition, PATIENCE_S, what, every_s=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.user.run('status').stdout}\n{self.logs()}") from None

    def logs(self) -> str:
        return self.user.run("logs", "-n", "200").stdout

    def resumed_at(self) -> int:
        """Where the lead of the newest run began: what it has restored."""
        found = re.search(r"starts at step (\d+)", self.user.dtctl("logs", self.case.lead, "-n", "all"))
        assert found
        return int(found[1])

    def check_what_it_learnt(self, home: Path, goal: int) -> None:
        """By the result that it writes, and by its checkpoints as dtctl reads them."""
        result = json.loads((home / self.output / "result.json").read_text())
        assert result["step"] >= goal
        assert result["held_out_accuracy"] > self.case.bound
        assert f"held-out accuracy {result['held_out_accuracy']:.4f}" in self.user.dtctl("logs", "-n", "all")
        if self.case.has_tensorflow_checkpoints:
            found = json.loads(self.user.dtctl("checkpoints", "-o", "json"))["checkpoints"]
            assert max(one["newestComplete"]["step"] for one in found if one["newestComplete"]) >= goal - 1
            assert not any(one["newerIncomplete"] for one in found)

    def check_that_it_can_be_restored(self, home: Path, goal: int) -> None:
        """By the framework itself, which takes another start of it."""
        assert self.case.restore(self.python, home / self.output) >= goal - 1

    # On this machine, from the agents' own files: each `dtctl status` would take half a second from those who train.

    def tasks(self) -> dict[str, Any]:
        """Those of the newest run."""
        runs = sorted((self.user.home / ".dtctl" / "runs").iterdir(), key=lambda run: run.stat().st_mtime)
        found: dict[str, Any] = {}
        for state in runs[-1].glob("*/state.json"):
            found |= json.loads(state.read_text())["tasks"]
        return found

    def step(self) -> int:
        """The one that the lead has reported last."""
        return int(self.tasks()[self.case.lead]["step"] or 0)

    def trains_beyond(self, step: int) -> None:
        self.wait_until(lambda: self.step() > step, f"a step after {step}")

    def restarted(self) -> set[str]:
        return {name for name, task in self.tasks().items() if task["attempt"] > 1}

    def is_whole(self) -> bool:
        return {task["state"] for task in self.tasks().values()} == {"running"}
