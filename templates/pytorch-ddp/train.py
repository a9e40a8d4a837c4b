"""Synchronous training with DistributedDataParallel: a small network learns to read handwritten digits.

Every rank holds the whole model and goes through its own share of the images. While it computes its gradients, DDP
takes their mean over all ranks, so all make the same update and the models stay alike. Rank 0 alone saves, on its own
disk, and at the start hands on to the others what it has found there.

dtctl starts every rank and gives it its place. By hand, torchrun does:

    torchrun --nproc-per-node=2 train.py
"""

import argparse
import itertools
import json
import os
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description="Learn handwritten digits with DDP.", allow_abbrev=False)
    add = parser.add_argument
    add("--train_steps", type=int, default=1500, help="updates, each by all ranks together")
    add("--batch_size", type=int, default=32, help="of each rank")
    add("--learning_rate", type=float, default=0.001)
    add("--log_steps", type=int, default=100, help="updates between two lines of the log")
    add("--output_dir", default="output", help="for the checkpoint and the result")
    add("--save_secs", type=float, default=30, help="seconds between checkpoints")
    return parser.parse_args()


# Before the imports, which take seconds: a wrong flag is reported at once.
FLAGS = parse_arguments()

import torch  # noqa: E402
from graceful import Stop  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402

CHECKPOINT = os.path.join(FLAGS.output_dir, "checkpoint.pt")


def load_data():
    """1797 images of 8 x 8 pixels, a fifth of them held out: (training set, held-out images, their labels)."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32)
    labels = torch.tensor(labels, dtype=torch.int64)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return TensorDataset(seen, seen_labels), held_out, held_out_labels


def batches(loader, first):
    """For ever, from the epoch of the first step on; each epoch in an order of its own."""
    for epoch in itertools.count(first // len(loader)):
        loader.sampler.set_epoch(epoch)
        yield from loader


def write(path, write_to):
    """Replaces the file at once: a process that is killed meanwhile leaves the old file."""
    write_to(path + ".new")
    os.replace(path + ".new", path)


def load_on_rank_0(rank):
    """What rank 0 has saved, on every rank; None at the very beginning."""
    found = [None]
    if rank == 0 and os.path.exists(CHECKPOINT):
        found = [torch.load(CHECKPOINT, map_location="cpu", weights_only=True)]
    distributed.broadcast_object_list(found, src=0)
    return found[0]


def train(device):
    """What every rank does, and what only rank 0 does besides."""
    rank = distributed.get_rank()
    training_set, held_out, held_out_labels = load_data()
    loader = DataLoader(training_set, FLAGS.batch_size, sampler=DistributedSampler(training_set), drop_last=True)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(network)  # from here on all have the variables of rank 0
    optimizer = torch.optim.Adam(model.parameters(), FLAGS.learning_rate)
    step = first = 0
    checkpoint = load_on_rank_0(rank)
    if checkpoint is not None:
        network.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        step = first = checkpoint["step"]

    def save():
        checkpoint = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        write(CHECKPOINT, lambda path: torch.save(checkpoint, path))

    def one_wants(own):
        """Whether any rank wants something; every rank asks at the same step."""
        wish = torch.tensor(int(own), device=device)
        distributed.all_reduce(wish, distributed.ReduceOp.MAX)
        return bool(wish)

    stop = Stop(agree=one_wants, every=10)
    print(f"worker {rank} starts at step {first}", flush=True)
    next_save = time.monotonic() + FLAGS.save_secs
    to_do = itertools.islice(batches(loader, first), max(0, FLAGS.train_steps - first))
    for batch in stop.between(to_do):
        images, labels = (tensor.to(device) for tensor in batch)
        logits = model(images)
        loss = cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % FLAGS.log_steps == 0:
            accuracy = (logits.argmax(1) == labels).float().mean()
            print(f"step {step}  loss {loss:.4g}  accuracy {accuracy:.2f}", flush=True)
        if rank == 0 and time.monotonic() >= next_save:
            save()
            next_save = time.monotonic() + FLAGS.save_secs
    if rank == 0:
        save()
    stop.exit_if_due()
    if rank == 0:
        with torch.no_grad():
            accuracy = (network(held_out.to(device)).argmax(1).cpu() == held_out_labels).float().mean()
        report(step, float(accuracy))


def report(step, accuracy):
    """What rank 0 has to say at the end."""
    print(f"held-out accuracy {accuracy:.4f}", flush=True)

    def write_to(path):
        with open(path, "w") as file:
            json.dump({"step": step, "held_out_accuracy": accuracy}, file)

    write(os.path.join(FLAGS.output_dir, "result.json"), write_to)


if __name__ == "__main__":
    os.makedirs(FLAGS.output_dir, exist_ok=True)
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        distributed.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        distributed.init_process_group("gloo")
    try:
        train(device)
    finally:
        distributed.destroy_process_group()
