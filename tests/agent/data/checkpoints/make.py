"""Writes the checkpoints beside this file with the TensorFlow that is installed (last done with 2.21).

Each is as a program of its kind writes it, only small. It is run as a script, from anywhere.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).parent
tf1 = tf.compat.v1


def fresh(name: str) -> Path:
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def tf1_saver(name: str, steps: list[int], devices: list[str], sharded: bool) -> None:
    """A Saver with the variables on `devices`, as a ps job has them, one of them partitioned."""
    directory = fresh(name)
    with tf.Graph().as_default():
        global_step = tf1.train.create_global_step()
        for number, device in enumerate(devices):
            with tf.device(device):
                tf1.get_variable(f"weights_{number}", initializer=tf.ones([4 + number, 3]))
        tf1.get_variable("embedding", [8, 2], partitioner=tf1.fixed_size_partitioner(2))
        saver = tf1.train.Saver(sharded=sharded, max_to_keep=None)
        with tf1.Session(config=tf1.ConfigProto(device_count={"CPU": len(devices)})) as session:
            session.run(tf1.global_variables_initializer())
            for step in steps:
                session.run(global_step.assign(step))
                saver.save(session, str(directory / "model.ckpt"), global_step=step, write_meta_graph=False)


def tf2_with_step() -> None:
    """A program that counts its steps in a variable; the number in the name counts the checkpoints."""
    step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(step=step, weights=tf.Variable(tf.ones([3, 2])))
    manager = tf.train.CheckpointManager(checkpoint, str(fresh("tf2_step")), max_to_keep=None)
    for value in (500, 1000):
        step.assign(value)
        manager.save()


def tf2_without_step() -> None:
    """One with a number in the name that only counts checkpoints, and one whose name holds the step."""
    directory = fresh("tf2_counter")
    tf.train.Checkpoint(weights=tf.Variable(tf.ones([3, 2]))).save(str(directory / "ckpt"))
    tf.train.Checkpoint(weights=tf.Variable(tf.ones([3, 2]))).write(str(directory / "weights-750"))


def tf2_with_optimizer() -> None:
    """A program whose optimizer counts the steps, below the directory that is looked at."""
    optimizer = tf.Module()
    optimizer.iterations = tf.Variable(320, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, weights=tf.Variable(tf.ones([3, 2])))
    directory = fresh("tf2_optimizer")
    (directory / "chief").mkdir()
    checkpoint.save(str(directory / "chief" / "ckpt"))


if __name__ == "__main__":
    tf1_saver("tf1_plain", [100, 200], ["/cpu:0"], sharded=False)
    tf1_saver("tf1_sharded", [300], ["/cpu:0", "/cpu:1"], sharded=True)
    tf2_with_step()
    tf2_without_step()
    tf2_with_optimizer()
    for listing in HERE.glob("**/checkpoint"):
        listing.unlink()  # holds absolute paths
