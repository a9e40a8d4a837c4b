"""Synchronous training with parameter servers: a small network learns to read handwritten digits.

Between-graph replication with SyncReplicasOptimizer. A step is the average of `--replicas_to_aggregate` gradients, all
computed from the same variables. A worker more than that is a backup: the step does not wait for the slowest, whose
gradient comes too late and is dropped. Worker 0, the chief, applies the average, and then hands out a token to
each worker; a worker that has sent its gradient waits for one.

dtctl starts every task and gives it its place. By hand each task is a process of its own, with the same lists:

    python train.py --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222,d:2222 --job_name=worker --task_index=1

What to know about it:

- The queue of the tokens and the gradients that wait lie on the ps, in no checkpoint. After the loss of a ps some
  sessions recover and some fail, or end as if all were well; so every task is started again, as after the chief's.
- The chief closes the queue when it ends, for whatever reason, and the other workers then end with 0. Only the exit
  code of the chief says whether training has come to its end.
- Tokens have no names. A worker that is alone takes those of the others too, and goes on by itself.
- A worker that dies takes its token along. With a backup worker this has no effect; otherwise the others wait
  until it is back, or for STEP_TIMEOUT_S, and then send the gradients that are missing themselves.
"""

import argparse
import json
import os
import threading


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits in step.", allow_abbrev=False)
    add = parser.add_argument
    add("--ps_hosts", required=True, help="addresses of the ps tasks: host:port,host:port")
    add("--worker_hosts", required=True, help="addresses of the workers")
    add("--job_name", required=True, choices=["ps", "worker"])
    add("--task_index", required=True, type=int)
    add("--train_steps", type=int, default=600, help="updates of the variables")
    add("--replicas_to_aggregate", type=int, help="gradients for an update; as many as workers if left out")
    add("--batch_size", type=int, default=64, help="for each gradient")
    add("--learning_rate", type=float, default=0.003)
    add("--log_steps", type=int, default=50, help="updates between two lines of the log")
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

STEP_TIMEOUT_S = 10
"""Python sees no signal while a step waits, so none waits for longer. Has to be well above the time of a step."""


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


def report_thread(failure, report=threading.excepthook):
    """Of a thread that fails. The one that averages is cancelled with its session, at the regular end as well."""
    if not issubclass(failure.exc_type, tf.errors.CancelledError):
        report(failure)


def train(cluster):
    """What every worker does, and what only the chief does besides."""
    me = f"/job:worker/task:{FLAGS.task_index}"
    is_chief = FLAGS.task_index == 0
    num_workers = cluster.num_tasks("worker")
    # A worker talks to the ps tasks alone. Without the filter it would wait until all other workers have come.
    config = tf.ConfigProto(device_filters=["/job:ps", me])
    server = tf.train.Server(cluster, job_name="worker", task_index=FLAGS.task_index, config=config)

    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
        global_step = tf.train.get_or_create_global_step()
        images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        loss, accuracy = build_network(images, labels)
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.AdamOptimizer(FLAGS.learning_rate),
            replicas_to_aggregate=FLAGS.replicas_to_aggregate or num_workers,
            total_num_replicas=num_workers,
        )
        update = optimizer.minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("accuracy", accuracy)
    with tf.device(me):
        saver = tf.train.Saver(sharded=False, save_relative_paths=True)  # all of a checkpoint on the chief's disk

    scaffold = tf.train.Scaffold(saver=saver)
    (seen, seen_labels), (held_out, held_out_labels) = load_data()
    exam = tf.train.FinalOpsHook([global_step, accuracy], {images: held_out, labels: held_out_labels})
    # Without tokens at the start (num_tokens) the first step waits for others. With them the chief, which comes first,
    # would begin alone.
    in_step = optimizer.make_session_run_hook(is_chief, num_tokens=0)
    threading.excepthook = report_thread
    stop = Stop()
    hooks = [in_step, tf.train.StopAtStepHook(last_step=FLAGS.train_steps)]
    print(f"worker {FLAGS.task_index} waits for the ps tasks{'' if is_chief else ' and the chief'}", flush=True)
    if is_chief:
        session = tf.train.MonitoredTrainingSession(
            server.target,
            checkpoint_dir=FLAGS.output_dir,  # restores the newest checkpoint that is there
            scaffold=scaffold,
            hooks=[*hooks, exam],
            save_checkpoint_secs=FLAGS.save_secs,
            save_summaries_steps=100,
            config=config,
            stop_grace_period_secs=2,  # its thread that averages does not end by itself; the default waits 120 s for it
        )
    else:
        session = tf.train.MonitoredSession(PromptWorker(scaffold, server.target, config), hooks)

    with session:  # takes the end of the queue, OutOfRangeError, for a regular end
        # Past the hooks, which would take it for a step of training.
        step = session.run_step_fn(lambda step_context: step_context.session.run(global_step))
        print(f"worker {FLAGS.task_index} starts at step {step}", flush=True)
        own_steps, next_line = 0, step + FLAGS.log_steps
        patience = tf.RunOptions(timeout_in_ms=1000 * STEP_TIMEOUT_S)
        for batch in random_batches(seen, seen_labels, FLAGS.batch_size, seed=FLAGS.task_index):
            if step >= FLAGS.train_steps or session.should_stop() or (own_steps and stop.due()):
                break
            feed = {images: batch[0], labels: batch[1]}
            # The first step waits for others until they come. A signal ends it at once: there is nothing to save yet.
            options = patience if own_steps else None
            try:
                _, step, loss_now, accuracy_now = session.run([update, global_step, loss, accuracy], feed, options)
            except tf.errors.DeadlineExceededError:
                continue  # now it can see a signal; if there is none, the next batch takes the place of the missing
            own_steps += 1
            if step >= next_line:
                print(f"step {step}  loss {loss_now:.4g}  accuracy {accuracy_now:.2f}", flush=True)
                next_line += FLAGS.log_steps
    print(f"worker {FLAGS.task_index} made {own_steps} gradients", flush=True)
    if is_chief:
        report(*exam.final_ops_values)
    elif step < FLAGS.train_steps:
        stop.due()  # the chief was stopped first: whether this worker was asked as well
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
