"""An image classifier, trained synchronously with MultiWorkerMirroredStrategy on CIFAR-10.

Every worker holds a copy of all variables and reads its own part of the images. In each step the gradients are summed
over all workers (all-reduce), and all make the same update. What large batches need is here: a learning rate that grows
with the number of images in a step, and a warm-up (Goyal et al. 2017, "Accurate, Large Minibatch SGD").

dtctl starts every worker and gives it its place. By hand each is a process of its own, with the same list:

    TF_CONFIG='{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1}}' \\
        python train.py --data_dir=/data
"""

import argparse
import json
import os
import sys


def parse_arguments():
    parser = argparse.ArgumentParser(description="Classify the images of CIFAR-10.", allow_abbrev=False)
    add = parser.add_argument
    add("--data_dir", default="data", help="with cifar-10-batches-bin or cifar-10-batches-py in it; every worker's own")
    add("--output_dir", default="output", help="for checkpoints and the result; only that of worker 0 is used")
    add("--work_dir", default="work", help="for what is not needed afterwards")
    add("--log_dir", default="log", help="for the summaries of worker 0")
    add("--num_gpus", type=int, default=0, help="how many GPUs a worker uses; 0: its CPU")
    add("--stand_in_data", action="store_true", help="where there is no CIFAR-10 write digits in its format, use them")
    add("--train_steps", type=int, default=300, help="updates, which all workers make together")
    add("--warm_up_steps", type=int, default=50, help="in which the learning rate grows to its full size")
    add("--batch_size", type=int, default=64, help="images of one replica (GPU, or worker without one) in a step")
    add("--learning_rate", type=float, default=0.1, help="for 256 images in a step; it grows with their number")
    add("--sync_batch_norm", action="store_true", help="batch-norm over the images of all replicas, not of each alone")
    add("--augment", action="store_true", help="shift and mirror the images at random")
    add("--seed", type=int, default=0, help="from which every task derives its own")
    add("--log_steps", type=int, default=50, help="steps between two lines of the log")
    add("--save_steps", type=int, default=100, help="steps between checkpoints")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()

import cifar  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from checkpoints import LeadCheckpoints  # noqa: E402
from graceful import Stop  # noqa: E402


def find_data():
    """Ends with 2 without data: dtctl does not try again what cannot become better."""
    if FLAGS.stand_in_data:
        try:
            cifar.find(FLAGS.data_dir)
        except cifar.NoData:
            import stand_in_data

            stand_in_data.write(FLAGS.data_dir)
    try:
        directory = cifar.find(FLAGS.data_dir)
    except cifar.NoData as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    if os.path.exists(os.path.join(directory, cifar.NOT_REAL)):
        print(f"THIS IS NOT CIFAR-10 but a stand-in, handwritten digits: {directory}", flush=True)
    return directory


def build_network():
    layers = tf.keras.layers

    def block(filters):
        # The convolution needs no bias: batch-norm has one.
        yield layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)
        yield layers.BatchNormalization(momentum=0.9, synchronized=FLAGS.sync_batch_norm)
        yield layers.ReLU()

    prepare = layers.Rescaling(1 / 127.5, offset=-1)
    return tf.keras.Sequential(
        [tf.keras.Input([32, 32, 3]), prepare, *block(16), *block(32), layers.Flatten(), layers.Dense(10)]
    )


def augment(images, labels):
    """Shifted by up to four pixels, and every second one mirrored."""
    size = tf.shape(images)
    images = tf.image.random_crop(tf.pad(images, [[0, 0], [4, 4], [4, 4], [0, 0]], "REFLECT"), size)
    return tf.image.random_flip_left_right(images), labels


def training_input(strategy, directory, seed):
    """Batches without end, from this worker's own part of the images."""

    def own_part(context):
        part, parts = context.input_pipeline_id, context.num_input_pipelines
        images, labels = cifar.load(directory, cifar.TRAINING, part, parts)
        data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=seed).repeat()
        data = data.batch(FLAGS.batch_size)
        return (data.map(augment) if FLAGS.augment else data).prefetch(2)

    return iter(strategy.distribute_datasets_from_function(own_part))


def count_right(logits, labels):
    return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32))


def examine(strategy, model, directory, part, parts):
    """The accuracy on the test images, of which each worker examines its own part."""
    images, labels = cifar.load(directory, cifar.TEST, part, parts)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(500)
    counts = tf.stack([sum(count_right(model(images), labels) for images, labels in data), float(len(labels))])

    @tf.function
    def add_up():
        return strategy.reduce("SUM", strategy.run(lambda: counts), axis=None)

    # All wait for the sum, so that none leaves before the others: a worker that is left alone reports a failure.
    right, number = add_up()
    return float(right / number)


