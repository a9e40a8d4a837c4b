"""Checkpoints as the real libraries write them: listed, verified, pulled, set aside if damaged, and continued from."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.checkpoints.repair import repair_directory
from tests.desk import desk
from tests.environments import environment

pytestmark = [pytest.mark.training, pytest.mark.timeout(900)]

SAVERS = Path(__file__).with_name("savers.py")
NIGHTLY = [
    pytest.param(kind, marks=pytest.mark.nightly)
    for kind in ("torch", "safetensors", "dcp", "accelerate", "lightning", "huggingface")
]
RESUMED = [one for one in NIGHTLY if one.values[0] != "safetensors"]
"""What a training continues from; of weights alone nothing is set aside."""
NAMES = {
    "torch": "model_step_{}.pt",
    "safetensors": "model_step_{}.safetensors",
    "dcp": "step-{}",
    "accelerate": "step_{}",
    "lightning": "epoch=0-step={}.ckpt",
    "huggingface": "checkpoint-{}",
}
CLUSTER = """\
name: savers
hosts: {{node-1: {{transport: local}}}}
jobs: {{worker: {{hosts: [node-1]}}}}
trainer: {{command: [python, train.py], dialect: none}}
dirs: {{output: {output}}}
"""


def command(kind: str, directory: Path, steps: int, pause: float = 0.0) -> list[str]:
    python = sys.executable if kind == "keras" else str(environment("torch-libraries"))
    return [python, str(SAVERS), kind, str(directory), str(steps), str(pause)]


def continued(kind: str, directory: Path, steps: int) -> int:
    """Trains up to so many steps, and returns the one from which it continued."""
    done = subprocess.run(command(kind, directory, steps), capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    [step] = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("continues from ")]
    return int(step)


def damage(path: Path) -> None:
    """Cuts the largest file short, as a full disk does."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    largest = max(files, key=lambda one: one.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


@pytest.mark.parametrize("kind", NIGHTLY)
def test_what_a_library_saves_is_listed_verified_and_pulled(kind: str, tmp_path: Path) -> None:
    output, name = tmp_path / "output", NAMES[kind].format(2)
    assert continued(kind, output, 2) == 0
    with desk(tmp_path / "home", name="savers") as user:
        (user.project / "train.py").touch()
        (user.project / "cluster.yaml").write_text(CLUSTER.format(output=output))
        [place] = json.loads(user.dtctl("checkpoints", "-o", "json"))["checkpoints"]
        found = {one["prefix"]: (one["kind"], one["step"], one["complete"]) for one in place["all"]}
        assert found[name] == (kind, 2, True)
        assert found[NAMES[kind].format(1)] == (kind, 1, True)
        user.dtctl("checkpoints", "verify", "--all")
        user.dtctl("checkpoints", "pull", name, "here")
        pulled = user.project / "here"
        if kind == "lightning":  # it continues from a file of this name alone
            (pulled / name).rename(pulled / "last.ckpt")
        assert continued(kind, pulled, 3) == 2
        damage(output / name)
        assert "damaged" in user.dtctl("checkpoints", "verify", name, code=1)
        assert f"{name}" in user.dtctl("checkpoints")


DEFAULTS = {
    "lightning-default": ("lightning", "lightning_logs/version_{version}/checkpoints/epoch=0-step={step}.ckpt"),
    "accelerate-default": ("accelerate", "checkpoints/checkpoint_{index}"),
    "huggingface-default": ("huggingface", "trainer_output/checkpoint-{step}"),
}
"""What each library chooses itself where a program names only a directory, or none."""


@pytest.mark.nightly
@pytest.mark.parametrize("kind", DEFAULTS)
def test_where_a_library_saves_by_default_dtctl_does_its_work(kind: str, tmp_path: Path) -> None:
    output, (row, name) = tmp_path / "output", DEFAULTS[kind]
    output.mkdir()
    assert continued(kind, output, 2) == 0
    assert continued(kind, output, 4) == 2  # Lightning saves it elsewhere than the first two
    names = [name.format(version=(step - 1) // 2, step=step, index=step - 1) for step in (1, 2, 3, 4)]
    with desk(tmp_path / "home", name="savers") as user:
        (user.project / "train.py").touch()
        (user.project / "cluster.yaml").write_text(CLUSTER.format(output=output))
        [place] = json.loads(user.dtctl("checkpoints", "-o", "json"))["checkpoints"]
        found = {one["prefix"]: (one["kind"], one["complete"]) for one in place["all"]}
        assert {one: found.get(one) for one in names} == dict.fromkeys(names, (row, True))
        assert place["newestComplete"]["prefix"] == names[-1]
        user.dtctl("checkpoints", "verify", "--all")
        user.dtctl("checkpoints", "pull", "here")
        assert (user.project / "here" / Path(names[-1]).name).exists()
        damage(output / names[-1])
        assert "damaged" in user.dtctl("checkpoints", "verify", names[-1], code=1)
        assert repair_directory(str(output))
        assert (output / names[-1]).parent.joinpath("damaged", Path(names[-1]).name).exists()
        assert continued(kind, output, 5) == 3
        user.dtctl("checkpoints", "prune", "--keep", "1", "-y")
        assert not (output / names[0]).exists()


@pytest.mark.parametrize("kind", RESUMED)
def test_training_continues_from_the_older_one_when_the_newest_was_cut_off(kind: str, tmp_path: Path) -> None:
    continued(kind, tmp_path, 3)
    damage(tmp_path / NAMES[kind].format(3))
    if kind == "lightning":
        damage(tmp_path / "last.ckpt")
    assert repair_directory(str(tmp_path))
    assert continued(kind, tmp_path, 4) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("kind", RESUMED)
def test_after_a_kill_in_a_save_training_continues_from_the_newest_whole_one(kind: str, tmp_path: Path) -> None:
    for _ in range(3):
        process = subprocess.Popen(command(kind, tmp_path, 100_000), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            next(line for line in process.stdout if line.startswith("continues from "))
            time.sleep(random.uniform(0.0, 1.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
        newest = reading.newest([str(tmp_path)])
        repair_directory(str(tmp_path), scratch=newest is None)  # a kill in the very first save leaves no other
        last = newest["step"] if newest is not None and newest["step"] is not None else 0
        assert continued(kind, tmp_path, last + 1) == last


def test_the_backup_of_keras_and_the_second_one_are_found_and_read_by_keras(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert continued("keras", output, 3) == 0
    (report,) = reading.report([str(output)])
    assert {one["prefix"] for one in report["all"]} == {"latest.weights.h5", "latest.weights.h5.bkp"}
    assert all(one["complete"] for one in report["all"])
    damage(output / "latest.weights.h5")
    (report,) = reading.report([str(output)])
    assert {one["prefix"]: one["complete"] for one in report["all"]} == {
        "latest.weights.h5": False,
        "latest.weights.h5.bkp": True,
    }
    assert repair_directory(str(output)) == []
    assert continued("keras", output, 4) == 2
