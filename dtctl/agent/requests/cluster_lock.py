"""The lock of a cluster on a host."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from ..host import locks, paths
from ..host.errors import Refused
from ..records.run_state import Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..protocol.conversation import Conversation


class ClusterLock:
    """Only one controller at a time works on a cluster's run on a host. The file says who."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def hold(talk: Conversation, cluster: str, host: str, by: str) -> ClusterLock:
    """Refuses when another controller holds it, with who and since when. A holder that has died holds nothing."""
    directory = paths.cluster_directory(talk.root, cluster, host)
    path = os.path.join(directory, "lock")
    descriptor = try_hold(directory)
    if descriptor is None:
        raise Refused("locked", "another dtctl is at work on %s" % cluster, _holder(path))
    holder: Holder = {"by": by, "since": time.time()}
    os.ftruncate(descriptor, 0)
    with suppress(OSError):  # on a full disk nobody learns who it is, but the lock holds
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    return ClusterLock(descriptor)


def try_hold(directory: str) -> Optional[int]:
    """The lock of a cluster's directory, which is made if need be; None when another controller has it."""
    while True:
        paths.make_directory(directory)
        with suppress(FileNotFoundError):  # `gc` has taken the directory for that of a cluster that is no more
            return locks.hold(os.path.join(directory, "lock"), exclusive=True)


def _holder(path: str) -> str:
    try:
        holder = paths.read_record(path, Holder)
    except paths.Damaged:
        holder = None
    if holder is None:
        return "it has begun just now"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(holder["since"]))
    return "%s, since %s" % (holder["by"], when)
