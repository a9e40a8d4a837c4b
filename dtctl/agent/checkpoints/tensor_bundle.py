"""Reads a TensorFlow checkpoint by its index: whether all shards exist and are long enough, and its step.

The layout: `tensorflow/core/util/tensor_bundle/tensor_bundle.h`; PREFIX.index and PREFIX.data-00000-of-00002.
"""

from __future__ import annotations

import os
import re
import struct

from ..host import encodings, files
from ..host.encodings import masked_crc32c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Optional, Tuple


_MAGIC = 0xDB4775248B80FB57
_FOOTER_SIZE = 48
_TRAILER_SIZE = 5  # type of compression, checksum
_LONGEST_KEY = 64 * 1024
_BETWEEN_CHECKS = 1000


class Damaged(Exception):
    """The file does not match its own checksums and lengths, or is of an unsupported kind."""


def entries(table: bytes, check: Callable[[], None] = lambda: None) -> Iterator[Tuple[bytes, bytes]]:
    """Keys and values of a whole table in order. Raises Damaged, and exceptions of `check`, which it calls repeatedly.

    The work is at most proportional to the size: every block is read once, and none of them overlaps another.
    """
    if len(table) < _FOOTER_SIZE or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
        raise Damaged("the index is cut short, or is not an index")
    try:
        footer = table[-_FOOTER_SIZE:]
        _, position = _handle(footer, 0)  # of the metaindex, which checkpoints do not use
        index_handle, _ = _handle(footer, position)
        last, end = None, 0
        for _, value in _block(table, index_handle, check):
            handle, _ = _handle(value, 0)
            if handle[0] < end:
                raise Damaged("the index has blocks that overlap")
            end = handle[0] + handle[1] + _TRAILER_SIZE
            for key, value in _block(table, handle, check):
                if last is not None and key <= last:
                    raise Damaged("the index is not in order")
                last = key
                yield key, value
    except (encodings.Malformed, struct.error):
        raise Damaged("the index ends within an entry") from None


def fields(message: bytes) -> Dict[int, List[int | bytes]]:
    """A protocol buffer as the values of each field number. Raises Damaged."""
    found: Dict[int, List[int | bytes]] = {}
    try:
        for number, _, value in encodings.fields(message, (0, len(message))):
            found.setdefault(number, []).append(value if isinstance(value, int) else message[slice(*value)])
    except encodings.Malformed as malformed:
        raise Damaged("an entry of the index %s" % malformed) from None
    return found


def _block(table: bytes, handle: Tuple[int, int], check: Callable[[], None]) -> Iterator[Tuple[bytes, bytes]]:
    offset, size = handle
    end = offset + size
    if end + _TRAILER_SIZE > len(table):
        raise Damaged("the index is cut short")
    check()
    if struct.unpack_from("<I", table, end + 1)[0] != masked_crc32c(table[offset : end + 1]):
        raise Damaged("the index does not match its checksum")
    if table[end] != 0:
        raise Damaged("the index is compressed, which dtctl cannot read")
    content = table[offset:end]
    restarts = struct.unpack_from("<I", content, len(content) - 4)[0]
    limit = len(content) - 4 * (restarts + 1)
    if limit < 0:
        raise Damaged("the index has a block with more restarts than it has room for")
    position, key, left = 0, b"", _BETWEEN_CHECKS
    while position < limit:
        shared, position = encodings.varint(content, position, limit)
        unshared, position = encodings.varint(content, position, limit)
        size, position = encodings.varint(content, position, limit)
        if shared > len(key) or position + unshared + size > limit or shared + unshared > _LONGEST_KEY:
            raise Damaged("the index ends within an entry")
        key = key[:shared] + content[position : position + unshared]
        position += unshared
        yield key, content[position : position + size]
        position += size
        left -= 1
        if not left:
            check()
            left = _BETWEEN_CHECKS


def _handle(data: bytes, position: int) -> Tuple[Tuple[int, int], int]:
    offset, position = encodings.varint(data, position, len(data))
    size, position = encodings.varint(data, position, len(data))
    return (offset, size), position


MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of an index: about 160,000 tensors, and three seconds of checksums."""

_MOST_SHARDS = 99999
"""The most shards: their numbers have five digits in the files' names."""

_LARGEST = (1 << 63) - 1
_MOST_STEP_VARIABLES = 1000

_OBJECT_GRAPH_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_STEP_NAMES = ("global_step", "step", "train_step", "iterations", "_iterations", "iter")
"""Last words of variables that count training steps, the best first. save_counter counts checkpoints instead."""
_COUNTER = "save_counter" + _OBJECT_GRAPH_SUFFIX

_INTEGERS = {3: "i", 9: "q"}  # DT_INT32, DT_INT64
_NUMBER = r"-([0-9]{1,18})\Z"


class Entry:
    """A BundleEntryProto: the position of a tensor. Raises Damaged."""

    __slots__ = ("crc32c", "dtype", "offset", "shard", "size")

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
        if self.offset + self.size > _LARGEST:
            raise Damaged("the index has a tensor that lies beyond the end of any file")