def main():
    directory = find_data()
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < FLAGS.num_gpus:
        print(f"error: --num_gpus={FLAGS.num_gpus}, and TensorFlow finds {len(gpus)}", file=sys.stderr, flush=True)
        sys.exit(2)
    tf.config.set_visible_devices(gpus[: FLAGS.num_gpus], "GPU")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits for all workers
    worker = strategy.cluster_resolver.task_id or 0  # without TF_CONFIG it is alone
    workers = max(1, len(strategy.cluster_resolver.cluster_spec().as_dict().get("worker", [])))
    global_batch = FLAGS.batch_size * strategy.num_replicas_in_sync
    scale = global_batch / 256
    with strategy.scope():
        tf.keras.utils.set_random_seed(FLAGS.seed)  # all begin with the same values
        model = build_network()
        learning_rate = tf.keras.optimizers.schedules.CosineDecay(
            FLAGS.learning_rate * min(scale, 1.0),  # that of a small batch, from which it warms up
            decay_steps=max(1, FLAGS.train_steps - FLAGS.warm_up_steps),
            warmup_target=FLAGS.learning_rate * scale,
            warmup_steps=FLAGS.warm_up_steps,
        )
        optimizer = tf.keras.optimizers.SGD(learning_rate, momentum=0.9, nesterov=True)
        optimizer.build(model.trainable_variables)
        global_step = tf.Variable(0, dtype=tf.int64)
    scratch = os.path.join(FLAGS.work_dir, f"worker-{worker}")
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, global_step=global_step)
    checkpoints = LeadCheckpoints(strategy, checkpoint, global_step, FLAGS.output_dir, scratch)
    first = checkpoints.restore([variable.value for variable in model.variables + optimizer.variables])

    @tf.function
    def train_step(batch):
        def replica_step(images, labels):
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                # The gradients will be summed over the replicas: hence the mean over the images of all of them.
                loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return tf.stack([loss, count_right(logits, labels) / global_batch])

        global_step.assign_add(1)
        return strategy.run(replica_step, args=batch)

    @tf.function
    def average_statistics():
        """Those of batch-norm. Keras 3 lets every replica gather its own, also where it synchronises the batches."""
        for variable in model.non_trainable_variables:
            strategy.run(take_average, args=(variable.value,))

    # Every task and every start draws its own images.
    (seed,) = np.random.SeedSequence([FLAGS.seed, worker, first]).generate_state(1)
    tf.random.set_seed(int(seed))
    batches = training_input(strategy, directory, int(seed))
    writer = tf.summary.create_file_writer(FLAGS.log_dir) if worker == 0 else tf.summary.create_noop_writer()
    print(f"worker {worker} starts at step {first}", flush=True)
    stop = Stop(strategy, every=5)
    for step in stop.between(range(first + 1, FLAGS.train_steps + 1)):
        parts = train_step(next(batches))
        if step % FLAGS.log_steps == 0:
            loss, accuracy = strategy.reduce("SUM", parts, axis=None)
            print(f"step {step}  loss {loss:.4g}  accuracy {accuracy:.2f}", flush=True)
            with writer.as_default(step):
                tf.summary.scalar("loss", loss)
                tf.summary.scalar("accuracy", accuracy)
                tf.summary.scalar("learning_rate", learning_rate(step))
        if step % FLAGS.save_steps == 0:
            average_statistics()
            checkpoints.save()
    average_statistics()
    checkpoints.save()
    writer.close()
    stop.exit_if_due()
    accuracy = examine(strategy, model, directory, worker, workers)
    if worker == 0:
        report(int(global_step.numpy()), accuracy)


def take_average(variable):
    variable.assign(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, variable.read_value()))


def report(step, accuracy):
    """What the lead has to say at the end."""
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    result = os.path.join(FLAGS.output_dir, "result.json")
    with tf.io.gfile.GFile(result + ".new", "w") as file:
        json.dump({"step": step, "held_out_accuracy": accuracy}, file)
    tf.io.gfile.rename(result + ".new", result, overwrite=True)


if __name__ == "__main__":
    for directory in (FLAGS.output_dir, FLAGS.work_dir, FLAGS.log_dir):
        tf.io.gfile.makedirs(directory)
    main()
