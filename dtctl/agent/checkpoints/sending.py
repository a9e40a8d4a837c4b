"""The files of one checkpoint, sent in parts: data first, and the index, without which they are none, last."""

from __future__ import annotations

import hashlib
import os

from ..host import files
from ..host.errors import Refused
from . import reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Mapping

    from ..records.checkpoints import FilePart, FileSent
    from ..records.requests import FetchRequest, Had

    Send = Callable[[FilePart, bytes], None]

PART_BYTES = 1 << 20


def send(path: str, request: FetchRequest, put: Send) -> List[FileSent]:
    """`path`: the checkpoint's. Raises Refused for a file that changes while it is sent."""
    had = {one["name"]: one for one in request["have"]}
    place, name = os.path.split(path)
    return [_send(os.path.join(place, one), one, had, put) for one in _names(place, name, request)]


def _names(place: str, prefix: str, request: FetchRequest) -> List[str]:
    with os.scandir(place) as listed:
        names = [entry.name for _, entry in zip(range(reading.MOST_NAMES), listed)]
    own = sorted(name for name in names if name == prefix or reading.belongs(name, prefix))
    data = [name for name in own if name != prefix + ".index"]
    if request["shards"] is not None:
        data = [name for name in data if reading.shard_of(name) in (None, *request["shards"])]
    if not request["index"]:
        data = [name for name in data if reading.shard_of(name) is not None]
    return [*data, *(name for name in own if name == prefix + ".index" and request["index"])]


def _send(path: str, name: str, had: Mapping[str, Had], put: Send) -> FileSent:
    opened = files.descriptor(path)
    try:
        found = os.fstat(opened)
        identity = "%d-%d-%d" % (found.st_ino, found.st_size, found.st_mtime_ns)
        before = had.get(name)
        skip = before["size"] if before is not None and before["identity"] == identity else 0
        skip = min(skip, found.st_size)
        digest, offset = hashlib.sha256(), 0
        while offset < found.st_size or not offset:
            data = files.read_at(opened, offset, min(PART_BYTES, found.st_size - offset))
            if not data and found.st_size:
                raise Refused("internal", "%s became shorter while it was read" % path)
            digest.update(data)
            end = offset + len(data)
            if end > skip or end == found.st_size:
                start = max(offset, skip)
                put(
                    {"name": name, "offset": start, "total": found.st_size, "identity": identity},
                    data[start - offset :],
                )
            offset = end
            if not data:
                break
        return {"name": name, "size": found.st_size, "sha256": digest.hexdigest()}
    finally:
        os.close(opened)
