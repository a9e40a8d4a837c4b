"""A template as a new user tries it: written by `dtctl init`, started by `dtctl up`, and what it has learnt."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.desk import Desk
from tests.environments import environment
from tests.templates.cases import Case
from tests.waiting import eventually

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
        """The one that the lead has told last."""
        return int(self.tasks()[self.case.lead]["step"] or 0)

    def trains_beyond(self, step: int) -> None:
        self.wait_until(lambda: self.step() > step, f"a step after {step}")

    def restarted(self) -> set[str]:
        return {name for name, task in self.tasks().items() if task["attempt"] > 1}

    def is_whole(self) -> bool:
        return {task["state"] for task in self.tasks().values()} == {"running"}
