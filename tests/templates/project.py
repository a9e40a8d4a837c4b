"""A template as a new user tries it: written by `dtctl init`, started by `dtctl up`, and what it has learnt."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.desk import Desk
from tests.environments import environment
from tests.templates.cases import Case
from tests.waiting import eventually

PATIENCE_S = 240.0
"""Several imports of TensorFlow at once on two busy cores take a minute."""


class Project:
    def __init__(self, user: Desk, case: Case) -> None:
        self.user, self.case = user, case
        user.dtctl("init", "--template", case.template)
        (name,) = re.findall(r"^name: (\S+)", (user.project / "cluster.yaml").read_text(), re.MULTILINE)
        self.output = Path("dtctl", name, "output")
        """Below a home."""
        self.python = str(environment(case.environment)) if case.environment else sys.executable

    def up(self, train_steps: int, *words: str) -> str:
        """What it says besides."""
        words = (*words, *self._environment(), *self.case.overrides(train_steps))
        done = self.user.run("up", *words, timeout_s=PATIENCE_S)
        assert done.returncode == 0, f"{done.stderr}\n{self.logs()}"
        return done.stderr

    def _environment(self) -> list[str]:
        """The Python that has what the trainer needs; templates make one where the tests have it already."""
        settings = ["trainer.venv=", "trainer.setup="] if self.case.environment else []
        return [word for text in (*settings, f"trainer.python={self.python}") for word in ("--set", text)]

    def succeed(self) -> None:
        done = self.user.run("wait", timeout_s=PATIENCE_S)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.logs()}"

    def stop(self) -> None:
        """Everybody saves and ends in time; nobody has to be killed."""
        self.user.dtctl("stop", timeout_s=120)

    def step(self) -> int:
        """The one that the lead has told last."""
        return int(self.user.task(self.case.lead)["step"] or 0)

    def trains_beyond(self, step: int) -> None:
        self.wait_until(lambda: self.step() > step, f"a step after {step}")

    def wait_until(self, condition: Any, what: str) -> None:
        """Looks seldom: each look takes half a second from those who train. Tells the logs if it comes to nothing."""
        try:
            eventually(condition, PATIENCE_S, what, every_s=1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.user.run('status').stdout}\n{self.logs()}") from None

    def restarted(self) -> set[str]:
        return {task["task"] for task in self.user.status()["tasks"] if task["attempt"] > 1}

    def is_whole(self) -> bool:
        return set(self.user.states().values()) == {"running"}

    def logs(self) -> str:
        return self.user.run("logs", "-n", "200").stdout

    def resumed_at(self) -> int:
        """Where the lead of the newest run began."""
        found = re.search(r"starts at step (\d+)", self.user.dtctl("logs", self.case.lead, "-n", "all"))
        assert found
        return int(found[1])

    def check_what_it_learnt(self, home: Path, at_least: int) -> None:
        output = home / self.output
        result = json.loads((output / "result.json").read_text())
        assert result["step"] >= at_least
        assert result["held_out_accuracy"] > self.case.bound
        assert f"held-out accuracy {result['held_out_accuracy']:.4f}" in self.user.dtctl("logs", "-n", "all")
        assert self.case.restore(self.python, output) >= at_least - 1
