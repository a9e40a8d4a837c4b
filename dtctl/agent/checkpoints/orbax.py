"""Checkpoints of Orbax (JAX): a directory for each, with a file of metadata in it.

A save works in a directory whose name has a suffix, and renames it when it has ended; if a storage cannot rename a
directory atomically, `commit_success.txt` is written last (orbax/checkpoint/_src/path/atomicity.py).

The arrays are in databases of OCDBT: `manifest.ocdbt`, and files in `d/` beside it with values and, after those, nodes
of a tree (https://google.github.io/tensorstore/kvstore/ocdbt, "Storage format"). The manifest and each node have their
length and a checksum in them; they are compressed with zstd, so the lengths of the values in the nodes are not read.
"""

from __future__ import annotations

import os
import re
import struct

from ..host import files
from ..host.encodings import crc32c
from .trees import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple

    from .trees import Names, Tree

METADATA = "_CHECKPOINT_METADATA"
COMMITTED = "commit_success.txt"
MARKS = (COMMITTED, METADATA, "_METADATA", os.path.join("default", "_METADATA"))
"""Files that identify a directory as a checkpoint; the last two are of versions before 0.6."""
NO_CHECKSUMS = "Orbax's arrays have no checksums: only the metadata and the nodes of its databases were checked"

_MANIFEST, _NODE = b"\x0c\xdb\x3a\x2a", b"\x0c\xdb\x20\xde"
_HEADER_BYTES = 14
"""A magic number, the length of all, a version, which is 0, and whether the rest is compressed."""
_LARGEST_NODE = 64 << 20
_PART_BYTES = 1 << 20
_MOST_PROBLEMS = 10
_LARGEST_WITH_NODES = 16 << 20
"""A file in `d/` without nodes is one of those, filled with values, that a large database is divided into."""
_DATA = r"(?:.*/)?d/[^/]+\Z"

_UNFINISHED = r"\.orbax-checkpoint-tmp(?:-[0-9]+)?\Z"
_STEP = r"(?:\A|[_-])([0-9]{1,15})\Z"


def recognises(name: str, names: Names) -> bool:
    """Whether a directory is one of Orbax's, or is about to become one."""
    return re.search(_UNFINISHED, name) is not None or any(names.has(mark) for mark in MARKS)


def step(name: str, tree: Tree) -> Optional[int]:
    """The step by the name of its directory, as a CheckpointManager chooses it: `100`, `checkpoint_100`."""
    found = re.search(_STEP, re.sub(_UNFINISHED, "", os.path.basename(name)))
    return int(found.group(1)) if found else None


def problem(name: str, tree: Tree) -> Optional[str]:
    """Why it is not complete; None when it is. Raises OSError."""
    if re.search(_UNFINISHED, name):
        return INTERRUPTED
    if COMMITTED in tree.sizes:
        return None
    if METADATA not in tree.sizes:
        return None  # of an older version, which has renamed it
    metadata = tree.json(METADATA)
    if metadata is None:
        return "%s in it is damaged" % METADATA
    ended = metadata.get("commit_timestamp_nsecs") if isinstance(metadata, dict) else None
    return None if ended else INTERRUPTED


def damage(tree: Tree, check: Callable[[], None]) -> Tuple[List[str], List[str]]:
    """The damage by the lengths and the checksums of the databases in it, and why not all could be checked."""
    found: List[str] = []
    for path in sorted(tree.sizes):
        check()
        name = path.rpartition("/")[2]
        try:
            if name in (METADATA, "_METADATA", "_sharding"):
                problem = None if tree.json(path) is not None else "it is damaged"
            elif name == "manifest.ocdbt":
                problem = _of_manifest(tree.at(path), tree.sizes[path])
            elif re.match(_DATA, path) and _is_in_database(tree, path):
                problem = _of_data(tree.at(path), tree.sizes[path], check)
            else:
                continue
        except files.Unfit as unfit:
            problem = str(unfit.strerror)
        except OSError as error:
            problem = "it cannot be read: %s" % error.strerror
        if problem is not None:
            found.append("%s: %s" % (path, problem))
    return found[:_MOST_PROBLEMS], []


def _is_in_database(tree: Tree, path: str) -> bool:
    above = path.rpartition("/")[0].rpartition("/")[0]
    return (above + "/manifest.ocdbt").lstrip("/") in tree.sizes


def _of_manifest(path: str, size: int) -> Optional[str]:
    with files.opened(path) as file:
        head = files.read_at(file, 0, _HEADER_BYTES)
        if head[:4] != _MANIFEST[: len(head)] or not head:
            return "it is no manifest, or damaged"
        if len(head) < _HEADER_BYTES or struct.unpack_from("<Q", head, 4)[0] != size:
            return "it is cut short, or damaged: it has %d bytes" % size
        return None if size <= _LARGEST_NODE and _is_sound(file, 0, size) else "it does not match its checksum"


def _of_data(path: str, size: int, check: Callable[[], None]) -> Optional[str]:
    """Nodes are found by their headers, as only the manifest, which is compressed, says where they are."""
    nodes = at = 0
    with files.opened(path) as file:
        while at < size:
            check()
            part = files.read_at(file, at, _PART_BYTES)
            place = part.find(_NODE)
            if place < 0:
                at += max(1, len(part) - len(_NODE) + 1)
                continue
            at += place
            head = files.read_at(file, at, _HEADER_BYTES)
            length = _length_of_node(head)
            if length is None:
                at += 1
                continue
            if at + length > size:
                return "it is cut short: it has %d of %d bytes" % (size, at + length)
            if not _is_sound(file, at, length):
                return "a node at %d does not match its checksum" % at
            nodes += 1
            at += length
    return "it is cut short: no node follows its values" if not nodes and size < _LARGEST_WITH_NODES else None


def _length_of_node(head: bytes) -> Optional[int]:
    """None for bytes of a value that only begin as a node does."""
    if len(head) < _HEADER_BYTES or head[12] != 0 or head[13] > 1:
        return None
    (length,) = struct.unpack_from("<Q", head, 4)
    return length if _HEADER_BYTES + 4 <= length <= _LARGEST_NODE else None


def _is_sound(file: int, at: int, length: int) -> bool:
    data = files.read_at(file, at, length)
    return len(data) == length and struct.unpack_from("<I", data, length - 4)[0] == crc32c(data[:-4])
