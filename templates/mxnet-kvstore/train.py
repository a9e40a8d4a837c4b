"""Synchronous training through MXNet's kvstore: a small network learns to read handwritten digits.

Each worker computes the gradients of its own batch and pushes them to the servers, which add them up when all have
come. Each pulls the sums and makes the same update, so the models stay alike. Worker 0 saves, on its own disk, and at
the start hands on to the others what it has found there. Servers and scheduler never get past `import mxnet`.

dtctl starts every task and gives it its place. By hand each is a process of its own, with the variables that
docs/env.md of ps-lite names; tools/launch.py of MXNet's sources does it too.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import signal
import tempfile
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits with MXNet.", allow_abbrev=False)
    add = parser.add_argument
    add("--task_index", type=int, required=True, help="of this worker; number 0 saves")
    add("--train_steps", type=int, default=1500, help="updates, each by all workers together")
    add("--batch_size", type=int, default=32, help="of each worker")
    add("--learning_rate", type=float, default=0.001)
    add("--log_steps", type=int, default=100, help="updates between two lines of the log")
    add("--output_dir", default="output", help="for checkpoints and the result")
    add("--save_secs", type=float, default=30, help="seconds between checkpoints")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()
IS_LEAD = FLAGS.task_index == 0
if os.environ.get("DMLC_ROLE") in ("server", "scheduler"):
    # They end by themselves, after the last worker. A stop asks all at once, and the workers need them for their save.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

import mxnet as mx  # noqa: E402
import numpy as np  # noqa: E402
from graceful import Stop  # noqa: E402
from mxnet import autograd, gluon, nd  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402


def load_data():
    """1797 images of 8 x 8 pixels, a fifth of them held out: (training images and labels), (held-out ones)."""
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16.0).astype(np.float32), labels.astype(np.float32)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return (seen, seen_labels), (nd.array(held_out), nd.array(held_out_labels))


def random_batches(images, labels, size, seed):
    random = np.random.default_rng(seed)
    while True:
        chosen = random.permutation(len(images))[:size]
        yield nd.array(images[chosen]), nd.array(labels[chosen])


def accuracy_of(logits, labels):
    return float((logits.argmax(axis=1) == labels).mean().asscalar())


class Store:
    """The kvstore, for more than gradients. It keeps floating-point numbers alone, under numbers of its own.

    Its rank is of no use here: ps-lite deals ranks out by the hosts' addresses, highest first, and what worker 0 has
    saved would be looked for on another host.
    """

    def __init__(self):
        self.kvstore = mx.kv.create("dist_sync")
        self.unused = itertools.count(1_000_000)  # far above the Trainer's keys, which are those of the parameters

    def sum(self, own):
        """The sum of what the workers have. Every worker calls it, as often and in the same order."""
        key, total = next(self.unused), nd.zeros_like(own)
        self.kvstore.init(key, total)
        self.kvstore.push(key, own)
        self.kvstore.pull(key, out=total)
        return total

    def from_worker_0(self, content):
        """The bytes of worker 0, for all; what the others have is of no account."""
        content = content if IS_LEAD else b""
        size = self.sum(nd.array([len(content)], dtype="float64"))
        numbers = np.zeros(int(size.asscalar()), np.float32)
        numbers[: len(content)] = np.frombuffer(content, np.uint8)
        return self.sum(nd.array(numbers)).asnumpy().astype(np.uint8).tobytes()

    def vote(self):
        """A function that returns to all workers whether any of them votes for it; all call it at the same step."""
        key, votes = next(self.unused), nd.zeros(1)
        self.kvstore.init(key, votes)

        def one_wants(own):
            self.kvstore.push(key, nd.array([own]))
            self.kvstore.pull(key, out=votes)
            return votes.asscalar() > 0

        return one_wants


def newest_checkpoint():
    """The path of what worker 0 has saved last, and its step; a directory of that name is complete."""
    steps = [int(name[5:]) for name in os.listdir(FLAGS.output_dir) if re.fullmatch(r"step-\d+", name)]
    return os.path.join(FLAGS.output_dir, f"step-{max(steps, default=0)}"), max(steps, default=0)


def save(network, trainer, step):
    """All at once, by its name; the one before goes."""
    before, last = newest_checkpoint()
    if step == last:
        return
    path = os.path.join(FLAGS.output_dir, f"step-{step}")
    shutil.rmtree(path + ".new", ignore_errors=True)
    os.mkdir(path + ".new")
    network.save_parameters(path + ".new/network.params")
    trainer.save_states(path + ".new/trainer.states")
    os.rename(path + ".new", path)
    shutil.rmtree(before, ignore_errors=True)


def restore(store, network, trainer):
    """Every worker loads what worker 0 has saved: the step."""
    path, step = newest_checkpoint()
    step = int(store.from_worker_0(b"%d" % step))
    if step == 0:
        return 0  # the Trainer gives all the same parameters to begin with
    for name, load in (("network.params", network.load_parameters), ("trainer.states", trainer.load_states)):
        content = b""
        if IS_LEAD:
            with open(os.path.join(path, name), "rb") as file:
                content = file.read()
        with tempfile.NamedTemporaryFile() as file:
            file.write(store.from_worker_0(content))
            file.flush()
            load(file.name)
    return step


def train():
    """What every worker does, and what only worker 0 does besides."""
    store = Store()
    (seen, seen_labels), (held_out, held_out_labels) = load_data()
    network = gluon.nn.Sequential()
    network.add(gluon.nn.Dense(128, activation="relu", in_units=64), gluon.nn.Dense(10, in_units=128))
    network.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    # The servers add up gradients, and the workers update: updates on the servers would keep Adam's averages there,
    # from where MXNet cannot save them.
    trainer = gluon.Trainer(
        network.collect_params(),
        "adam",
        {"learning_rate": FLAGS.learning_rate},
        kvstore=store.kvstore,
        update_on_kvstore=False,
    )
    step = first = restore(store, network, trainer)
    stop = Stop(agree=store.vote(), every=10)
    print(f"worker {FLAGS.task_index} starts at step {first}", flush=True)
    next_save = time.monotonic() + FLAGS.save_secs
    batches = random_batches(seen, seen_labels, FLAGS.batch_size, seed=[FLAGS.task_index, first])
    for images, labels in stop.between(itertools.islice(batches, max(0, FLAGS.train_steps - first))):
        with autograd.record():
            logits = network(images)
            loss = loss_of(logits, labels)
        loss.backward()
        trainer.step(FLAGS.batch_size * store.kvstore.num_workers)
        step += 1
        if step % FLAGS.log_steps == 0:
            accuracy = accuracy_of(logits, labels)
            print(f"step {step}  loss {loss.mean().asscalar():.4g}  accuracy {accuracy:.2f}", flush=True)
        if IS_LEAD and time.monotonic() >= next_save:
            save(network, trainer, step)
            next_save = time.monotonic() + FLAGS.save_secs
    # What a worker has yet to send when Python ends, MXNet forgets, and the others would wait for it.
    nd.waitall()
    if IS_LEAD:
        save(network, trainer, step)
    stop.exit_if_due()
    if IS_LEAD:
        report(step, accuracy_of(network(held_out), held_out_labels))


def report(step, accuracy):
    """What worker 0 has to say at the end."""
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    result = os.path.join(FLAGS.output_dir, "result.json")
    with open(result + ".new", "w") as file:
        json.dump({"step": step, "held_out_accuracy": accuracy}, file)
    os.replace(result + ".new", result)


if __name__ == "__main__":
    os.makedirs(FLAGS.output_dir, exist_ok=True)
    train()
