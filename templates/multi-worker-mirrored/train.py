"""Synchronous training with MultiWorkerMirroredStrategy: a small network learns to read handwritten digits.

Every worker holds a copy of all variables. In each step it computes the gradients of its own part of the batch; they
are summed over the workers (all-reduce), and all make the same update. This is the custom loop; fit.py is the same
with Keras' `fit`. When one worker is lost the others cannot go on: dtctl starts all of them again.

dtctl starts every worker and gives it its place. By hand each is a process of its own, with the same list:

    TF_CONFIG='{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1}}' python train.py
"""

import argparse
import tempfile


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits, all workers in step.", allow_abbrev=False)
    add = parser.add_argument
    add("--train_steps", type=int, default=1000, help="updates, which all workers make together")
    add("--batch_size", type=int, default=64, help="images in a step, of all workers together")
    add("--learning_rate", type=float, default=0.002)
    add("--log_steps", type=int, default=100, help="steps between two lines of the log")
    add("--output_dir", default="output", help="for checkpoints and the result; only that of worker 0 is used")
    add("--save_steps", type=int, default=250, help="steps between checkpoints")
    add("--preemption_handler", action="store_true", help="stop by TensorFlow's own PreemptionCheckpointHandler")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()

import tensorflow as tf  # noqa: E402
from checkpoints import LeadCheckpoints  # noqa: E402
from digits import load_data, report  # noqa: E402
from graceful import Stop  # noqa: E402


def build_network():
    return tf.keras.Sequential(
        [tf.keras.Input([64]), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    )


def count_right(logits, labels):
    return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32))


def training_input(strategy, images, labels, batch_size, seed):
    """Batches without end. Each worker draws its part of them from every n-th image."""

    def own_part(context):
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
        data = data.shuffle(len(images), seed=seed).repeat()
        return data.batch(context.get_per_replica_batch_size(batch_size))

    return iter(strategy.distribute_datasets_from_function(own_part))


def until_preempted(steps, strategy, save):
    """Takes the place of Stop.between: SIGTERM to one worker makes all save at the same step, and exit with 42."""
    config = tf.distribute.experimental.TerminationConfig(save_fn=save)
    # It counts the steps in the checkpoint of its manager, and all workers have to count alike. An empty one makes them
    # begin at 0 in every process; one that lies on the disk of worker 0 alone would let worker 0 be ahead.
    with tempfile.TemporaryDirectory() as directory:
        own = tf.train.CheckpointManager(tf.train.Checkpoint(), directory, max_to_keep=1)
        handler = tf.distribute.experimental.PreemptionCheckpointHandler(
            strategy.cluster_resolver, own, termination_config=config
        )
        for step in steps:
            handler.save_checkpoint_if_preempted()
            yield step


def main():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits for all workers
    worker = strategy.cluster_resolver.task_id or 0  # without TF_CONFIG it is alone
    with strategy.scope():
        model = build_network()
        optimizer = tf.keras.optimizers.Adam(FLAGS.learning_rate)
        optimizer.build(model.trainable_variables)
        global_step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, global_step=global_step)
    checkpoints = LeadCheckpoints(strategy, checkpoint, global_step, FLAGS.output_dir)
    first = checkpoints.restore([variable.value for variable in model.variables + optimizer.variables])
    batch_size = FLAGS.batch_size - FLAGS.batch_size % strategy.num_replicas_in_sync  # 63 of 64 with three replicas

    @tf.function
    def train_step(batch):
        def replica_step(images, labels):
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                # The gradients will be summed over the workers: hence the mean over the images of all of them.
                loss = tf.nn.compute_average_loss(losses, global_batch_size=batch_size)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return tf.stack([loss, count_right(logits, labels) / batch_size])

        global_step.assign_add(1)
        return strategy.run(replica_step, args=batch)

    (seen, seen_labels), (held_out, held_out_labels) = load_data()
    batches = training_input(strategy, seen, seen_labels, batch_size, seed=first)
    print(f"worker {worker} starts at step {first}", flush=True)
    stop = Stop(strategy, every=5)
    steps = range(first + 1, FLAGS.train_steps + 1)
    for step in until_preempted(steps, strategy, checkpoints.save) if FLAGS.preemption_handler else stop.between(steps):
        parts = train_step(next(batches))
        if step % FLAGS.log_steps == 0:
            loss, accuracy = strategy.reduce("SUM", parts, axis=None)
            print(f"step {step}  loss {loss:.4g}  accuracy {accuracy:.2f}", flush=True)
        if step % FLAGS.save_steps == 0:
            checkpoints.save()
    checkpoints.save()
    stop.exit_if_due()

    @tf.function
    def examine(images, labels):
        return strategy.reduce("MEAN", strategy.run(lambda: count_right(model(images), labels)), axis=None)

    # All take part, so that none leaves before the others: a worker that is left alone reports a failure.
    accuracy = float(examine(held_out, held_out_labels)) / len(held_out)
    if worker == 0:
        report(FLAGS.output_dir, int(global_step.numpy()), accuracy)


if __name__ == "__main__":
    tf.io.gfile.makedirs(FLAGS.output_dir)
    main()
