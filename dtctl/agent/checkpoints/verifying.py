"""Whether each byte of a checkpoint is the one that was saved, as far as its format has checksums (formats.py).

TensorFlow's index has a checksum in each block, and one for each tensor, by which TensorFlow refuses to restore what
differs (`tensorflow/core/util/tensor_bundle/tensor_bundle.cc`). The data are read in small parts: no checkpoint is too
large, it only takes long. Other users may write there: nothing but regular files is opened.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from ..host import files
from ..host.budget import Spent
from ..host.encodings import crc32c, masked
from . import formats
from .tensor_bundle import Damaged, Entry, Index, file_size
from .trees import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Optional, Tuple

    from ..host.budget import Budget
    from ..records.checkpoints import Checkpoint, CheckpointReport

_PART_BYTES = 1 << 20
_STRING, _VARIANT, _RESOURCE = 7, 21, 20
_MOST_PROBLEMS = 10
_LONGEST_LENGTHS = 16 * 1024 * 1024
"""Bytes that the lengths of one tensor's strings may take."""
_MOST_TENSORS = 200_000
"""The most tensors that are read. An index of the largest size has about as many, unless it was made to hold more."""


class Verdict:
    """`problems` is empty if all bytes that were read are as saved; `unread`: why not all were read."""

    def __init__(self) -> None:
        self.problems: List[str] = []
        self.unread: Optional[str] = None
        self.tensors = 0
        self.read_bytes = 0
        self.all_bytes = 0

    @property
    def sound(self) -> bool:
        return not self.problems and self.unread is None

    def add(self, problem: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)


def verify(prefix: str, check: Callable[[], None] = lambda: None, *, part: bool = False) -> Verdict:
    """Reads all of its files on this host. `check` is called periodically; if it raises Spent, the reading ends.

    `part`: other hosts hold the rest of it, which is no damage.
    """
    verdict = Verdict()
    try:
        _verify(prefix, verdict, check, part)
    except Damaged as damaged:
        verdict.add(str(damaged))
    except FileNotFoundError:
        if part:
            verdict.unread = "the index is on another host, and without it no checksum can be read"
        else:
            verdict.add("the index is missing")
    except files.Unfit as unfit:
        verdict.add("the index %s" % unfit.strerror)
    except OSError as error:
        verdict.add("it cannot be read: %s" % error.strerror)
    except Spent as spent:
        verdict.unread = "%d of %d bytes of tensors were read: %s" % (verdict.read_bytes, verdict.all_bytes, spent)
    return verdict


def verify_format(path: str, row: formats.Format, budget: Budget, *, part: bool = False) -> Verdict:
    """The same for a checkpoint of any format, as far as that has checksums."""
    if row is formats.TENSORFLOW:
        return verify(path, budget.check, part=part)
    verdict = Verdict()
    problems, verdict.unread = formats.damage(path, row, budget, part=part)
    for problem in problems:
        verdict.add(problem)
    with suppress(OSError, Spent):
        verdict.read_bytes = Tree(path, budget).size_bytes if row.is_directory else file_size(path) or 0
    return verdict


def _verify(prefix: str, verdict: Verdict, check: Callable[[], None], part: bool) -> None:
    tensors: List[Entry] = []
    names: List[str] = []

    def keep(name: str, entry: Entry) -> None:
        if not entry.size:  # a partitioned variable has none of its own: its parts follow under their own names
            return
        if len(tensors) >= _MOST_TENSORS:
            verdict.unread = "only the first %d tensors were read" % _MOST_TENSORS
            return
        tensors.append(entry)
        names.append(_shown(name))

    index = Index(prefix, check, keep)
    problem = None if part else index.problem()
    if problem is not None:
        verdict.add(problem)
    verdict.all_bytes = sum(entry.size for entry in tensors)
    of_shards: Dict[int, List[int]] = {}
    for number, entry in enumerate(tensors):
        of_shards.setdefault(entry.shard, []).append(number)
    for shard in sorted(of_shards):
        inside = sorted(of_shards[shard], key=lambda number: tensors[number].offset)
        path = index.shard_path(shard)
        try:
            opened = files.descriptor(path)
        except OSError:
            continue  # `problem` has reported the first
        end = 0
        try:
            for number in inside:
                if tensors[number].offset < end:  # a small file could otherwise expand to any amount of reading
                    verdict.unread = "%s lies within another tensor: what follows it was not read" % names[number]
                    break
                end = tensors[number].offset + tensors[number].size
                _hold(opened, names[number], tensors[number], verdict, check)
        except OSError as error:
            verdict.add("%s cannot be read: %s" % (os.path.basename(path), error.strerror))
        finally:
            os.close(opened)


