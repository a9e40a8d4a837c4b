"""Asynchronous training with parameter servers: a wide and deep network learns to read handwritten digits.

Between-graph replication, the classic of distributed TensorFlow. The ps tasks hold the variables. Every worker builds
the same graph, draws batches of its own, and sends its gradients to the variables without waiting for the others.
Worker 0, the chief, also initialises or restores the variables, and writes checkpoints and summaries.

`--placement` says which ps holds which variable: they are dealt out in turn, or by their bytes, or the embedding is cut
up into a part for each ps. A checkpoint is the same in all three, so placement and number of ps tasks may be changed.

dtctl starts every task and gives it its place. By hand each task is a process of its own, with the same lists:

    python train.py --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=1
"""

import argparse
import json
import os


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits with parameter servers.", allow_abbrev=False)
    add = parser.add_argument
    add("--ps_hosts", required=True, help="addresses of the ps tasks: host:port,host:port")
    add("--worker_hosts", required=True, help="addresses of the workers")
    add("--job_name", required=True, choices=["ps", "worker"])
    add("--task_index", required=True, type=int)
    add("--train_steps", type=int, default=3000, help="updates by all workers together")
    add("--batch_size", type=int, default=64)
    add("--learning_rate", type=float, default=0.001)
    add("--placement", default="round-robin", choices=["round-robin", "greedy", "partitioned"], help="of the variables")
    add("--log_steps", type=int, default=250, help="updates between two lines of the log")
    add("--output_dir", default="output", help="for checkpoints, summaries and the result")
    add("--save_secs", type=int, default=30, help="seconds between checkpoints")
    add("--sharded", action="store_true", help="each ps saves its own variables; needs an output_dir that all share")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from graceful import Stop, serve  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)  # less about what is deprecated


def load_data():
    """1797 images of 8 x 8 pixels from 0 to 16, a fifth held out: (training images and labels), (held-out ones)."""
    images, labels = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return (seen, seen_labels), (held_out, held_out_labels)


def random_batches(images, labels, size, seed):
    random = np.random.default_rng(seed)
    while True:
        chosen = random.permutation(len(images))[:size]
        yield images[chosen], labels[chosen]


class LeastBytes:
    """Each variable goes to the ps that holds the fewest bytes so far; what the optimizer adds to it comes with it."""

    def __init__(self, num_ps):
        self.held = [0] * num_ps

    def __call__(self, variable):
        ps = self.held.index(min(self.held))
        self.held[ps] += variable.get_attr("dtype").size * tf.TensorShape(variable.get_attr("shape")).num_elements()
        return ps


def build_network(images, labels, num_ps):
    """Wide and deep: (loss, accuracy). The wide half is an embedding, a row for each of the 17 values of each pixel."""
    parts = tf.fixed_size_partitioner(num_ps) if FLAGS.placement == "partitioned" else None
    embedding = tf.get_variable("embedding", [64 * 17, 10], initializer=tf.zeros_initializer(), partitioner=parts)
    rows = 17 * tf.range(64) + tf.cast(images, tf.int32)
    # "div" finds each row where the partitioner has put it. "mod", the default, would deal the rows out in turn.
    wide = tf.reduce_sum(tf.nn.embedding_lookup(embedding, rows, partition_strategy="div"), axis=1)
    hidden_weights = tf.get_variable("hidden/weights", [64, 128])
    hidden_biases = tf.get_variable("hidden/biases", [128], initializer=tf.zeros_initializer())
    hidden = tf.nn.relu(tf.matmul(images / 16.0, hidden_weights) + hidden_biases)
    weights = tf.get_variable("digits/weights", [128, 10])
    biases = tf.get_variable("digits/biases", [10], initializer=tf.zeros_initializer())
    logits = tf.matmul(hidden, weights) + biases + wide
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32))
    return loss, accuracy


def print_placement(num_ps):
    for ps in range(num_ps):
        held = [variable for variable in tf.trainable_variables() if variable.device.endswith(f"/job:ps/task:{ps}")]
        size = sum(variable.dtype.size * variable.shape.num_elements() for variable in held)
        print(f"ps {ps} holds {size} bytes: {', '.join(variable.op.name for variable in held)}", flush=True)


