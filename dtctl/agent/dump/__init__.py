"""The kernel's data about threads of a process, as far as this user may read it."""

from __future__ import annotations

import os

from ..host import paths, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ..records.vitals import Thread


SITE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "site")
"""Comes first in the PYTHONPATH of trainers."""

SIGNAL = 57
"""The same as in site/sitecustomize.py, which works when it is imported, and so never is here."""

FILE = "stacks"
"""The name of the file in the attempt's directory, the same as there."""


_LONGEST = 300
_DEEPEST = 32


def kernel_threads(pid: int, most: int) -> Tuple[List[Thread], int]:
    """At most `most` of its threads, and the number of omitted ones."""
    names = sorted(_threads_of(pid), key=int)
    found = [_thread(pid, name) for name in names[:most]]
    return [thread for thread in found if thread is not None], max(0, len(names) - most)


def _threads_of(pid: int) -> List[str]:
    return [name for name in paths.entries("/proc/%d/task" % pid) if name.isdigit()]


def _thread(pid: int, name: str) -> "Thread | None":
    place = "task/%s/" % name
    status = fields(processes.proc_text(pid, place + "status"))
    if "State" not in status:
        return None  # it has ended
    wchan = processes.proc_text(pid, place + "wchan").strip()
    stack = processes.proc_text(pid, place + "stack").splitlines()
    return {
        "tid": int(name),
        "name": status.get("Name", "")[:_LONGEST],
        "state": status["State"][:_LONGEST],
        "wchan": "" if wchan == "0" else wchan[:_LONGEST],
        "kernel": [line.strip()[:_LONGEST] for line in stack[:_DEEPEST]],
    }


def fields(status: str) -> Dict[str, str]:
    """The lines of /proc/PID/status."""
    pairs = (line.partition(":") for line in status.splitlines())
    return {name: value.strip() for name, _, value in pairs}


class Signals:
    """How a process handles a signal: proc(5), Sig* of /proc/PID/status."""

    def __init__(self, pid: int, number: int) -> None:
        self._bit = 1 << (number - 1)
        status = fields(processes.proc_text(pid, "status"))
        self.state = status.get("State", "")[:1]
        """The state letter of /proc/PID/status; empty: the process has ended."""
        self.is_caught = self._has(status, "SigCgt")
        self.is_pending = self._has(status, "ShdPnd")
        threads = {name: fields(processes.proc_text(pid, "task/%s/status" % name)) for name in _threads_of(pid)}
        known = {name: each for name, each in threads.items() if "SigBlk" in each}
        self.blocked_by = {name for name, each in known.items() if self._has(each, "SigBlk")}
        """Threads that block it, like the one that runs its handler."""
        self.is_blocked = bool(known) and len(self.blocked_by) == len(known)

    def _has(self, status: Dict[str, str], name: str) -> bool:
        try:
            return bool(int(status.get(name, "0"), 16) & self._bit)
        except ValueError:
            return False


def descriptors_of(pid: int, path: str) -> List[str]:
    """The descriptors of a process that are open on this file; empty if they are unreadable."""
    directory = "/proc/%d/fd" % pid
    real = os.path.realpath(path)
    found = []
    try:
        for name in os.listdir(directory):
            try:
                if os.readlink(os.path.join(directory, name)) == real:
                    found.append(name)
            except OSError:
                continue  # closed just now
    except OSError:
        return []
    return found