def _shown(name: str) -> str:
    """The name for people; parts of a partitioned variable have their own keys (`tensor_slice_util`, OrderedCode)."""
    if name.startswith("\0"):
        name = "a part of %s" % name[1:].split("\0")[0]
    return "".join(char if char.isprintable() else "?" for char in name[:200])


def _hold(opened: int, name: str, entry: Entry, verdict: Verdict, check: Callable[[], None]) -> None:
    if entry.dtype in (_VARIANT, _RESOURCE):
        verdict.unread = verdict.unread or "%s is of a kind whose checksum dtctl cannot read" % name
        return
    reader = _Part(opened, entry, verdict, check)
    try:
        found = _of_strings(reader) if entry.dtype == _STRING else _of_rest(reader, 0)
    except Damaged as damaged:
        verdict.add("%s %s" % (name, damaged))
        return
    verdict.tensors += 1
    if masked(found) != entry.crc32c:
        verdict.add("%s does not match its checksum" % name)


class _Part:
    """The bytes of one tensor, from front to back."""

    def __init__(self, opened: int, entry: Entry, verdict: Verdict, check: Callable[[], None]) -> None:
        self._opened = opened
        self._at = entry.offset
        self.left = entry.size
        self._verdict = verdict
        self._check = check

    def take(self, most: int) -> bytes:
        """Raises Damaged where the file ends first."""
        self._check()
        data = files.read_at(self._opened, self._at, min(most, self.left))
        if not data and self.left:
            raise Damaged("lies beyond the end of its file")
        self._at += len(data)
        self.left -= len(data)
        self._verdict.read_bytes += len(data)
        return data


def _of_rest(part: _Part, crc: int) -> int:
    while part.left:
        crc = crc32c(part.take(_PART_BYTES), crc)
    return crc


def _of_strings(part: _Part) -> int:
    """Verifies strings (WriteStringTensor): lengths as varints, a checksum of the plain lengths, then the strings."""
    total, lengths, buffer = part.left, bytearray(), b""
    used = sum_of_lengths = 0
    while used + 4 + sum_of_lengths < total:
        length, taken, buffer = _varint(part, buffer)
        used += taken
        sum_of_lengths += length
        lengths += struct.pack("<I" if length <= 0xFFFFFFFF else "<Q", length)
        if used > _LONGEST_LENGTHS:
            raise Damaged("has more strings than dtctl reads")
    if used + 4 + sum_of_lengths != total:
        raise Damaged("has strings whose lengths do not fit")
    while len(buffer) < 4 and part.left:
        buffer += part.take(_PART_BYTES)
    if len(buffer) < 4:
        raise Damaged("has strings that end within their lengths")
    crc = crc32c(bytes(lengths))
    if struct.unpack_from("<I", buffer)[0] != masked(crc):
        raise Damaged("has strings whose lengths do not match their checksum")
    return _of_rest(part, crc32c(buffer, crc))


def _varint(part: _Part, buffer: bytes) -> Tuple[int, int, bytes]:
    """The number, how many bytes it took, and what follows it."""
    value = shift = taken = 0
    while True:
        if taken == len(buffer):
            buffer += part.take(4096)
        if taken == len(buffer):
            raise Damaged("has strings that end within a length")
        byte = buffer[taken]
        taken += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, taken, buffer[taken:]
        shift += 7
        if shift > 63:
            raise Damaged("has a string whose length is no number")


def divide(
    report: CheckpointReport, keep: int, is_damaged: Callable[[Checkpoint], bool]
) -> Iterator[Tuple[str, List[Checkpoint], List[Checkpoint]]]:
    """The checkpoints to keep and those to remove, newest first, for each series of complete ones in a directory.

    If those to keep are damaged, older ones stay, too. What is in no series has a name of its own, and stays.
    """
    by_series: Dict[Tuple[str, ...], List[Checkpoint]] = {}
    for one in report["all"]:
        series = formats.series(one)
        if one["complete"] and series is not None:
            by_series.setdefault(series, []).append(one)
    for (below, *_), found in by_series.items():
        sound = (number for number, one in enumerate(found) if len(found) <= keep or not is_damaged(one))
        stays = max(keep, next(sound, len(found)) + 1)
        yield below, found[:stays], found[stays:]
