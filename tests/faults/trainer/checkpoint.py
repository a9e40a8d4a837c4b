"""TensorFlow's checkpoint files without TensorFlow, written as `tf.train.Saver` writes them.

Formats: `tensorflow/core/util/tensor_bundle/tensor_bundle.h`, `tensorflow/core/lib/io/table_format.txt`. The weights
depend only on the step, so a checkpoint is checked byte by byte.
"""

from __future__ import annotations

import array
import os
import random
import re
import struct
from collections.abc import Iterable
from pathlib import Path

from event_files import masked, number, piece, varint  # type: ignore[import-not-found]  # is pushed beside this

_MAGIC = 0xDB4775248B80FB57
_DT_FLOAT, _DT_INT64 = 1, 9
_WEIGHTS = 256


class DataLossError(Exception):
    """As TensorFlow's: the files are not those that were saved."""


def save(directory: Path, step: int, shards: int, keep: int) -> None:
    """Writes model.ckpt-STEP under other names, renames it into place, names it in `checkpoint`, deletes old ones."""
    name = f"model.ckpt-{step}"
    suffix = f".tempstate{random.getrandbits(63)}"
    files = {directory / (name + end): data for end, data in _contents(step, shards).items()}
    try:
        for path, data in files.items():
            _write(path.with_name(path.name + suffix), data)
        for path in files:
            path.with_name(path.name + suffix).rename(path)
    finally:
        _delete(path.with_name(path.name + suffix) for path in files)
    names = [*(other for other in named(directory) if other != name), name]
    _write_state(directory, names[-keep:])
    for old in names[:-keep]:
        _delete(directory.glob(old + ".*"))


def restore(directory: Path, shards: int) -> int | None:
    """The step of the checkpoint that the file `checkpoint` names; None if there is none. Raises DataLossError."""
    newest = _stated(directory, "model_checkpoint_path")
    if not newest or not (directory / (newest[0] + ".index")).exists():
        return None
    step = int(newest[0].rpartition("-")[2])
    for end, expected in _contents(step, shards).items():
        path = directory / (newest[0] + end)
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            raise DataLossError(f"{path}; No such file or directory") from None
        if found != expected:
            raise DataLossError(f"Checksum does not match: {path}, {len(found)} of {len(expected)} bytes")
    return step


def named(directory: Path) -> list[str]:
    """All checkpoints that the file `checkpoint` names, oldest first."""
    return _stated(directory, "all_model_checkpoint_paths")


def _stated(directory: Path, field: str) -> list[str]:
    try:
        text = (directory / "checkpoint").read_text()
    except FileNotFoundError:
        return []
    return re.findall(rf'^{field}: "(.+)"$', text, re.MULTILINE)


def _write_state(directory: Path, names: list[str]) -> None:
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    new = directory / "checkpoint.tmp"
    _write(new, ("\n".join(lines) + "\n").encode())
    new.rename(directory / "checkpoint")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # a full disk is noticed here, not after the rename


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _contents(step: int, shards: int) -> dict[str, bytes]:
    """The files of a checkpoint, by their suffixes."""
    table = [(b"", number(1, shards) + piece(3, number(1, 1)))]  # BundleHeaderProto
    data = [b""] * shards
    tensors: list[tuple[bytes, int, tuple[int, ...], int, bytes]]
    tensors = [(b"global_step", _DT_INT64, (), 0, struct.pack("<q", step))]
    for shard in range(shards):
        tensors.append((b"weights/part_%d" % shard, _DT_FLOAT, (_WEIGHTS,), shard, _weights(step, shard)))
    for name, dtype, shape, shard, values in tensors:
        table.append((name, _entry(dtype, shape, shard, len(data[shard]), values)))
        data[shard] += values
    files = {f".data-{shard:05d}-of-{shards:05d}": values for shard, values in enumerate(data)}
    return {**files, ".index": _table(table)}


def _weights(step: int, shard: int) -> bytes:
    return array.array("f", [(step * 31 + shard * 17 + n) % 1000 / 1000 for n in range(_WEIGHTS)]).tobytes()


def _entry(dtype: int, shape: tuple[int, ...], shard: int, offset: int, values: bytes) -> bytes:
    """A BundleEntryProto."""
    dimensions = b"".join(piece(2, number(1, size)) for size in shape)
    checksum = varint(6 << 3 | 5) + struct.pack("<I", masked(values))
    place = _unless_0(3, shard) + _unless_0(4, offset) + number(5, len(values))
    return bytes(number(1, dtype) + piece(2, dimensions) + place + checksum)


def _table(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A table of a single block of entries, in the order of their keys."""
    content = _block(entries)
    handle = varint(0) + varint(len(content) - 5)
    meta = _block([])
    meta_handle = varint(len(content)) + varint(len(meta) - 5)
    index = _block([(entries[-1][0], handle)])
    index_handle = varint(len(content) + len(meta)) + varint(len(index) - 5)
    footer = (meta_handle + index_handle).ljust(40, b"\0") + struct.pack("<Q", _MAGIC)
    return bytes(content + meta + index + footer)


def _block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A block with its trailer of five bytes: not compressed, checksum.

    Keys share no prefixes, so one restart is enough.
    """
    body = b"".join(varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in entries)
    body += struct.pack("<II", 0, 1) + b"\0"
    return body + struct.pack("<I", masked(body))


def _unless_0(field: int, value: int) -> bytes:
    """The field, omitted if it is 0, as in protocol buffers."""
    return bytes(number(field, value)) if value else b""
