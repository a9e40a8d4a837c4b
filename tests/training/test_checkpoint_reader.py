"""TensorFlow's own readers and dtctl's agree, on checkpoints and on event files, good ones and damaged ones."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dtctl.agent.checkpoints.verifying import verify
from tests.unit.agent.metrics.looking import agreed

DATA = Path(__file__).parents[1] / "agent/data/checkpoints"
KINDS = ("flip", "flip", "cut", "zeros", "longer", "gone", "none")
CASES = 150


def damaged(directory: Path, seed: int) -> Path:
    """The prefix of a copy of some checkpoint, one of whose files was damaged in some way, or none."""
    chance = random.Random(seed)
    source = chance.choice(sorted(DATA.rglob("*.index"))).with_suffix("")
    shutil.copytree(source.parent, directory)
    file = chance.choice(sorted(directory.glob(f"{source.name}.*")))
    data, kind = bytearray(file.read_bytes()), chance.choice(KINDS)
    at = chance.randrange(len(data))
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "zeros":
        data[at : at + 16] = bytes(len(data[at : at + 16]))
    elif kind == "longer":
        data += b"more"
    file.write_bytes(data)
    if kind == "gone":
        file.unlink()
    return directory / source.name


def test_tensorflow_can_read_what_is_sound_and_nothing_else(tmp_path: Path) -> None:
    prefixes = [str(damaged(tmp_path / str(seed), seed)) for seed in range(CASES)]
    reader = Path(__file__).with_name("reader.py")
    done = subprocess.run(
        [sys.executable, reader], input="\n".join(prefixes), capture_output=True, text=True, timeout=300, check=True
    )
    reported = done.stdout.splitlines()
    assert len(reported) == CASES
    found = [verify(prefix).problems for prefix in prefixes]
    differing = [
        (seed, reported[seed], found[seed]) for seed in range(CASES) if (reported[seed] == "ok") == bool(found[seed])
    ]
    assert differing == []
    assert 20 < reported.count("ok") < CASES - 20


WRITERS = """
import sys
import tensorflow as tf

out = sys.argv[1]
numbers = {"double": tf.float64, "int": tf.int64, "half": tf.float16, "bfloat": tf.bfloat16}

with tf.compat.v1.Graph().as_default():
    for begin, end in ((0, 30), (20, 40)):  # the second begins at a checkpoint, and says so
        tf1 = tf.compat.v1.summary.FileWriter(out + "/tf1", filename_suffix=".%d" % begin)
        tf1.add_session_log(tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START), begin)
        for step in range(begin, end):
            values = [tf.compat.v1.Summary.Value(tag=tag, simple_value=end / (step + 1)) for tag in ("loss", "lr")]
            tf1.add_summary(tf.compat.v1.Summary(value=values), step)
        tf1.close()

with tf.summary.create_file_writer(out + "/tf2").as_default():
    for step in range(30):
        tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
        for name, kind in numbers.items():
            tf.summary.scalar(name, tf.cast(step, kind), step=step)
        tf.summary.scalar("odd", float("nan") if step % 2 else float("inf"), step=step)
        tf.summary.histogram("weights", tf.random.normal([100]), step=step)
        tf.summary.image("picture", tf.zeros([1, 64, 64, 3]), step=step)
        tf.summary.text("words", "hello", step=step)

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
board = tf.keras.callbacks.TensorBoard(out + "/keras", histogram_freq=1, update_freq=1)
data = tf.random.normal([64, 4]), tf.random.normal([64, 1])
model.fit(*data, validation_data=data, epochs=3, batch_size=16, verbose=0, callbacks=[board])
"""


@pytest.mark.training
@pytest.mark.timeout(900)
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs tensorflow")
@pytest.mark.nightly
def test_all_writers_of_tensorflow_are_read_as_tensorboard_reads_them(tmp_path: Path) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    subprocess.run([sys.executable, "-c", WRITERS, str(tmp_path)], env=env, check=True, timeout=600)
    found = agreed(tmp_path)
    names = {f"{name}/{tag}" for name, tags in found.items() for tag in tags}
    assert {"tf1/loss", "tf1/lr", "tf2/loss", "tf2/double", "tf2/int", "tf2/half", "tf2/bfloat", "tf2/odd"} <= names
    assert {"keras/train/epoch_loss", "keras/validation/epoch_loss"} <= names
    assert [step for step, _ in found["tf1"]["loss"]] == list(range(40))
    assert not names & {"tf2/weights", "tf2/picture", "tf2/words"}