class Index:
    """The content of an index file. Only tensors that may hold the step are kept.

    `keep` is given the name and place of each tensor. Raises Damaged, OSError, and what `check` does, which is called
    now and then.
    """

    def __init__(
        self,
        prefix: str,
        check: Callable[[], None] = lambda: None,
        keep: Callable[[str, Entry], None] = lambda name, entry: None,
    ) -> None:
        self.prefix = prefix
        self._check = check
        self._keep = keep
        self._needed: Dict[int, int] = {}
        """Shard -> its required length."""
        self._telling: Dict[str, Entry] = {}
        self._misplaced: Optional[str] = None
        table = entries(files.read(prefix + ".index", MOST_BYTES), check)
        self._read_header(*next(table, (b"", b"")))
        for key, value in table:
            self._add(key.decode("utf-8", "replace"), Entry(value))

    def _read_header(self, key: bytes, value: bytes) -> None:
        """A BundleHeaderProto; its key is empty, and so the first of all."""
        if key or not value:
            raise Damaged("the index has no header")
        header = fields(value)
        shards = header.get(1, [0])[0]
        if not isinstance(shards, int) or shards < 1:
            raise Damaged("the index's header names no shards")
        if shards > _MOST_SHARDS:
            raise Damaged("the index's header names %d shards, and %d are the most" % (shards, _MOST_SHARDS))
        self.shards = shards
        self._byte_order = ">" if header.get(2, [0])[0] == 1 else "<"

    def _add(self, name: str, entry: Entry) -> None:
        if entry.shard >= self.shards:
            self._misplaced = (
                self._misplaced or f"{name[:200]} lies in shard {entry.shard}, and there are {self.shards}"
            )
            return
        self._keep(name, entry)
        end = entry.offset + entry.size
        if end > self._needed.get(entry.shard, 0):
            self._needed[entry.shard] = end
        if name == _COUNTER or (len(self._telling) < _MOST_STEP_VARIABLES and _rank(name) is not None):
            self._telling[name] = entry

    def shard_path(self, shard: int) -> str:
        return f"{self.prefix}.data-{shard:05d}-of-{self.shards:05d}"

    def problem(self) -> Optional[str]:
        """Why the shards do not match the index; None if they do."""
        if self._misplaced is not None:
            return self._misplaced
        for shard in range(self.shards):
            self._check()
            size = self._needed.get(shard, 0)
            name = os.path.basename(self.shard_path(shard))
            try:
                found = files.stat_regular(self.shard_path(shard)).st_size
            except FileNotFoundError:
                return f"{name} is missing"
            except files.Unfit as unfit:
                return f"{name} {unfit.strerror}"
            if found < size:
                return f"{name} is cut short: it has {found} of {size} bytes"
        return None

    def step(self) -> Optional[int]:
        """The training step: of a variable that counts it, else the number in the checkpoint's name.

        That number is no step if it only counts the checkpoints, as that of `tf.train.Checkpoint.save` does.
        """
        for name in self._step_variables():
            value = self._scalar(self._telling[name])
            if value is not None:
                return value
        in_name = number_in(self.prefix)
        counter = self._telling.get(_COUNTER)
        if counter is not None and self._scalar(counter) == in_name:
            return None
        return in_name

    def _step_variables(self) -> List[str]:
        """The most telling first, then the least deep in the object graph."""
        ranked = ((_rank(name), name) for name in self._telling)
        return [name for _, name in sorted((rank, name) for rank, name in ranked if rank is not None)]

    def _scalar(self, entry: Entry) -> Optional[int]:
        """The tensor as a single integer; None when it is none, or its bytes are not those that were saved."""
        code = _INTEGERS.get(entry.dtype)
        if code is None or entry.size != struct.calcsize(code):
            return None
        self._check()
        try:
            with files.opened(self.shard_path(entry.shard)) as shard:
                data = files.read_at(shard, entry.offset, entry.size)
        except OSError:
            return None
        if len(data) != entry.size or masked_crc32c(data) != entry.crc32c:
            return None
        value: int = struct.unpack(self._byte_order + code, data)[0]
        return value if value >= 0 else None


def _rank(name: str) -> Optional[Tuple[int, int]]:
    """The rank of a variable that counts steps, and its depth; None for any other variable."""
    path = name[: -len(_OBJECT_GRAPH_SUFFIX)] if name.endswith(_OBJECT_GRAPH_SUFFIX) else name
    last = path.rpartition("/")[2]
    if last in _STEP_NAMES and (path != name or last == "global_step"):
        return _STEP_NAMES.index(last), path.count("/")
    return None


def number_in(prefix: str) -> Optional[int]:
    """The N of a checkpoint's name as in model.ckpt-N."""
    match = re.search(_NUMBER, os.path.basename(prefix))
    return int(match.group(1)) if match else None


def file_size(path: str) -> Optional[int]:
    """The size of a file; None if there is none."""
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return None
