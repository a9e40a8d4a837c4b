"""Synchronous training with MultiWorkerMirroredStrategy and Keras' `fit`: a small network learns to read digits.

What train.py does by a loop of its own, `fit` and a callback do here, that of tf_keras: the Keras 2 which lives on
beside Keras 3, whose `fit` does not run under this strategy in TensorFlow 2.21. Started as train.py is.
"""

import argparse
import math


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits by Keras' fit.", allow_abbrev=False)
    add = parser.add_argument
    add("--train_steps", type=int, default=1000, help="updates, which all workers make together")
    add("--batch_size", type=int, default=64, help="images in a step, of all workers together")
    add("--learning_rate", type=float, default=0.002)
    add("--log_steps", type=int, default=100, help="steps between two lines of the log")
    add("--output_dir", default="output", help="for checkpoints and the result; only that of worker 0 is used")
    add("--save_steps", type=int, default=250, help="steps between checkpoints")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()

import tensorflow as tf  # noqa: E402
import tf_keras as keras  # noqa: E402
from checkpoints import LeadCheckpoints  # noqa: E402
from digits import load_data, report  # noqa: E402
from graceful import Stop  # noqa: E402


class Steps(keras.callbacks.Callback):
    """Counts steps where Keras counts epochs; saves, and stops on SIGTERM. Every worker has one: all save together."""

    def __init__(self, strategy, step, checkpoints):
        super().__init__()
        self.stop = Stop(strategy, every=5)
        self._step, self._checkpoints, self._replicas = step, checkpoints, strategy.num_replicas_in_sync

    def on_train_batch_end(self, batch, logs=None):
        step = int(self._step.numpy())
        if step % FLAGS.log_steps == 0:
            # Keras' metrics, since the beginning of the epoch. It adds up those of the replicas.
            loss, accuracy = (logs[name] / self._replicas for name in ("loss", "accuracy"))
            print(f"step {step}  loss {loss:.4g}  accuracy {accuracy:.2f}", flush=True)
        if step % FLAGS.save_steps == 0:
            self._checkpoints.save()
        if step >= FLAGS.train_steps or self.stop.due():
            self.model.stop_training = True


def main():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits for all workers
    worker = strategy.cluster_resolver.task_id or 0  # without TF_CONFIG it is alone
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input([64]), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)]
        )
        optimizer = keras.optimizers.Adam(FLAGS.learning_rate)
        optimizer.build(model.trainable_variables)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
    step = optimizer.iterations
    checkpoints = LeadCheckpoints(
        strategy, tf.train.Checkpoint(model=model, optimizer=optimizer), step, FLAGS.output_dir
    )
    first = checkpoints.restore([*model.variables, *optimizer.variables])

    (seen, seen_labels), (held_out, held_out_labels) = load_data()
    # All workers shuffle alike, and of each batch a worker takes its own part: `fit` sees to that.
    batches = tf.data.Dataset.from_tensor_slices((seen, seen_labels)).shuffle(len(seen), seed=first).repeat()
    steps_per_epoch = len(seen) // FLAGS.batch_size
    epochs = math.ceil((FLAGS.train_steps - first) / steps_per_epoch)
    print(f"worker {worker} starts at step {first}", flush=True)
    steps = Steps(strategy, step, checkpoints)
    if first < FLAGS.train_steps:
        model.fit(
            batches.batch(FLAGS.batch_size),
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            callbacks=[steps],
            verbose=0,
        )
    checkpoints.save()
    steps.stop.exit_if_due()
    examination = tf.data.Dataset.from_tensor_slices((held_out, held_out_labels)).batch(FLAGS.batch_size)
    _, accuracy = model.evaluate(examination, verbose=0)
    if worker == 0:
        report(FLAGS.output_dir, int(step.numpy()), accuracy)


if __name__ == "__main__":
    tf.io.gfile.makedirs(FLAGS.output_dir)
    main()
