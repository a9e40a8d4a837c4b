"""The files of one checkpoint, sent in parts, in the order in which they were asked for."""

from __future__ import annotations

import hashlib
import os

from ..host import files
from ..host.errors import Refused
from ..records.checkpoints import is_part

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
    for one in request["files"]:
        if one != name and not is_part(name, one):
            raise Refused("bad_request", "%s is no file of %s" % (ascii(one)[:200], ascii(name)[:200]))
    there = [one for one in request["files"] if os.path.lexists(os.path.join(place, one))]
    return [_send(os.path.join(place, one), one, had, put) for one in there]


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