class PromptWorker(tf.train.SessionCreator):
    """Waits until the chief has made the variables ready; looks every second, where TensorFlow's own waits 30."""

    def __init__(self, scaffold, master, config):
        self.scaffold, self.master, self.config = scaffold, master, config

    def create_session(self):
        self.scaffold.finalize()
        manager = tf.train.SessionManager(
            local_init_op=self.scaffold.local_init_op,
            ready_op=self.scaffold.ready_op,
            ready_for_local_init_op=self.scaffold.ready_for_local_init_op,
            recovery_wait_secs=1,
        )
        return manager.wait_for_session(self.master, config=self.config)


def train(cluster):
    """What every worker does, and what only the chief does besides."""
    me = f"/job:worker/task:{FLAGS.task_index}"
    is_chief = FLAGS.task_index == 0
    # A worker talks to the ps tasks alone. Without the filter it would wait until all other workers have come.
    config = tf.ConfigProto(device_filters=["/job:ps", me])
    server = tf.train.Server(cluster, job_name="worker", task_index=FLAGS.task_index, config=config)

    # The setter deals the variables out to the ps tasks, in turn by default, and leaves the computation to this worker.
    num_ps = cluster.num_tasks("ps")
    strategy = LeastBytes(num_ps) if FLAGS.placement == "greedy" else None
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me, ps_strategy=strategy)):
        global_step = tf.train.get_or_create_global_step()
        images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        loss, accuracy = build_network(images, labels, num_ps)
        update = tf.train.AdamOptimizer(FLAGS.learning_rate).minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("accuracy", accuracy)
    # A checkpoint lies where the saver's operations run. Here on the chief, all of it. Sharded, which is TensorFlow's
    # default, each ps writes a part on its own machine, and merging them fails unless all see the same directory.
    with tf.device(None if FLAGS.sharded else me):
        saver = tf.train.Saver(sharded=FLAGS.sharded, save_relative_paths=True)

    scaffold = tf.train.Scaffold(saver=saver)
    (seen, seen_labels), (held_out, held_out_labels) = load_data()
    exam = tf.train.FinalOpsHook([global_step, accuracy], {images: held_out, labels: held_out_labels})
    stop = Stop()
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.train_steps), stop.hook()]
    print(f"worker {FLAGS.task_index} waits for the ps tasks{'' if is_chief else ' and the chief'}", flush=True)
    if is_chief:
        print_placement(num_ps)
        session = tf.train.MonitoredTrainingSession(
            server.target,
            checkpoint_dir=FLAGS.output_dir,  # restores the newest checkpoint that is there
            scaffold=scaffold,
            hooks=[*hooks, exam],
            save_checkpoint_secs=FLAGS.save_secs,
            save_summaries_steps=100,
            config=config,
        )
    else:
        session = tf.train.MonitoredSession(PromptWorker(scaffold, server.target, config), hooks)

    with session:
        # Past the hooks, which would take it for a step of training.
        step = session.run_step_fn(lambda step_context: step_context.session.run(global_step))
        print(f"worker {FLAGS.task_index} starts at step {step}", flush=True)
        own_steps, next_line = 0, step + FLAGS.log_steps
        for batch in random_batches(seen, seen_labels, FLAGS.batch_size, seed=FLAGS.task_index):
            if step >= FLAGS.train_steps or session.should_stop():
                break
            feed = {images: batch[0], labels: batch[1]}
            _, step, loss_now, accuracy_now = session.run([update, global_step, loss, accuracy], feed)
            own_steps += 1
            if step >= next_line:
                print(f"step {step}  loss {loss_now:.4g}  accuracy {accuracy_now:.2f}", flush=True)
                next_line += FLAGS.log_steps
    print(f"worker {FLAGS.task_index} made {own_steps} steps", flush=True)
    if is_chief:
        report(*exam.final_ops_values)
    stop.exit_if_due()


def report(step, accuracy):
    """What the chief has to say at the end."""
    if step < FLAGS.train_steps:
        print(f"stopped at step {step}; the next start goes on from there", flush=True)
        return
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    result = os.path.join(FLAGS.output_dir, "result.json")
    with tf.io.gfile.GFile(result + ".new", "w") as file:
        json.dump({"step": int(step), "held_out_accuracy": float(accuracy)}, file)
    tf.io.gfile.rename(result + ".new", result, overwrite=True)


if __name__ == "__main__":
    tf.io.gfile.makedirs(FLAGS.output_dir)
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    if FLAGS.job_name == "ps":
        server = tf.train.Server(cluster, job_name="ps", task_index=FLAGS.task_index)
        print(f"ps {FLAGS.task_index} serves at {server.target}", flush=True)
        serve(server)
    else:
        train(cluster)
