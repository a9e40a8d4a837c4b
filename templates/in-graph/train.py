"""In-graph replication: one client's graph spans all machines, and learns to read handwritten digits.

The oldest way of distributed TensorFlow. The ps and worker tasks are servers that run whatever they are sent. The
chief, the only client, builds one graph: variables on the ps tasks, a tower on every worker (on each of its GPUs, if
it has any), the mean of the towers' gradients. It feeds the data, and each step waits for all towers. That is simple
and synchronous, and the one client is its limit: between-graph replication has taken its place on many machines.

dtctl starts every task and gives it its place. By hand each task is a process of its own, with the same lists:

    python train.py --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --chief_hosts=a:2223 --job_name=chief --task_index=0
"""

import argparse
import json
import os


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits in one big graph.", allow_abbrev=False)
    add = parser.add_argument
    add("--ps_hosts", required=True, help="addresses of the ps tasks: host:port,host:port")
    add("--worker_hosts", required=True, help="addresses of the workers")
    add("--chief_hosts", required=True, help="address of the chief")
    add("--job_name", required=True, choices=["ps", "worker", "chief"])
    add("--task_index", required=True, type=int)
    add("--train_steps", type=int, default=1500)
    add("--batch_size", type=int, default=64, help="images in one step of one tower")
    add("--learning_rate", type=float, default=0.001)
    add("--log_steps", type=int, default=100, help="steps between two lines of the log")
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


def random_batches(images, labels, size):
    random = np.random.default_rng()
    while True:
        chosen = random.permutation(len(images))[:size]
        yield images[chosen], labels[chosen]


def build_network(images, labels):
    """One hidden layer, whose variables all towers share: (loss, accuracy)."""
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
        hidden_weights = tf.get_variable("hidden/weights", [64, 128])
        hidden_biases = tf.get_variable("hidden/biases", [128], initializer=tf.zeros_initializer())
        weights = tf.get_variable("digits/weights", [128, 10])
        biases = tf.get_variable("digits/biases", [10], initializer=tf.zeros_initializer())
    logits = tf.matmul(tf.nn.relu(tf.matmul(images, hidden_weights) + hidden_biases), weights) + biases
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32))
    return loss, accuracy


def find_tower_devices(target):
    """Every GPU of the workers, and the CPU of each worker that has none. Waits until all servers are there."""
    with tf.Session(target) as session:
        names = sorted(device.name for device in session.list_devices() if "/job:worker/" in device.name)
    cpus = [name for name in names if "/device:CPU:" in name]
    gpus = [name for name in names if "/device:GPU:" in name]
    return gpus + [cpu for cpu in cpus if cpu.replace("CPU:0", "GPU:0") not in gpus]


def build_training(devices, cluster, images, labels):
    """Deals each batch out to the towers: (one step of training, whose value is its number, loss, accuracy)."""
    image_shares, label_shares = tf.split(images, len(devices)), tf.split(labels, len(devices))
    tower_gradients, losses, accuracies = [], [], []
    for tower, device in enumerate(devices):
        # The setter deals the variables out to the ps tasks, in turn, and leaves the computation to the tower.
        setter = tf.train.replica_device_setter(cluster=cluster, worker_device=device)
        with tf.device(setter), tf.name_scope(f"tower_{tower}"):
            loss, accuracy = build_network(image_shares[tower], label_shares[tower])
            tower_gradients.append(tf.gradients(loss, tf.trainable_variables()))
        losses.append(loss)
        accuracies.append(accuracy)

    means = []
    for number, variable in enumerate(tf.trainable_variables()):
        with tf.device(variable.device):  # on the ps task that holds it
            gradient = tf.add_n([gradients[number] for gradients in tower_gradients]) / len(devices)
            means.append((gradient, variable))
    with tf.device("/job:ps/task:0"):
        global_step = tf.train.get_or_create_global_step()
    update = tf.train.AdamOptimizer(FLAGS.learning_rate).apply_gradients(means, global_step)
    with tf.control_dependencies([update]):
        train_step = global_step.read_value()
    return train_step, tf.reduce_mean(losses), tf.reduce_mean(accuracies)


class Beginnings(tf.train.SessionRunHook):
    """Prints the step at which training begins, and continues after the loss of a worker or ps."""

    def __init__(self, global_step):
        self.global_step = global_step

    def after_create_session(self, session, coord):
        print(f"chief 0 starts at step {session.run(self.global_step)}", flush=True)


def train(cluster):
    """What the chief does. Its own server lets the saver's operations run here."""
    server = tf.train.Server(cluster, job_name="chief", task_index=0)
    print("chief 0 waits for the ps and worker tasks", flush=True)
    devices = find_tower_devices(server.target)
    print(f"towers: {', '.join(devices)}", flush=True)

    with tf.device("/job:chief/task:0"):
        images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        train_step, loss, accuracy = build_training(devices, cluster, images, labels)
        _, exam_accuracy = build_network(images, labels)  # the same variables
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("accuracy", accuracy)
        saver = tf.train.Saver(sharded=False, save_relative_paths=True)  # all of a checkpoint on the chief's disk

    (seen, seen_labels), (held_out, held_out_labels) = load_data()
    global_step = tf.train.get_global_step()
    exam = tf.train.FinalOpsHook([global_step, exam_accuracy], {images: held_out, labels: held_out_labels})
    stop = Stop()
    # When a worker or a ps is lost it makes a new session, which waits until that is back and restores the newest
    # checkpoint: the variables on the ps tasks had gone further, and go back too.
    session = tf.train.MonitoredTrainingSession(
        server.target,
        checkpoint_dir=FLAGS.output_dir,
        scaffold=tf.train.Scaffold(saver=saver),
        hooks=[tf.train.StopAtStepHook(last_step=FLAGS.train_steps), Beginnings(global_step), exam, stop.hook()],
        save_checkpoint_secs=FLAGS.save_secs,
        save_summaries_steps=100,
    )
    with session:
        # Past the hooks, which would take it for a step of training.
        step = session.run_step_fn(lambda step_context: step_context.session.run(global_step))
        for batch in random_batches(seen, seen_labels, FLAGS.batch_size * len(devices)):
            if step >= FLAGS.train_steps or session.should_stop():
                break
            feed = {images: batch[0], labels: batch[1]}
            step, loss_now, accuracy_now = session.run([train_step, loss, accuracy], feed)
            if step % FLAGS.log_steps == 0:
                print(f"step {step}  loss {loss_now:.4g}  accuracy {accuracy_now:.2f}", flush=True)
    report(*exam.final_ops_values)
    stop.exit_if_due()


def report(step, accuracy):
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
    cluster = tf.train.ClusterSpec(
        {
            "ps": FLAGS.ps_hosts.split(","),
            "worker": FLAGS.worker_hosts.split(","),
            "chief": FLAGS.chief_hosts.split(","),
        }
    )
    if FLAGS.job_name == "chief":
        train(cluster)
    else:
        server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
        print(f"{FLAGS.job_name} {FLAGS.task_index} serves at {server.target}", flush=True)
        serve(server)
