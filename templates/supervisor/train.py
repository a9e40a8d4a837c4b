"""Asynchronous training with tf.train.Supervisor: a small network learns to read handwritten digits.

Between-graph replication as programs wrote it before there was MonitoredTrainingSession. The ps tasks hold the
variables; every worker sends its gradients without waiting for the others. Worker 0, the chief, also initialises or
restores the variables, and its supervisor writes checkpoints and summaries from threads of its own.

dtctl starts every task and gives it its place. By hand each task is a process of its own, with the same lists:

    python train.py --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=1

A supervisor does not recover its session: after the loss of a ps every worker ends with an error and has to be started
again. ps-async, which does the same with MonitoredTrainingSession, recovers in place.
"""

import argparse
import json
import os


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits with a supervisor.", allow_abbrev=False)
    add = parser.add_argument
    add("--ps_hosts", required=True, help="addresses of the ps tasks: host:port,host:port")
    add("--worker_hosts", required=True, help="addresses of the workers")
    add("--job_name", required=True, choices=["ps", "worker"])
    add("--task_index", required=True, type=int)
    add("--train_steps", type=int, default=3000, help="updates by all workers together")
    add("--batch_size", type=int, default=64)
    add("--learning_rate", type=float, default=0.001)
    add("--log_steps", type=int, default=250, help="updates between two lines of the log")
    add("--output_dir", default="output", help="for checkpoints, summaries and the result")
    add("--save_secs", type=int, default=30, help="seconds between checkpoints")
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
    """1797 images of 8 x 8 pixels, a fifth of them held out: (training images and labels), (held-out ones)."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return (seen, seen_labels), (held_out, held_out_labels)


def random_batches(images, labels, size, seed):
    random = np.random.default_rng(seed)
    while True:
        chosen = random.permutation(len(images))[:size]
        yield images[chosen], labels[chosen]


def build_network(images, labels):
    """One hidden layer: (loss, accuracy)."""
    hidden_weights = tf.get_variable("hidden/weights", [64, 128])
    hidden_biases = tf.get_variable("hidden/biases", [128], initializer=tf.zeros_initializer())
    hidden = tf.nn.relu(tf.matmul(images, hidden_weights) + hidden_biases)
    weights = tf.get_variable("digits/weights", [128, 10])
    biases = tf.get_variable("digits/biases", [10], initializer=tf.zeros_initializer())
    logits = tf.matmul(hidden, weights) + biases
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32))
    return loss, accuracy


def train(cluster):
    """What every worker does, and what only the chief does besides."""
    me = f"/job:worker/task:{FLAGS.task_index}"
    is_chief = FLAGS.task_index == 0
    # A worker talks to the ps tasks alone. Without the filter it would wait until all other workers have come.
    config = tf.ConfigProto(device_filters=["/job:ps", me])
    server = tf.train.Server(cluster, job_name="worker", task_index=FLAGS.task_index, config=config)

    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
        global_step = tf.train.get_or_create_global_step()
        images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        loss, accuracy = build_network(images, labels)
        update = tf.train.AdamOptimizer(FLAGS.learning_rate).minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("accuracy", accuracy)
        summaries = tf.summary.merge_all()
    with tf.device(me):
        saver = tf.train.Saver(sharded=False, save_relative_paths=True)  # all of a checkpoint on the chief's disk

    supervisor = tf.train.Supervisor(
        is_chief=is_chief,
        logdir=FLAGS.output_dir,  # restores the newest checkpoint that is there
        saver=saver,
        global_step=global_step,
        save_model_secs=FLAGS.save_secs,
        summary_op=None,  # its thread for summaries has no batch to feed: the loop hands them over
        save_summaries_secs=FLAGS.save_secs,  # how often it counts the steps in a second
        recovery_wait_secs=1,  # how often a worker looks whether the chief has made the variables ready
    )
    (seen, seen_labels), (held_out, held_out_labels) = load_data()
    stop = Stop()
    print(f"worker {FLAGS.task_index} waits for the ps tasks{'' if is_chief else ' and the chief'}", flush=True)
    with supervisor.managed_session(server.target, config=config) as session:
        step = session.run(global_step)
        print(f"worker {FLAGS.task_index} starts at step {step}", flush=True)
        own_steps, next_line, next_summary = 0, step + FLAGS.log_steps, step
        for batch in random_batches(seen, seen_labels, FLAGS.batch_size, seed=FLAGS.task_index):
            # One of the supervisor's threads may have failed; a worker that should stop leaves before the next step.
            if step >= FLAGS.train_steps or supervisor.should_stop() or stop.due():
                break
            feed = {images: batch[0], labels: batch[1]}
            _, step, loss_now, accuracy_now = session.run([update, global_step, loss, accuracy], feed)
            own_steps += 1
            if is_chief and step >= next_summary:
                supervisor.summary_computed(session, session.run(summaries, feed), step)
                next_summary += 100
            if step >= next_line:
                print(f"step {step}  loss {loss_now:.4g}  accuracy {accuracy_now:.2f}", flush=True)
                next_line += FLAGS.log_steps
        if is_chief:
            # A supervisor saves by time alone. Its thread that does has to end first: the saver is the same.
            supervisor.stop(close_summary_writer=False)
            saver.save(session, supervisor.save_path, global_step=global_step)
            exam = session.run([global_step, accuracy], {images: held_out, labels: held_out_labels})
    print(f"worker {FLAGS.task_index} made {own_steps} steps", flush=True)
    if is_chief:
        report(*exam)
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
