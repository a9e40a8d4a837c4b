"""One machine, several devices: a small network learns to read handwritten digits on all of its GPUs at once.

Synchronous data parallelism in one process, in its two classic ways. Each step's batch is dealt out to the devices:

    towers      by hand: variables on the CPU, a copy of the computation on each device, the mean of the gradients
    mirrored    tf.distribute.MirroredStrategy: a copy of the variables on each device, gradients all-reduced

Without a GPU the CPU is divided into logical devices, which shows how it works and gains nothing.

dtctl starts it and says how many GPUs it has. By hand:

    python train.py --strategy=mirrored --num_gpus=4
"""

import argparse
import json
import os
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits on several devices.", allow_abbrev=False)
    add = parser.add_argument
    add("--strategy", choices=["towers", "mirrored"], default="towers")
    add("--num_gpus", type=int, default=0, help="0 trains on the CPU")
    add("--cpu_towers", type=int, default=2, help="logical devices of a CPU that trains")
    add("--train_steps", type=int, default=1500)
    add("--batch_size", type=int, default=64, help="images in one step, on all devices together")
    add("--learning_rate", type=float, default=0.001)
    add("--log_steps", type=int, default=100, help="steps between two lines of the log")
    add("--output_dir", default="output", help="for checkpoints and the result")
    add("--save_secs", type=float, default=30, help="seconds between checkpoints")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from graceful import Stop  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402


def load_data():
    """1797 images of 8 x 8 pixels, a fifth of them held out: (training images and labels), (held-out ones)."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return (seen, seen_labels), (held_out, held_out_labels)


def find_devices():
    """The names of those that train. Logical devices have to be made before TensorFlow looks at any."""
    if FLAGS.num_gpus:
        gpus = tf.config.list_logical_devices("GPU")
        if len(gpus) < FLAGS.num_gpus:
            raise SystemExit(f"TensorFlow finds {len(gpus)} GPUs here, not {FLAGS.num_gpus}")
        return [gpu.name for gpu in gpus[: FLAGS.num_gpus]]
    tf.config.set_visible_devices([], "GPU")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * FLAGS.cpu_towers)
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def build_network():
    layers = [tf.keras.Input([64]), tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)
    optimizer = tf.keras.optimizers.Adam(FLAGS.learning_rate)
    optimizer.build(model.trainable_variables)  # at once, so that a checkpoint finds its variables
    return model, optimizer


def examine(model, images, labels):
    """(losses, hits), both with one number for each image."""
    logits = model(images)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return losses, tf.cast(tf.argmax(logits, axis=1) == labels, tf.float32)


def towers(model, optimizer, devices):
    """A step of training by hand: (images, labels) -> (loss, accuracy)."""

    @tf.function
    def train_step(images, labels):
        image_shares, label_shares = tf.split(images, len(devices)), tf.split(labels, len(devices))
        tower_gradients, tower_losses, tower_accuracies = [], [], []
        for tower, device in enumerate(devices):
            with tf.device(device):  # reads the variables from the CPU
                with tf.GradientTape() as tape:
                    losses, hits = examine(model, image_shares[tower], label_shares[tower])
                    loss = tf.reduce_mean(losses)
                tower_gradients.append(tape.gradient(loss, model.trainable_variables))
                tower_losses.append(loss)
                tower_accuracies.append(tf.reduce_mean(hits))
        with tf.device("CPU:0"):
            gradients = tf.nest.map_structure(lambda *of_towers: tf.reduce_mean(of_towers, axis=0), *tower_gradients)
            optimizer.apply(gradients, model.trainable_variables)
            return tf.reduce_mean(tower_losses), tf.reduce_mean(tower_accuracies)

    return train_step


def mirrored(model, optimizer, strategy):
    """The same by a strategy."""

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            losses, hits = examine(model, images, labels)
            # The replica's part of the whole batch's mean: the optimizer adds the gradients up over the replicas.
            loss = tf.nn.compute_average_loss(losses, global_batch_size=FLAGS.batch_size)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss, tf.nn.compute_average_loss(hits, global_batch_size=FLAGS.batch_size)

    @tf.function
    def train_step(images, labels):
        parts = strategy.run(replica_step, args=(images, labels))
        return [strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None) for part in parts]

    return train_step


def train():
    devices = find_devices()
    if FLAGS.batch_size % len(devices):
        raise SystemExit(f"--batch_size={FLAGS.batch_size} cannot be dealt out evenly to {len(devices)} devices")
    (seen, seen_labels), held_out = load_data()
    examples = tf.data.Dataset.from_tensor_slices((seen, seen_labels))
    batches = examples.shuffle(len(seen)).repeat().batch(FLAGS.batch_size)

    if FLAGS.strategy == "mirrored":
        strategy = tf.distribute.MirroredStrategy(devices)
        with strategy.scope():
            model, optimizer = build_network()
        train_step = mirrored(model, optimizer, strategy)
        batches = strategy.experimental_distribute_dataset(batches)
    else:
        with tf.device("CPU:0"):
            model, optimizer = build_network()
        train_step = towers(model, optimizer, devices)

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=tf.Variable(0, dtype=tf.int64))
    manager = tf.train.CheckpointManager(checkpoint, FLAGS.output_dir, max_to_keep=3)
    checkpoint.restore(manager.latest_checkpoint)  # None: starts from the beginning
    first = int(checkpoint.step)
    print(f"worker 0 starts at step {first} on {', '.join(devices)}", flush=True)

    step, next_save, stop, batches = first, time.monotonic() + FLAGS.save_secs, Stop(), iter(batches)
    for step in stop.between(range(first + 1, FLAGS.train_steps + 1)):
        loss, accuracy = train_step(*next(batches))
        checkpoint.step.assign(step)
        if step % FLAGS.log_steps == 0:
            print(f"step {step}  loss {float(loss):.4g}  accuracy {float(accuracy):.2f}", flush=True)
        if time.monotonic() >= next_save:
            manager.save(checkpoint_number=step)
            next_save = time.monotonic() + FLAGS.save_secs
    if step > first:
        manager.save(checkpoint_number=step)
    if step >= FLAGS.train_steps:
        _, hits = examine(model, *held_out)
        report(step, float(tf.reduce_mean(hits)))
    stop.exit_if_due()


def report(step, accuracy):
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    result = os.path.join(FLAGS.output_dir, "result.json")
    with tf.io.gfile.GFile(result + ".new", "w") as file:
        json.dump({"step": step, "held_out_accuracy": accuracy}, file)
    tf.io.gfile.rename(result + ".new", result, overwrite=True)


if __name__ == "__main__":
    tf.io.gfile.makedirs(FLAGS.output_dir)
    train()
