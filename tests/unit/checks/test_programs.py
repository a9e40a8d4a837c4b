"""What a program's text tells of what it needs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dtctl.config.cluster import Launch, Trainer
from dtctl.operations.checks.programs import Needs, needs_of
from dtctl.plan.run import plan_run
from tests.unit.clusters import cluster, job


def needs(
    directory: Path, text: str, *args: str, command: tuple[str, ...] = ("python", "train.py"), **env: str
) -> Needs:
    (directory / "train.py").write_text(text)
    launch = Launch(command=command, args=args, env=env)
    value = cluster(job("worker", ["a"], [2222], launch=launch), trainer=Trainer(code=directory))
    return needs_of(plan_run(value, {"a": "a"}, local_python="python3")).get("worker", Needs())


def test_modules_of_the_standard_library_are_not_asked_for(tmp_path: Path) -> None:
    assert needs(tmp_path, "import os\nimport numpy\nimport tensorflow as tf\n").modules == ("numpy", "tensorflow")


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("spec = tf.estimator.EstimatorSpec(mode)", {"estimator"}),
        ("tf.compat.v1.estimator.train_and_evaluate()", {"estimator"}),
        ("my_tf.estimator.x", set()),
        ("tf.summary.scalar('loss', loss)", {"summaries"}),
        ("import tensorflow.compat.v1 as tf\ntf.summary.scalar('loss', loss)", {"summaries", "graphs"}),
        ("s = tf.distribute.ParameterServerStrategy(r)\nmodel.fit(data)", {"ps_strategy", "fit", "saves_sharded"}),
        ("import tf_keras\nmodel.fit(data)", {"keras_2", "fit"}),
        ("tf.train.Saver(sharded=False)", {"saves_alone"}),
        ("tf.train.CheckpointOptions(experimental_io_device='/job:chief')", {"saves_alone"}),
        ("with tf.train.MonitoredTrainingSession() as session: pass", {"saves_sharded"}),
    ],
)
def test_what_matters_is_recognised(tmp_path: Path, text: str, used: set[str]) -> None:
    assert needs(tmp_path, text).uses == used


@pytest.mark.parametrize(("args", "how"), [((), "saves_alone"), (("--sharded",), "saves_sharded")])
def test_a_flag_decides_where_the_text_leaves_it_to_one(tmp_path: Path, args: tuple[str, ...], how: str) -> None:
    text = "saver = tf.train.Saver(sharded=FLAGS.sharded)\nwith tf.train.MonitoredTrainingSession(): pass\n"
    assert needs(tmp_path, text, *args).uses == {"saves_as_told", how}


def test_the_environment_may_ask_for_keras_2(tmp_path: Path) -> None:
    assert "keras_2" in needs(tmp_path, "model.fit(data)", TF_USE_LEGACY_KERAS="1").uses


def test_nothing_is_known_of_other_programs(tmp_path: Path) -> None:
    assert needs(tmp_path, "import numpy", command=("bash", "train.sh")) == Needs()


@pytest.mark.parametrize("template", sorted(Path("templates").glob("*/train.py")), ids=lambda path: path.parent.name)
def test_no_template_walks_into_a_trap_of_its_own(template: Path, tmp_path: Path) -> None:
    value = cluster(job("worker", ["a"], [2222]), trainer=Trainer(code=template.parent.absolute()))
    value = dataclasses.replace(value, name="own")
    uses = needs_of(plan_run(value, {"a": "a"}, local_python="python3"))["worker"].uses
    assert not {"fit", "ps_strategy"} <= uses or "keras_2" in uses
    assert "saves_sharded" not in uses or "saves_as_told" in uses
