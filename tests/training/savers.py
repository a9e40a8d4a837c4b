"""A tiny training that saves with the library of one format and continues from its newest checkpoint.

python savers.py FORMAT DIRECTORY STEPS [WIDTH]    prints `continues from N` and `saved N`, for each save
python savers.py serve    does the same for each line of its input, in a fork that need not import the library again

It runs in the environments of the libraries (tests/environments.py), and imports nothing of dtctl.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

WIDTH = 64
"""Of the layer that makes a checkpoint as large as it is."""


def say(*words: object) -> None:
    print(*words, flush=True)


def newest(directory: Path, pattern: str) -> tuple[int, Path] | None:
    """What a program does that looks for its own newest checkpoint: the largest number."""
    found = [(int(match.group(1)), path) for path in directory.glob("*") if (match := re.fullmatch(pattern, path.name))]
    return max(found, default=None)


def parts() -> tuple[Any, Any]:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, WIDTH), torch.nn.Linear(WIDTH, 2))
    return model, torch.optim.AdamW(model.parameters())


def train(model: Any, optimizer: Any) -> None:
    import torch

    optimizer.zero_grad()
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()


def torch_save(directory: Path, steps: int) -> None:
    import torch

    model, optimizer = parts()
    found = newest(directory, r"model_step_(\d+)\.pt")
    step = 0
    if found:
        saved = torch.load(found[1])
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    say("continues from", step)
    for step in range(step + 1, steps + 1):  # noqa: B020, its beginning is read once
        train(model, optimizer)
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(content, directory / f"model_step_{step}.pt")
        say("saved", step)


def safetensors(directory: Path, steps: int) -> None:
    from safetensors.torch import load_file, save_file

    model, optimizer = parts()
    found = newest(directory, r"model_step_(\d+)\.safetensors")
    if found:
        model.load_state_dict(load_file(found[1]))
    say("continues from", found[0] if found else 0)
    for step in range((found[0] if found else 0) + 1, steps + 1):
        train(model, optimizer)
        save_file(model.state_dict(), directory / f"model_step_{step}.safetensors")
        say("saved", step)


def dcp(directory: Path, steps: int) -> None:
    import torch
    import torch.distributed.checkpoint as checkpoint

    model, optimizer = parts()
    train(model, optimizer)  # the optimizer has a state to load into
    found = newest(directory, r"step-(\d+)")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": torch.tensor(0)}
    if found:
        checkpoint.load(state, checkpoint_id=str(found[1]))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    say("continues from", int(state["step"]))
    for step in range(int(state["step"]) + 1, steps + 1):
        train(model, optimizer)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": torch.tensor(step)}
        checkpoint.save(state, checkpoint_id=str(directory / f"step-{step}"))
        say("saved", step)


def accelerate(directory: Path, steps: int) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(*parts())
    found = newest(directory, r"step_(\d+)")
    if found:
        accelerator.load_state(str(found[1]))
    say("continues from", found[0] if found else 0)
    for step in range((found[0] if found else 0) + 1, steps + 1):
        train(model, optimizer)
        accelerator.save_state(str(directory / f"step_{step}"))
        say("saved", step)


def accelerate_default(directory: Path, steps: int) -> None:
    """With the names and the directory that accelerate chooses: checkpoints/checkpoint_N."""
    import accelerate

    class Steps:
        value = 0

        def state_dict(self) -> dict[str, int]:
            return {"value": self.value}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.value = state["value"]

    settings = accelerate.utils.ProjectConfiguration(str(directory), automatic_checkpoint_naming=True)
    accelerator = accelerate.Accelerator(cpu=True, project_config=settings)
    model, optimizer = accelerator.prepare(*parts())
    count = Steps()
    accelerator.register_for_checkpointing(count)
    found = newest(directory / "checkpoints", r"checkpoint_(\d+)")
    if found:
        accelerator.load_state()
        settings.iteration = found[0] + 1
    say("continues from", count.value)
    for step in range(count.value + 1, steps + 1):
        train(model, optimizer)
        count.value = step
        accelerator.save_state()
        say("saved", step)


def lightning_default(directory: Path, steps: int) -> None:
    """Where Lightning saves by default: a new directory at each start, so a program searches all of them."""
    found = max(
        directory.glob("lightning_logs/*/checkpoints/*.ckpt"), key=lambda path: path.stat().st_mtime, default=None
    )
    fit_lightning(steps, {"default_root_dir": directory}, None, found)


def lightning(directory: Path, steps: int) -> None:
    fit_lightning(steps, {"logger": False}, directory, "last")


def fit_lightning(steps: int, where: dict[str, Any], place: Path | None, begin: Path | str | None) -> None:
    import torch
    from lightning import pytorch

    class Module(pytorch.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Sequential(torch.nn.Linear(64, WIDTH), torch.nn.Linear(WIDTH, 2))

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

        def on_train_start(self) -> None:
            say("continues from", self.trainer.global_step)

        def on_train_batch_start(self, batch: Any, index: int) -> None:
            say("saved", self.trainer.global_step)

    saves = pytorch.callbacks.ModelCheckpoint(
        dirpath=place, every_n_train_steps=1, save_top_k=-1, save_last=place is not None
    )
    quiet: dict[str, Any] = {**where, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pytorch.Trainer(max_steps=steps, max_epochs=-1, accelerator="cpu", devices=1, callbacks=[saves], **quiet)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(64, 64)), batch_size=8)
    trainer.fit(Module(), data, ckpt_path=begin)
    say("saved", trainer.global_step)


def huggingface(directory: Path, steps: int) -> None:
    train_huggingface(directory, steps, {"output_dir": str(directory)})


def huggingface_default(directory: Path, steps: int) -> None:
    """In the directory that the Trainer chooses in the working directory: trainer_output."""
    os.chdir(directory)
    train_huggingface(directory / "trainer_output", steps, {})


def train_huggingface(directory: Path, steps: int, where: dict[str, Any]) -> None:
    import torch
    import transformers

    class Paced(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            say("continues from", state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            say("saved", state.global_step)

    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=max(16, min(512, WIDTH // 32)), vocab_size=32, n_positions=16
    )
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(64)]
    arguments = transformers.TrainingArguments(
        **where,
        max_steps=steps,
        save_steps=1,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    model = transformers.GPT2LMHeadModel(config)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[Paced()])
    trainer.train(resume_from_checkpoint=newest(directory, r"checkpoint-(\d+)") is not None)


def keras(directory: Path, steps: int) -> None:
    import keras
    import numpy

    class Paced(keras.callbacks.Callback):  # type: ignore[misc]
        first = True

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            if self.first:
                say("continues from", epoch)
            self.first = False

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            say("saved", epoch + 1)

    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(WIDTH), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    backup = keras.callbacks.BackupAndRestore(directory, double_checkpoint=True, delete_checkpoint=False)
    data = numpy.ones((8, 64)), numpy.ones((8, 2))
    model.fit(*data, epochs=steps, verbose=0, callbacks=[backup, Paced()])


def tensorflow(directory: Path, steps: int) -> None:
    import tensorflow as tf

    step, weights = tf.Variable(0, dtype=tf.int64), tf.Variable(tf.zeros([64, WIDTH]))
    checkpoint = tf.train.Checkpoint(step=step, weights=weights)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=None)
    checkpoint.restore(manager.latest_checkpoint)
    say("continues from", int(step))
    while int(step) < steps:
        step.assign_add(1)
        weights.assign_add(tf.ones_like(weights))
        manager.save(checkpoint_number=step)
        say("saved", int(step))


def orbax(directory: Path, steps: int) -> None:
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(directory) as manager:
        state = {"weights": jnp.zeros((64, WIDTH)), "step": jnp.array(0)}
        newest_step = manager.latest_step()
        if newest_step is not None:
            state = manager.restore(newest_step, args=ocp.args.StandardRestore(state))
        say("continues from", int(state["step"]))
        for step in range(int(state["step"]) + 1, steps + 1):
            state = {"weights": state["weights"] + 1.0, "step": jnp.array(step)}
            manager.save(step, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
            say("saved", step)


def mxnet(directory: Path, steps: int) -> None:
    import mxnet

    prefix = str(directory / "net")
    output = mxnet.sym.FullyConnected(mxnet.sym.Variable("data"), num_hidden=WIDTH, name="layer")
    found = newest(directory, r"net-(\d{4})\.params")
    epoch, weights = (found[0] if found else 0), {"layer_weight": mxnet.nd.zeros((WIDTH, 64))}
    if found:
        _, weights, _ = mxnet.model.load_checkpoint(prefix, epoch)
        assert float(weights["layer_weight"].max().asscalar()) == epoch
    say("continues from", epoch)
    for epoch in range(epoch + 1, steps + 1):  # noqa: B020, its beginning is read once
        weights["layer_weight"] += 1
        mxnet.model.save_checkpoint(prefix, epoch, output, weights, {})
        say("saved", epoch)


def deepspeed(directory: Path, steps: int) -> None:
    import deepspeed
    import torch

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    deepspeed.init_distributed(dist_backend="gloo")
    model, optimizer = parts()
    settings = {"train_batch_size": 8, "zero_optimization": {"stage": 1}}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    engine.load_checkpoint(str(directory))
    say("continues from", engine.global_steps)
    for _ in range(engine.global_steps, steps):
        engine.backward(engine(torch.ones(8, 64)).square().mean())
        engine.step()
        engine.save_checkpoint(str(directory))
        say("saved", engine.global_steps)
    torch.distributed.destroy_process_group()


SAVERS = {
    "torch": torch_save,
    "safetensors": safetensors,
    "dcp": dcp,
    "accelerate": accelerate,
    "accelerate-default": accelerate_default,
    "lightning": lightning,
    "lightning-default": lightning_default,
    "huggingface": huggingface,
    "huggingface-default": huggingface_default,
    "deepspeed": deepspeed,
    "keras": keras,
    "tensorflow": tensorflow,
    "orbax": orbax,
    "mxnet": mxnet,
}

MODULES = {
    "torch": ("torch",),
    "safetensors": ("safetensors.torch",),
    "dcp": ("torch.distributed.checkpoint",),
    "accelerate": ("accelerate",),
    "lightning": ("lightning.pytorch",),
    "huggingface": ("transformers", "accelerate"),
    "deepspeed": ("deepspeed",),
    "keras": ("keras",),
    "tensorflow": ("tensorflow",),
    "orbax": ("jax.numpy", "orbax.checkpoint"),
    "mxnet": ("mxnet",),
}


def run(format_name: str, place: str, total: str, width: str = "64") -> None:
    global WIDTH
    WIDTH = int(width)
    target = Path(place)
    target.mkdir(parents=True, exist_ok=True)
    SAVERS[format_name](target, int(total))


def serve() -> None:
    """Each line of the input is JSON: the words of a command, and the file for its output. It prints the process's id,
    and then how it has ended.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a library may print while it is imported
    for line in sys.stdin:
        words, output = json.loads(line)
        for module in MODULES[words[0].partition("-")[0]]:
            importlib.import_module(module)
        child = os.fork()
        if child == 0:
            written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(written, 1)
            os.dup2(written, 2)
            try:
                run(*words)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
        print(child, file=answers)
        print(os.waitpid(child, 0)[1], file=answers)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        run(*sys.argv[1:])
