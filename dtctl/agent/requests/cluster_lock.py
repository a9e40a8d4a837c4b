"""The lock of a cluster on a host."""

from __future__ import annotations

import _thread
import json
import os
import signal
import time
from contextlib import suppress

from ..host import files, locks, paths, processes
from ..host.errors import Refused
from ..records.run_state import Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..conversation import Conversation
    from ..records.requests import Request

NOTICE_S = 2.0
"""How long a session may take to notice that its controller has disconnected; then it is killed."""

ENDING_S = 45.0
"""How long another session waits for one that cancels the interrupted work of its controller."""


class ClusterLock:
    """Lets only one controller at a time work on a cluster's run on a host. The file names it."""

    def __init__(self, descriptor: int, holder: Holder) -> None:
        self._descriptor = descriptor
        self._holder = holder
        self._mutex = _thread.allocate_lock()
        self.held = True
        self._write()

    def note_gone(self) -> None:
        """Records that the controller has disconnected: the next command waits for this session to end."""
        self._holder["gone"] = True
        self._write()

    def _write(self) -> None:
        with self._mutex:
            if self.held:
                with suppress(OSError):  # on a full disk the holder stays unknown, but the lock holds
                    os.ftruncate(self._descriptor, 0)
                    os.pwrite(self._descriptor, json.dumps(self._holder).encode(), 0)

    def release(self) -> None:
        with self._mutex:
            self.held = False
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)


def hold(talk: Conversation, request: Request, by: str) -> ClusterLock:
    """Takes the lock. Refuses if another controller holds it, with who and since when; a dead holder does not count."""
    directory = paths.cluster_directory(talk.root, request["cluster"], request["host"])
    path = os.path.join(directory, "lock")
    until = time.monotonic() + ENDING_S
    with talk.at("waiting for an interrupted command"):
        descriptor = try_hold(directory)
        while descriptor is None and _is_left(path) and time.monotonic() < until:
            time.sleep(0.05)
            descriptor = try_hold(directory)
    if descriptor is None:
        raise _refusal(request["cluster"], path)
    holder: Holder = {
        "by": by,
        "since": time.time(),
        "command": request["type"],
        "pid": request["pid"],
        "session": processes.myself(),
        "gone": False,
    }
    lock = ClusterLock(descriptor, holder)
    _thread.start_new_thread(_watch, (talk, lock))
    return lock


def try_hold(directory: str) -> Optional[int]:
    """The lock of a cluster's directory, which is created if necessary; None if another controller has it.

    What a trainer has put in its place is set aside, once. Raises OSError.
    """
    path, aside = os.path.join(directory, "lock"), False
    while True:
        paths.make_directory(directory)
        try:
            return locks.hold(path, exclusive=True)
        except FileNotFoundError:  # `gc` has removed the directory as unused
            continue
        except files.Unfit:
            if aside:
                raise
            aside = True
            with suppress(FileNotFoundError):
                paths.put_aside(path)


def _watch(talk: Conversation, lock: ClusterLock) -> None:
    """Kills the session, and its child processes, if it does not notice that its controller has disconnected.

    The agents cancel the run that it has begun: they detect that the session has ended.
    """
    if talk.wire.await_hangup(lambda: lock.held):
        lock.note_gone()
        time.sleep(NOTICE_S)
        if lock.held and not talk.wire.noticed:
            processes.send_signal(processes.below([os.getpid()]).values(), signal.SIGKILL)
            os._exit(1)


def _is_left(path: str) -> bool:
    """Whether the controller of the session that holds the lock has disconnected; the session is about to end."""
    holder = _holder(path)
    return holder is not None and holder["gone"]


def _holder(path: str) -> Optional[Holder]:
    try:
        return paths.read_record(path, Holder)
    except paths.Damaged:
        return None


def _refusal(cluster: str, path: str) -> Refused:
    summary = "another dtctl is at work on %s" % cluster
    holder = _holder(path)
    if holder is None:
        return Refused("locked", summary, "it has just started", "try again in a moment")
    who, session = holder["by"] or "somebody", holder["session"]
    if holder["command"]:
        who = "dtctl %s by %s" % (holder["command"], who)
    if holder["pid"] is not None:
        who += " (pid %d there)" % holder["pid"]
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(holder["since"]))
    detail = "%s, since %s (%d s ago)" % (who, when, max(0, round(time.time() - holder["since"])))
    if session is not None:
        detail += "; its session on this host has pid %d" % session["pid"]
    return Refused("locked", summary, detail, "wait for it, or interrupt it there")
