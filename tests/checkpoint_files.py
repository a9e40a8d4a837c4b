"""Checkpoints of each framework, built by hand from what its format says: small, and as its library lays them out."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from dtctl.agent.host.encodings import crc32c

Files = Mapping[str, bytes]
"""Paths in the directory of checkpoints, and contents."""


def torch_file(content: object = None, tensors: int = 2) -> bytes:
    """An archive as `torch.save` writes it, with a pickle of protocol 2 first, and nothing compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        parts = {"data.pkl": pickle.dumps(content, protocol=2), "byteorder": b"little"}
        parts |= {f"data/{number}": bytes([number % 255 + 1]) * 64 for number in range(tensors)}
        for name, part in {**parts, "version": b"3\n"}.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), part)
    return file.getvalue()


def safetensors_file(sizes: Mapping[str, int] | None = None) -> bytes:
    at, header = 0, {"__metadata__": {"format": "pt"}}
    for name, size in (sizes or {"weight": 64, "bias": 16}).items():
        header[name] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [at, at + size]}  # type: ignore[dict-item]
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(range(256)) * (at // 256) + bytes(at % 256)


def mxnet_file() -> bytes:
    """Two arrays of float32, with their names, as MXNet 1.9 writes them."""
    arrays = b""
    for shape in ((2, 3), (4,)):
        dimensions = struct.pack(f"<i{len(shape)}q", len(shape), *shape)
        items = shape[0] * (shape[1] if len(shape) > 1 else 1)
        arrays += struct.pack("<Ii", 0xF993FAC9, 0) + dimensions + struct.pack("<iii", 1, 0, 0) + b"\1" * 4 * items
    names = b"".join(struct.pack("<Q", len(name)) + name for name in (b"arg:weight", b"arg:bias"))
    return struct.pack("<QQQ", 0x112, 0, 2) + arrays + struct.pack("<Q", 2) + names


def trainer(step: int = 500) -> Files:
    """A directory of transformers' Trainer."""
    place = f"checkpoint-{step}"
    return {
        f"{place}/config.json": b"{}",
        f"{place}/model.safetensors": safetensors_file(),
        f"{place}/training_args.bin": torch_file(),
        f"{place}/optimizer.pt": torch_file(),
        f"{place}/scheduler.pt": torch_file(),
        f"{place}/rng_state.pth": torch_file(),
        f"{place}/trainer_state.json": json.dumps({"epoch": 1.0, "global_step": step, "log_history": []}).encode(),
    }


def sharded_trainer(step: int = 500) -> Files:
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    place = f"checkpoint-{step}"
    files = {name: content for name, content in trainer(step).items() if not name.endswith(".safetensors")}
    index = {"metadata": {}, "weight_map": {"a": shards[0], "b": shards[1]}}
    files |= {f"{place}/{shard}": safetensors_file() for shard in shards}
    return {**files, f"{place}/model.safetensors.index.json": json.dumps(index).encode()}


def accelerates(name: str = "step_500") -> Files:
    return {
        f"{name}/model.safetensors": safetensors_file(),
        f"{name}/optimizer.bin": torch_file(),
        f"{name}/scheduler.bin": torch_file(),
        f"{name}/random_states_0.pkl": torch_file(),
    }


def deepspeeds(step: int = 500, ranks: int = 2) -> Files:
    place = f"global_step{step}"
    return {
        f"{place}/mp_rank_00_model_states.pt": torch_file(),
        **{
            f"{place}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt": torch_file(tensors=1)
            for rank in range(ranks)
        },
        "latest": place.encode(),
    }


def spacys(name: str = "model-best") -> Files:
    return {
        f"{name}/tokenizer": b"\x81",
        f"{name}/meta.json": json.dumps({"lang": "en", "name": "pipeline", "pipeline": ["tok2vec"]}).encode(),
        f"{name}/config.cfg": b'[nlp]\nlang = "en"\n',
        f"{name}/tok2vec/model": b"\x82" * 3000,
        f"{name}/vocab/strings.json": json.dumps(["word"] * 1000).encode(),
        f"{name}/vocab/vectors": b"\0" * 100,
    }


def orbaxes(name: str = "500") -> Files:
    """The files of a checkpoint as orbax-checkpoint 0.12 lays them out, with a database of OCDBT."""
    ended = json.dumps({"item_handlers": {}, "commit_timestamp_nsecs": 1795471791397796842}).encode()
    node, manifest = _ocdbt(0x0CDB20DE, b"keys" * 20), _ocdbt(0x0CDB3A2A, b"config" * 20)
    return {
        f"{name}/_CHECKPOINT_METADATA": ended,
        f"{name}/default/manifest.ocdbt": manifest,
        f"{name}/default/d/0a1b2c3d": b"values" * 500 + node,
    }


def _ocdbt(magic: int, body: bytes) -> bytes:
    """A record: its magic, its length, its version and compression, its body, and a checksum of all that."""
    content = struct.pack(">I", magic) + struct.pack("<Q", 18 + len(body)) + b"\0\0" + body
    return content + struct.pack("<I", crc32c(content))


def distributed(name: str = "step-500", ranks: int = 2) -> Files:
    """A directory of torch.distributed.checkpoint: several archives in each shard, and a pickle that names them."""
    shards = [f"__{rank}_0.distcp" for rank in range(ranks)]
    metadata = pickle.dumps({f"layer.{number}": shard for number, shard in enumerate(shards)}, protocol=4)
    return {
        **{f"{name}/{shard}": torch_file(tensors=1) + torch_file(tensors=1) for shard in shards},
        f"{name}/.metadata": metadata,
    }


WHOLE: dict[str, tuple[Files, str, str, int | None]] = {
    "torch": ({"model_step_500.pt": torch_file()}, "torch", "model_step_500.pt", 500),
    "torch, by its pickle": ({"last.pth": torch_file({"epoch": 3, "step": 500})}, "torch", "last.pth", 500),
    "torch, an epoch": ({"epoch_3.pt": torch_file({"epoch": 3})}, "torch", "epoch_3.pt", None),
    "torch, of the ImageNet example": ({"checkpoint.pth.tar": torch_file()}, "torch", "checkpoint.pth.tar", None),
    "lightning": (
        {"epoch=1-step=500.ckpt": torch_file({"epoch": 1, "global_step": 500})},
        "lightning",
        "epoch=1-step=500.ckpt",
        500,
    ),
    "lightning's last": ({"last.ckpt": torch_file({"global_step": 500})}, "lightning", "last.ckpt", 500),
    "safetensors": ({"model.safetensors": safetensors_file()}, "safetensors", "model.safetensors", None),
    "mxnet": ({"net-0003.params": mxnet_file()}, "mxnet", "net-0003.params", None),
    "trainer": (trainer(), "huggingface", "checkpoint-500", 500),
    "trainer, sharded": (sharded_trainer(), "huggingface", "checkpoint-500", 500),
    "accelerate": (accelerates(), "accelerate", "step_500", 500),
    "accelerate, by number": (accelerates("checkpoint_3"), "accelerate", "checkpoint_3", None),
    "deepspeed": (deepspeeds(), "deepspeed", "global_step500", 500),
    "dcp": (distributed(), "dcp", "step-500", 500),
    "orbax": (orbaxes(), "orbax", "500", 500),
    "spacy": (spacys(), "spacy", "model-best", None),
}
"""A whole checkpoint: its files, its kind, its name, and its step."""


def write(directory: Path, files: Files) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class Evil:
    """What a pickle could do when it is read: it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return open, (str(self.path), "w")
