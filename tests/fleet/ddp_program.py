# ruff: noqa: PTH105, PTH110
# mypy: ignore-errors
"""A program of a user of PyTorch: DistributedDataParallel with snapshots, as in PyTorch's tutorial."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BATCH = 32


class Trainer:
    def __init__(self, model, loader, path):
        self.loader, self.path = loader, path
        self.epochs_run = 0
        rank = self.rank = int(os.environ["RANK"])
        found = [None]
        if rank == 0 and os.path.exists(path):
            found = [torch.load(path, map_location="cpu", weights_only=True)]
        dist.broadcast_object_list(found, src=0)
        snapshot = found[0]
        if snapshot is not None:
            model.load_state_dict(snapshot["model"])
            self.epochs_run = snapshot["epochs_run"]
            print(f"Resuming training from snapshot at Epoch {self.epochs_run}")
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def run_epoch(self, epoch):
        print(f"[GPU{self.rank}] Epoch {epoch} | Batchsize: {BATCH} | Steps: {len(self.loader)}")
        self.loader.sampler.set_epoch(epoch)
        for inputs, targets in self.loader:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(inputs), targets).backward()
            self.optimizer.step()
        time.sleep(0.5)

    def save(self, epoch):
        state = {"model": self.model.module.state_dict(), "epochs_run": epoch + 1}
        torch.save(state, self.path + ".new")
        os.replace(self.path + ".new", self.path)
        print(f"Epoch {epoch} | Training snapshot saved at {self.path}")

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            self.run_epoch(epoch)
            if self.rank == 0:
                self.save(epoch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--snapshot", default="snapshot.pt")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.rand(512, 20)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    Trainer(nn.Linear(20, 1), loader, options.snapshot).train(options.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
