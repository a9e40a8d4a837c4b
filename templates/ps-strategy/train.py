"""Parameter servers in TensorFlow 2: tf.distribute.ParameterServerStrategy learns to read handwritten digits.

The chief's ClusterCoordinator sends steps of training to whichever worker is free, and the workers do them without
waiting for each other; a lost one is not missed for long. The variables lie on the ps tasks, and a large table in parts
on all of them. Workers and ps tasks are servers that run what they are sent. An evaluator, which has no part in the
training, examines every checkpoint of the chief's.

dtctl starts every task and gives it its place in TF_CONFIG. By hand each task is a process of its own:

    TF_CONFIG='{"cluster": {"chief": ["a:2222"], "ps": ["b:2222"], "worker": ["c:2222", "d:2222"]},
                "task": {"type": "worker", "index": 1}}' python train.py
"""

import argparse
import json
import os
import time
from functools import partial


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits with parameter servers.", allow_abbrev=False)
    add = parser.add_argument
    add("--train_steps", type=int, default=2000, help="updates by all workers together")
    add("--batch_size", type=int, default=64)
    add("--learning_rate", type=float, default=0.001)
    add("--log_steps", type=int, default=100, help="updates between two lines of the log")
    add("--output_dir", default="output", help="for checkpoints and the result")
    add("--save_secs", type=float, default=30, help="seconds between checkpoints")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from graceful import Stop, serve  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

tf.get_logger().setLevel("ERROR")  # each save is traced again, and TensorFlow warns

# A checkpoint lies where the operations that write it run. Here on the chief, all of it. By default each ps writes
# a part on its own machine, and merging them fails unless all see the same directory.
ON_THE_CHIEF = tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0")


def load_data():
    """1797 images of 8 x 8 pixels, a fifth of them held out: (training images and labels), (held-out ones)."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return (seen, seen_labels), (held_out, held_out_labels)


def random_batches(context):
    """Of one worker, in an order of its own."""
    seen, seen_labels = load_data()[0]
    examples = tf.data.Dataset.from_tensor_slices((seen, seen_labels))
    return examples.shuffle(len(seen)).repeat().batch(FLAGS.batch_size).prefetch(1)


class Network(tf.Module):
    """An embedding of the pixels, as if they were words, and the digits.

    A tf.Module, because the layers of Keras 3 cannot hold variables that are divided among ps tasks.
    """

    def __init__(self, pixels=64, width=128):
        super().__init__()
        shape = [pixels, width]
        # Not a value but how to make it: each ps makes its own part of the table.
        vectors = partial(tf.random_normal_initializer(stddev=0.1), shape, tf.float32)
        self.table = tf.Variable(vectors, shape=shape, dtype=tf.float32, name="table")
        self.biases = tf.Variable(tf.zeros([width]), name="biases")
        self.digit_weights = tf.Variable(tf.random.normal([width, 10], stddev=0.1), name="digit_weights")
        self.digit_biases = tf.Variable(tf.zeros([10]), name="digit_biases")

    def __call__(self, images):
        # Here every row is looked up; what a table is divided for has millions, and a batch looks up a few of them.
        vectors = tf.nn.embedding_lookup(self.table, tf.range(images.shape[1]))
        hidden = tf.nn.relu(tf.matmul(images, vectors) + self.biases)
        return tf.matmul(hidden, self.digit_weights) + self.digit_biases


def accuracy_of(network, images, labels):
    return float(tf.reduce_mean(tf.cast(tf.argmax(network(images), axis=1) == labels, tf.float32)))


def train(cluster_resolver):
    """What the chief does."""
    print("chief 0 waits for the ps and worker tasks", flush=True)
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=8 << 10,  # 256 << 10 unless for a toy
        max_shards=cluster_resolver.cluster_spec().num_tasks("ps"),
    )
    strategy = tf.distribute.ParameterServerStrategy(cluster_resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        network = Network()
        optimizer = tf.keras.optimizers.Adam(FLAGS.learning_rate)
        optimizer.build(network.trainable_variables)
        global_step = tf.Variable(0, dtype=tf.int64)

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            logits = network(images)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply(tape.gradient(loss, network.trainable_variables), network.trainable_variables)
        return loss, tf.reduce_mean(tf.cast(tf.argmax(logits, axis=1) == labels, tf.float32))

    @tf.function
    def train_step(batches):
        """What a worker is sent; it does it on each of its GPUs, if it has any."""
        means = strategy.run(replica_step, args=next(batches))
        global_step.assign_add(1)
        return [strategy.reduce(tf.distribute.ReduceOp.MEAN, mean, axis=None) for mean in means]

    batches = iter(
        coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(random_batches))
    )
    checkpoint = tf.train.Checkpoint(network=network, optimizer=optimizer, step=global_step)
    manager = tf.train.CheckpointManager(checkpoint, FLAGS.output_dir, max_to_keep=3)
    checkpoint.restore(manager.latest_checkpoint, ON_THE_CHIEF)  # None: starts from the beginning
    step = int(global_step)
    print(f"chief 0 starts at step {step}", flush=True)

    next_save, stop = time.monotonic() + FLAGS.save_secs, Stop()
    while step < FLAGS.train_steps and not stop.due():
        steps = min(FLAGS.log_steps, FLAGS.train_steps - step)
        scheduled = [coordinator.schedule(train_step, args=(batches,)) for _ in range(steps)]
        # Unlike coordinator.join() this does not wait for workers that have been stopped as well.
        while not coordinator.done() and not stop.due():
            time.sleep(0.01)
        step = int(global_step)
        if not stop.due():
            loss, accuracy = scheduled[-1].fetch()
            print(f"step {step}  loss {loss:.4g}  accuracy {accuracy:.2f}", flush=True)
        if time.monotonic() >= next_save or step >= FLAGS.train_steps or stop.due():
            manager.save(checkpoint_number=step, options=ON_THE_CHIEF)
            next_save = time.monotonic() + FLAGS.save_secs
    if step >= FLAGS.train_steps:
        _, held_out = load_data()
        report(step, accuracy_of(network, *held_out))
    stop.exit_if_due()


def evaluate():
    """What the evaluator does: it has variables of its own, in one piece, and fills them from every checkpoint."""
    network, step = Network(), tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(network=network, step=step)
    _, held_out = load_data()
    print("evaluator 0 waits for checkpoints", flush=True)
    stop = Stop()
    for path in tf.train.checkpoints_iterator(FLAGS.output_dir, timeout=2, timeout_fn=stop.due):
        checkpoint.restore(path).expect_partial()  # not the optimizer's
        print(f"evaluator 0: step {int(step)}  held-out accuracy {accuracy_of(network, *held_out):.4f}", flush=True)
        if step >= FLAGS.train_steps:
            return
    stop.exit_if_due()


def report(step, accuracy):
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    result = os.path.join(FLAGS.output_dir, "result.json")
    with tf.io.gfile.GFile(result + ".new", "w") as file:
        json.dump({"step": step, "held_out_accuracy": accuracy}, file)
    tf.io.gfile.rename(result + ".new", result, overwrite=True)


if __name__ == "__main__":
    tf.io.gfile.makedirs(FLAGS.output_dir)
    place = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if place.task_type == "chief":
        train(place)
    elif place.task_type == "evaluator":
        evaluate()
    else:
        server = tf.distribute.Server(place.cluster_spec(), job_name=place.task_type, task_index=place.task_id)
        print(f"{place.task_type} {place.task_id} serves at {server.target}", flush=True)
        serve(server)
