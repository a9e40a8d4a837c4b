"""What else is at work on the host: processes of others, and those that use its GPUs."""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import machine, processes
from ..records.kinds import InvalidValue, checked, made
from ..records.values import Name, TaskName
from ..records.vitals import GpuUser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, List, Optional, Tuple

    from ..records.vitals import Busy

LEAST_CPU = 0.5
MOST_BUSY = 5


class Others:
    """Made at the first of two looks at the process table."""

    def __init__(self, now: float) -> None:
        self._looked = now
        self._ticks = _ticks()

    def busy(self, now: float, own: Container[int]) -> List[Busy]:
        """Those that have kept half a processor or more busy since, but for `own` pids; the busiest first."""
        span = max(0.001, now - self._looked) * processes.TICKS_A_SECOND
        used = {
            key[0]: (ticks - self._ticks[key]) / span
            for key, ticks in _ticks().items()
            if key in self._ticks and key[0] not in own
        }
        found = sorted((pid for pid, cpu in used.items() if cpu >= LEAST_CPU), key=lambda pid: -used[pid])
        return [
            {
                "pid": pid,
                "name": processes.proc_text(pid, "comm").strip()[:100],
                "user": _user(pid),
                "cpu": round(used[pid], 2),
            }
            for pid in found[:MOST_BUSY]
        ]


def _ticks() -> Dict[Tuple[int, int], int]:
    return {(process.pid, process.start_time): process.ticks for process in processes.every().values()}


def _user(pid: int) -> str:
    try:
        return machine.name_of_user(os.stat("/proc/%d" % pid).st_uid)[:100]
    except OSError:
        return ""


def gpu_user(pid: int, used_bytes: Optional[int]) -> GpuUser:
    """A process that has memory of a GPU; as the task that it belongs to where dtctl has started it for this user."""
    user: GpuUser = made(
        GpuUser, pid=pid, name=processes.proc_text(pid, "comm").strip()[:100], user=_user(pid), used_bytes=used_bytes
    )
    owner = processes.owner(pid)
    if owner is not None:
        with suppress(InvalidValue):  # it has changed its environment
            user["run"], user["task"] = checked(Name, owner[0]), checked(TaskName, owner[1])
    return user
