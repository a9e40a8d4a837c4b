"""The faulthandler of a trainer: it is sent a signal whose handler writes the stacks of all threads, and goes on.

The handler was installed by site/sitecustomize.py, and may be gone: a trainer can set another, block the signal or
close the file. Nobody is sent a signal that it has not been seen, just before, to answer: the signal would end it.
"""

from __future__ import annotations

import os
import re
import time

from ..host import files, processes
from .hook import FILE, SIGNAL
from .threads import Signals, descriptors_of
from .trimming import frame, line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Set, Tuple

    from ..host.secrets import Masks
    from ..records.dump import Frame, Missing, Stack

LIMIT_S = 5.0
_YOUNG_S = 1.0
"""One that has begun just now may be about to run another program, which has no handler."""
_LOOK_S = 0.02
_MOST_BYTES = 8 << 20

_HEAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]{1,16})(?: \[([^\]\n]*)\])? \(most recent call first\):\Z")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)\Z')


class Stacks:
    """The file of an attempt that the handlers of its processes write to."""

    def __init__(self, attempt: str) -> None:
        self.path = os.path.join(attempt, FILE)

    def ask(self, process: processes.Process, masks: Masks) -> Tuple[List[Stack], Optional[Missing]]:
        """The stacks of one process, or why there are none."""
        missing = self._why_not(process)
        if missing is not None:
            return [], missing
        try:
            opened = files.descriptor(self.path, os.O_RDWR)
        except OSError:
            return [], "closed"
        try:
            os.ftruncate(opened, 0)
            before = Signals(process.pid, SIGNAL).blocked_by
            processes.send_signal([process], SIGNAL)
            missing = _wait(process, opened, before)
            said = masks.hide(files.read_at(opened, 0, min(os.fstat(opened).st_size, _MOST_BYTES)))
            os.ftruncate(opened, 0)
        finally:
            os.close(opened)
        stacks = read(said.decode("utf-8", "replace"))
        return stacks, None if stacks else missing or "no_answer"

    def is_open_in(self, pid: int) -> bool:
        return bool(descriptors_of(pid, self.path))

    def _why_not(self, process: processes.Process) -> Optional[Missing]:
        signals = Signals(process.pid, SIGNAL)
        if not signals.state:
            return "ended"
        is_open = self.is_open_in(process.pid)
        if not is_open:
            return "closed" if signals.is_caught else "no_handler"
        if not signals.is_caught:
            return "replaced"
        if signals.is_blocked:
            return "blocked"
        if signals.state in "Tt":
            return "stopped"
        return "young" if _age_s(process) < _YOUNG_S else None


def _wait(process: processes.Process, opened: int, before: Set[str]) -> Optional[Missing]:
    """Until the handler has written all: while it runs, a thread blocks the signal that did not `before`."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        signals = Signals(process.pid, SIGNAL)
        if not signals.state or signals.state == "Z":
            return "ended"
        if os.fstat(opened).st_size and not signals.is_pending and signals.blocked_by <= before:
            return None
        time.sleep(_LOOK_S)
    return "not_delivered" if Signals(process.pid, SIGNAL).is_pending else "no_answer"


def _age_s(process: processes.Process) -> float:
    # proc(5): the start time is in ticks since the boot, and so is the first number of /proc/uptime in seconds
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            up_s = float(file.read().split()[0])
    except (OSError, ValueError):
        return 0.0
    return up_s - process.start_time / os.sysconf("SC_CLK_TCK")


def read(text: str) -> List[Stack]:
    """What faulthandler writes (cpython/Python/traceback.c, _Py_DumpTracebackThreads)."""
    stacks: List[Stack] = []
    for each in text.split("\n"):
        head, one = _HEAD.match(each), _FRAME.match(each)
        if head is not None:
            stacks.append(_begun(head.group(1), head.group(2) or ""))
        elif stacks and one is not None:
            number = int(one.group(2)) if one.group(2).isdigit() else None
            stacks[-1]["frames"].append(frame(one.group(3), one.group(1), number))
        elif stacks and each == "  ...":
            stacks[-1]["omitted"] = 1
    for stack in stacks:
        stack["main"] = _is_main(stack["frames"])
    return stacks


def _begun(thread: str, name: str) -> Stack:
    return {
        "thread": "0x%x" % int(thread, 16),
        "name": line(name),
        "tid": None,
        "main": False,
        "active": None,
        "gil": None,
        "frames": [],
        "omitted": 0,
    }


def _is_main(frames: List[Frame]) -> bool:
    """Its outermost frame is that of a program; those of others begin in threading.py."""
    return bool(frames) and frames[-1]["function"] in ("<module>", "_run_module_as_main")
