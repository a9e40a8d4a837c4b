"""What one TensorFlow checkpoint holds, by its index: are all shards there and long enough, and which step is it.

The layout: `tensorflow/core/util/tensor_bundle/tensor_bundle.h`; PREFIX.index and PREFIX.data-00000-of-00002.
"""

from __future__ import annotations

import os
import re
import struct

from .tensor_table import Damaged, entries, fields, masked_crc32c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_OBJECT_GRAPH_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_STEP_NAMES = ("global_step", "step", "train_step", "iterations", "_iterations", "iter")
"""Last words of variables that count training steps, the best first. Not save_counter: that counts checkpoints."""

_INTEGERS = {3: "i", 9: "q"}  # DT_INT32, DT_INT64
_NUMBER = re.compile(r"-([0-9]+)\Z")


class Entry:
    """A BundleEntryProto: where a tensor lies."""

    def __init__(self, message: bytes) -> None:
        found = fields(message)

        def number(field: int) -> int:
            value = found.get(field, [0])[-1]
            return value if isinstance(value, int) else 0

        self.dtype = number(1)
        self.shard = number(3)
        self.offset = number(4)
        self.size = number(5)
        self.crc32c = number(6)


class Index:
    """All of an index file. Raises Damaged, OSError."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        with open(prefix + ".index", "rb") as file:
            table = file.read()
        self.size_bytes = len(table)
        self._entries: Dict[str, Entry] = {}
        header = None
        for key, value in entries(table):
            if key:
                self._entries[key.decode("utf-8", "replace")] = Entry(value)
            else:
                header = fields(value)
        if header is None:
            raise Damaged("the index has no header")
        shards = header.get(1, [0])[0]
        if not isinstance(shards, int) or shards < 1:
            raise Damaged("the index's header names no shards")
        self.shards = shards
        self._byte_order = ">" if header.get(2, [0])[0] == 1 else "<"

    def shard_path(self, shard: int) -> str:
        return f"{self.prefix}.data-{shard:05d}-of-{self.shards:05d}"

    def problem(self) -> Optional[str]:
        """Why the shards cannot hold what the index says; None when they can."""
        needed = [0] * self.shards
        for name, entry in self._entries.items():
            if entry.shard >= self.shards:
                return f"{name} lies in shard {entry.shard}, and there are {self.shards}"
            needed[entry.shard] = max(needed[entry.shard], entry.offset + entry.size)
        for shard, size in enumerate(needed):
            name = os.path.basename(self.shard_path(shard))
            found = file_size(self.shard_path(shard))
            if found is None:
                return f"{name} is missing"
            if found < size:
                return f"{name} is cut short: it has {found} of {size} bytes"
        return None

    def step(self) -> Optional[int]:
        """The training step: of a variable that counts it, else the number in the checkpoint's name.

        That number is no step when it only counts the checkpoints, as that of `tf.train.Checkpoint.save` does.
        """
        for name in self._step_variables():
            value = self._scalar(self._entries[name])
            if value is not None:
                return value
        in_name = number_in(self.prefix)
        counter = self._entries.get("save_counter" + _OBJECT_GRAPH_SUFFIX)
        if counter is not None and self._scalar(counter) == in_name:
            return None
        return in_name

    def _step_variables(self) -> List[str]:
        """The most telling first, then the least deep in the object graph."""
        found: List[Tuple[int, int, str]] = []
        for name in self._entries:
            path = name[: -len(_OBJECT_GRAPH_SUFFIX)] if name.endswith(_OBJECT_GRAPH_SUFFIX) else name
            last = path.rpartition("/")[2]
            if last in _STEP_NAMES and (path != name or last == "global_step"):
                found.append((_STEP_NAMES.index(last), path.count("/"), name))
        return [name for _, _, name in sorted(found)]

    def _scalar(self, entry: Entry) -> Optional[int]:
        """The tensor as a single integer; None when it is no integer, or its bytes are not those that were saved."""
        code = _INTEGERS.get(entry.dtype)
        if code is None or entry.size != struct.calcsize(code) or entry.shard >= self.shards:
            return None
        try:
            with open(self.shard_path(entry.shard), "rb") as file:
                file.seek(entry.offset)
                data = file.read(entry.size)
        except OSError:
            return None
        if len(data) != entry.size or masked_crc32c(data) != entry.crc32c:
            return None
        value: int = struct.unpack(self._byte_order + code, data)[0]
        return value


def number_in(prefix: str) -> Optional[int]:
    """The N of a checkpoint's name as in model.ckpt-N."""
    match = _NUMBER.search(os.path.basename(prefix))
    return int(match.group(1)) if match else None


def file_size(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None
