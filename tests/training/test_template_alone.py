"""The trainer that `dtctl init` writes, started by hand as any trainer of its kind."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.operations.init import templates_directory
from dtctl.trainer import SAVED
from tests.training.by_hand import TaskByHand, cluster_by_hand
from tests.training.nursery import DEADLINE_S, Nursery, nursery
from tests.waiting import eventually

pytestmark = [
    pytest.mark.training,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("sklearn") is None,
        reason="needs tensorflow and scikit-learn",
    ),
]


@pytest.fixture(scope="module")
def trainers() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


def test_a_wrong_flag_is_reported_without_importing_tensorflow() -> None:
    # -S: no site-packages, so no TensorFlow.
    trainer = templates_directory() / "ps-async" / "train.py"
    done = subprocess.run([sys.executable, "-S", trainer, "--ps_host=a:1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--ps_hosts" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_two_ps_and_two_workers_learn_and_only_the_chief_needs_a_disk(trainers: Nursery, tmp_path: Path) -> None:
    with cluster_by_hand(trainers, tmp_path, "--train_steps=1500", ps=2, workers=2) as tasks:
        chief, other = tasks["worker:0"], tasks["worker:1"]
        assert chief.wait() == 0, chief.printed()
        assert other.wait() == 0, other.printed()
        for ps in (tasks["ps:0"], tasks["ps:1"]):
            ps.ask_to_stop()
            assert ps.wait() == SAVED, ps.printed()

    result = json.loads((chief.directory / "output" / "result.json").read_text())
    assert result["held_out_accuracy"] > 0.95
    assert f"held-out accuracy {result['held_out_accuracy']:.4f}" in chief.printed()
    assert chief.find(r"^step \d+  loss [\d.]+(?:e-\d+)?  accuracy [01]\.\d\d$")

    # The other worker may still end a step of its own after the chief has looked.
    own_steps = [int(task.find(r"made (\d+) steps")[0]) for task in (chief, other)]
    assert min(own_steps) > 0
    assert 0 <= sum(own_steps) - result["step"] <= 1
    assert 0 <= result["step"] - step_of(newest_checkpoint(chief)) <= 1

    assert shards(chief) == {"00000-of-00001"}
    assert [name for name in ("ps:0", "ps:1", "worker:1") if any((tasks[name].directory / "output").iterdir())] == []


@pytest.mark.nightly
def test_training_goes_on_where_sigterm_ended_it_even_when_its_directory_has_moved(
    trainers: Nursery, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    with cluster_by_hand(trainers, before, "--train_steps=1000000", "--log_steps=50", ps=1, workers=2) as tasks:
        chief, other = tasks["worker:0"], tasks["worker:1"]
        eventually(lambda: len(chief.find(r"^step ")) >= 2 and other.find(r"^step "), DEADLINE_S, "steps of both")
        for worker in (chief, other):
            worker.ask_to_stop()
        assert chief.wait() == SAVED, chief.printed()
        assert other.wait() == SAVED, other.printed()
    stopped_at = int(chief.find(r"^stopped at step (\d+)")[0])
    saved_at = step_of(newest_checkpoint(chief))
    assert 100 <= saved_at <= stopped_at
    assert not (chief.directory / "output" / "result.json").exists()

    before.rename(after)
    last = stopped_at + 200
    with cluster_by_hand(trainers, after, f"--train_steps={last}", ps=1, workers=1) as tasks:
        chief = tasks["worker:0"]
        assert chief.wait() == 0, chief.printed()
    first = int(chief.find(r"^worker 0 starts at step (\d+)")[-1])
    assert saved_at <= first <= stopped_at
    assert result_of(chief)["step"] == last


@pytest.mark.nightly
def test_starting_it_again_after_the_last_step_trains_no_further_step(trainers: Nursery, tmp_path: Path) -> None:
    checkpoints = []
    for _ in range(2):
        with cluster_by_hand(trainers, tmp_path, "--train_steps=300", ps=1, workers=2) as tasks:
            chief, other = tasks["worker:0"], tasks["worker:1"]
            assert chief.wait() == 0, chief.printed()
            assert other.wait() == 0, other.printed()
        # An index holds a checksum of every variable.
        checkpoints.append((newest_checkpoint(chief).name, newest_checkpoint(chief).read_bytes()))
    assert chief.find(r"made (\d+) steps")[-1] == "0"
    assert other.find(r"made (\d+) steps")[-1] == "0"
    assert checkpoints[1] == checkpoints[0]
    assert 300 <= result_of(chief)["step"] <= 300 + 2  # each of two workers may be in the midst of one more


@pytest.mark.nightly
def test_sharded_checkpoints_are_written_by_the_ps_tasks_into_the_shared_directory(
    trainers: Nursery, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    flags = ["--sharded", f"--output_dir={shared}"]
    for last in (150, 300):
        with cluster_by_hand(trainers, tmp_path, *flags, f"--train_steps={last}", ps=2, workers=1) as tasks:
            chief = tasks["worker:0"]
            assert chief.wait() == 0, chief.printed()
        assert {path.name for path in shared.glob(f"model.ckpt-{last}.data-*")} == {
            f"model.ckpt-{last}.data-0000{shard}-of-00002" for shard in range(2)
        }
    assert chief.find(r"starts at step (\d+)") == ["0", "150"]


def newest_checkpoint(task: TaskByHand) -> Path:
    """By its index, as the file `checkpoint` names it: relative, so that the directory can move."""
    output = task.directory / "output"
    match = re.match(r'model_checkpoint_path: "([^"/]+)"', (output / "checkpoint").read_text())
    assert match is not None
    return output / f"{match[1]}.index"


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.rpartition("-")[2])


def shards(task: TaskByHand) -> set[str]:
    return {path.name.partition(".data-")[2] for path in (task.directory / "output").glob("model.ckpt-*.data-*")}


def result_of(task: TaskByHand) -> dict[str, float]:
    result: dict[str, float] = json.loads((task.directory / "output" / "result.json").read_text())
    return result
