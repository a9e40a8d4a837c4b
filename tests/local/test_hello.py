"""The smallest template, as a new user tries it: no TensorFlow, no sshd, a few seconds."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtctl.operations.init import about_template, template_names
from tests.desk import Desk, desk
from tests.waiting import eventually


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home", name="hello") as made:
        made.dtctl("init", "--template", "hello")
        yield made


def learnt(user: Desk) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((user.home / "dtctl" / user.project.name / "output" / "model.json").read_text())
    return found


def is_the_line(model: dict[str, Any]) -> bool:
    return bool(abs(model["slope"] - 3) < 0.2 and abs(model["offset"] + 1) < 0.1)


def test_every_template_says_when_to_choose_it(newcomer: Desk) -> None:
    shown = newcomer.dtctl("init", "--list")
    for name in template_names():
        assert name in shown
        assert about_template(name)[:40] in shown


def test_what_a_trainer_needs_is_told_by_its_template_alone(tmp_path: Path) -> None:
    with desk(tmp_path / "home", name="hello") as made:
        (made.project / "requirements.txt").write_text("# of another program\nflask\n")
        assert "it needs" not in made.run("init", "--template", "hello").stderr
        assert "it needs tensorflow" in made.run("init", "elsewhere").stderr


def test_it_learns_and_ends(newcomer: Desk) -> None:
    shown = newcomer.dtctl("up", "--local", "-f")
    assert "y = 3." in shown or "y = 2." in shown
    assert newcomer.outcome() == "Succeeded"
    model = learnt(newcomer)
    assert model["step"] == 300
    assert is_the_line(model)


def test_it_goes_on_after_a_stop_and_after_a_kill(newcomer: Desk) -> None:
    newcomer.dtctl("up", "--local", "--set", "trainer.args.train_steps=1000000")
    eventually(lambda: "step 100 " in newcomer.dtctl("logs", "worker:0"), what="steps")
    newcomer.dtctl("stop")
    saved = learnt(newcomer)["step"]
    assert saved >= 100
    goal = saved + 800  # eight seconds
    newcomer.dtctl("up", "--local", "--set", f"trainer.args.train_steps={goal}")
    eventually(lambda: f"begins at step {saved}\n" in newcomer.dtctl("logs", "worker:0"), what="the beginning")
    eventually(lambda: learnt(newcomer)["step"] > saved, what="another save")
    os.kill(newcomer.task("worker:0")["pid"], signal.SIGKILL)
    newcomer.dtctl("wait", timeout_s=120)
    assert newcomer.task("worker:0")["restarts"] == 1
    assert learnt(newcomer)["step"] == goal
    assert is_the_line(learnt(newcomer))
