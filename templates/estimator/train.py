"""tf.estimator.train_and_evaluate on a cluster: a small network learns to read handwritten digits.

The last TensorFlow that has it is 2.15. An Estimator finds its place in TF_CONFIG, and `train_and_evaluate` does what
is each task's part: the ps serves the variables, the master and the workers train on them without waiting for each
other, the master also saves, and the evaluator examines the newest checkpoint again and again.

dtctl starts every task and gives it its TF_CONFIG. By hand:

    TF_CONFIG='{"cluster": {"master": ["a:2222"], "ps": ["b:2222"], "worker": ["c:2222"]},
                "task": {"type": "worker", "index": 0}}' python train.py
"""

import argparse
import json
import os


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits with an Estimator.", allow_abbrev=False)
    add = parser.add_argument
    add("--train_steps", type=int, default=3000, help="updates by all who train together")
    add("--batch_size", type=int, default=64)
    add("--learning_rate", type=float, default=0.001)
    add("--log_steps", type=int, default=250, help="updates between two lines of the log")
    add("--output_dir", default="output", help="for checkpoints, summaries and the result")
    add("--save_secs", type=int, default=30, help="seconds between checkpoints")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from graceful import Stop  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from tensorflow.compat import v1  # noqa: E402

v1.logging.set_verbosity(v1.logging.ERROR)  # less about what is deprecated


def load_data():
    """1797 images of 8 x 8 pixels, a fifth of them held out: (training images and labels), (held-out ones)."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return (seen, seen_labels), (held_out, held_out_labels)


def training_input():
    seen, _ = load_data()
    return tf.data.Dataset.from_tensor_slices(seen).shuffle(len(seen[0])).repeat().batch(FLAGS.batch_size)


def held_out_input():
    _, held_out = load_data()
    return tf.data.Dataset.from_tensor_slices(held_out).batch(len(held_out[0]))


def dense(name, inputs, width):
    weights = v1.get_variable(f"{name}/weights", [inputs.shape[-1], width])
    return tf.matmul(inputs, weights) + v1.get_variable(f"{name}/biases", [width], initializer=tf.zeros_initializer())


def digits(features, labels, mode, config):
    """The model function: one hidden layer."""
    logits = dense("digits", tf.nn.relu(dense("hidden", features, 128)), 10)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    guesses = tf.argmax(logits, axis=1)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"accuracy": v1.metrics.accuracy(labels, guesses)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    step = v1.train.get_global_step()
    accuracy = tf.reduce_mean(tf.cast(tf.equal(guesses, labels), tf.float32))
    update = v1.train.AdamOptimizer(FLAGS.learning_rate).minimize(loss, global_step=step)
    # All of a checkpoint on the master's disk. Sharded, which is an Estimator's default, each ps writes a part on its
    # own machine, and merging them fails unless all see the same directory.
    saver = v1.train.Saver(sharded=False, save_relative_paths=True, max_to_keep=config.keep_checkpoint_max)
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=update,
        scaffold=v1.train.Scaffold(saver=saver),
        training_hooks=[Progress(f"{config.task_type} {config.task_id}", step, loss, accuracy)],
    )


class Progress(v1.train.SessionRunHook):
    """Prints where training begins, also after the loss of a ps, and how it goes on."""

    def __init__(self, task, *watched):
        self.task, self.watched = task, watched

    def after_create_session(self, session, coord):
        step = session.run(self.watched[0])
        print(f"{self.task} starts at step {step}", flush=True)
        self.next_line = step + FLAGS.log_steps

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.watched)

    def after_run(self, run_context, run_values):
        step, loss, accuracy = run_values.results
        if step >= self.next_line:
            print(f"step {step}  loss {loss:.4g}  accuracy {accuracy:.2f}", flush=True)
            self.next_line += FLAGS.log_steps


class Announce(tf.estimator.Exporter):
    """What becomes of each evaluation: a line. A FinalExporter would write a SavedModel here."""

    name = "announce"

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        print(f"evaluated step {eval_result['global_step']}: accuracy {eval_result['accuracy']:.4f}", flush=True)


def let_an_evaluator_in():
    """Renames the master to chief for an evaluator: an Estimator requires it. The evaluator connects to no task."""
    place = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if place.get("task", {}).get("type") == "evaluator" and "master" in place["cluster"]:
        place["cluster"]["chief"] = place["cluster"].pop("master")
        os.environ["TF_CONFIG"] = json.dumps(place)


def main():
    let_an_evaluator_in()
    config = tf.estimator.RunConfig(
        model_dir=FLAGS.output_dir,  # the newest checkpoint that is there is where training begins
        save_checkpoints_secs=FLAGS.save_secs,
        keep_checkpoint_max=30,  # an evaluator that is slow to begin still finds the one that it has chosen
        save_summary_steps=100,
    )
    estimator = tf.estimator.Estimator(digits, config=config)
    stop = Stop()
    training = tf.estimator.TrainSpec(training_input, max_steps=FLAGS.train_steps, hooks=[stop.hook()])
    # A master evaluates by itself too, at most every throttle_secs. Meanwhile it does not train: it leaves it to the
    # evaluator, which starts at once and looks for a new checkpoint every second.
    often = config.task_type == "evaluator"
    evaluation = tf.estimator.EvalSpec(
        held_out_input,
        steps=None,
        name="held_out",
        exporters=Announce() if often else None,
        start_delay_secs=0,
        throttle_secs=1 if often else 24 * 3600,
    )
    print(f"{config.task_type} {config.task_id} is at work", flush=True)
    # A ps never returns from here and handles no Python signals: SIGTERM ends it at once, which loses nothing.
    tf.estimator.train_and_evaluate(estimator, training, evaluation)
    if config.is_chief:
        report(estimator.evaluate(held_out_input, name="final"))
    stop.exit_if_due()


def report(result):
    """What the master has to say at the end."""
    step, accuracy = int(result["global_step"]), float(result["accuracy"])
    if step < FLAGS.train_steps:
        print(f"stopped at step {step}; the next start goes on from there", flush=True)
        return
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    path = os.path.join(FLAGS.output_dir, "result.json")
    with tf.io.gfile.GFile(path + ".new", "w") as file:
        json.dump({"step": step, "held_out_accuracy": accuracy}, file)
    tf.io.gfile.rename(path + ".new", path, overwrite=True)


if __name__ == "__main__":
    tf.io.gfile.makedirs(FLAGS.output_dir)
    main()
