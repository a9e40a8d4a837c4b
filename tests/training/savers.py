"""A tiny training that saves with the library of one format and continues from its newest checkpoint.

python savers.py FORMAT DIRECTORY STEPS [PAUSE]    prints `continues from N` and `saved N`, for each save

It runs in the environment `torch-libraries` (tests/environments.py), and imports nothing of dtctl.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any


def say(*words: object) -> None:
    print(*words, flush=True)


def newest(directory: Path, pattern: str) -> tuple[int, Path] | None:
    """What a program does that looks for its own newest checkpoint: the largest number."""
    found = [(int(match.group(1)), path) for path in directory.glob("*") if (match := re.fullmatch(pattern, path.name))]
    return max(found, default=None)


def parts() -> tuple[Any, Any]:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 2))
    return model, torch.optim.AdamW(model.parameters())


def train(model: Any, optimizer: Any) -> None:
    import torch

    optimizer.zero_grad()
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()


def torch_save(directory: Path, steps: int, pause: float) -> None:
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
        time.sleep(pause)


def safetensors(directory: Path, steps: int, pause: float) -> None:
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
        time.sleep(pause)


def dcp(directory: Path, steps: int, pause: float) -> None:
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
        time.sleep(pause)


def accelerate(directory: Path, steps: int, pause: float) -> None:
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
        time.sleep(pause)


def accelerate_default(directory: Path, steps: int, pause: float) -> None:
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
        time.sleep(pause)


def lightning_default(directory: Path, steps: int, pause: float) -> None:
    """Where Lightning saves by default: a new directory at each start, so a program searches all of them."""
    found = max(
        directory.glob("lightning_logs/*/checkpoints/*.ckpt"), key=lambda path: path.stat().st_mtime, default=None
    )
    fit_lightning(steps, pause, {"default_root_dir": directory}, None, found)


def lightning(directory: Path, steps: int, pause: float) -> None:
    fit_lightning(steps, pause, {"logger": False}, directory, "last")


def fit_lightning(
    steps: int, pause: float, where: dict[str, Any], place: Path | None, begin: Path | str | None
) -> None:
    import torch
    from lightning import pytorch

    class Module(pytorch.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Linear(64, 2)

        def training_step(self, batch: Any, index: int) -> Any:
            time.sleep(pause)
            return self.model(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

        def on_train_start(self) -> None:
            say("continues from", self.trainer.global_step)

    saves = pytorch.callbacks.ModelCheckpoint(
        dirpath=place, every_n_train_steps=1, save_top_k=-1, save_last=place is not None
    )
    quiet: dict[str, Any] = {**where, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pytorch.Trainer(max_steps=steps, max_epochs=-1, accelerator="cpu", devices=1, callbacks=[saves], **quiet)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(64, 64)), batch_size=8)
    trainer.fit(Module(), data, ckpt_path=begin)
    say("saved", trainer.global_step)


def huggingface(directory: Path, steps: int, pause: float) -> None:
    train_huggingface(directory, steps, pause, {"output_dir": str(directory)})


def huggingface_default(directory: Path, steps: int, pause: float) -> None:
    """In the directory that the Trainer chooses in the working directory: trainer_output."""
    os.chdir(directory)
    train_huggingface(directory / "trainer_output", steps, pause, {})


def train_huggingface(directory: Path, steps: int, pause: float, where: dict[str, Any]) -> None:
    import torch
    import transformers

    class Paced(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            say("continues from", state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            say("saved", state.global_step)
            time.sleep(pause)

    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
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


def keras(directory: Path, steps: int, pause: float) -> None:
    import keras
    import numpy

    class Paced(keras.callbacks.Callback):  # type: ignore[misc]
        first = True

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            if self.first:
                say("continues from", epoch)
            self.first = False
            time.sleep(pause)

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            say("saved", epoch + 1)

    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    backup = keras.callbacks.BackupAndRestore(directory, double_checkpoint=True, delete_checkpoint=False)
    data = numpy.ones((8, 64)), numpy.ones((8, 2))
    model.fit(*data, epochs=steps, verbose=0, callbacks=[backup, Paced()])


def deepspeed(directory: Path, steps: int, pause: float) -> None:
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
        time.sleep(pause)
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
    "deepspeed": deepspeed,  # typed by hand where it is installed: it compiles C++ for minutes at its first start
    "keras": keras,
}

if __name__ == "__main__":
    format_name, place, total, *more = sys.argv[1:]
    target = Path(place)
    target.mkdir(parents=True, exist_ok=True)
    SAVERS[format_name](target, int(total), float(more[0]) if more else 0.0)
