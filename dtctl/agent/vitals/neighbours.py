"""What else is at work on the host: processes of others, and the GPUs."""

from __future__ import annotations

import os

from ..host import machine, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, List, Mapping, Optional, Tuple

    from ..records.checks import GpuUser
    from ..records.vitals import Busy, Gpu

LEAST_CPU = 0.5
MOST_BUSY = 5
_NVIDIA_SMI_S = 5.0
_COLUMNS = "index,name,driver_version,utilization.gpu,memory.used,memory.total"
_USERS = "gpu_uuid,pid,process_name"


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


def gpus(path: str) -> List[Gpu]:
    """As nvidia-smi reports them; none where there is no such program in `path`, or it hangs."""
    return gpus_of(nvidia_smi(path, "--query-gpu=" + _COLUMNS) or "")


def nvidia_smi(path: str, query: str) -> Optional[str]:
    """Its rows; None where there is no such program in `path`."""
    import shutil
    import subprocess

    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_NVIDIA_SMI_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def rows_of(table: str, cells: int) -> List[List[str]]:
    """The rows of nvidia-smi that have so many cells."""
    rows = ([cell.strip() for cell in line.split(",")] for line in table.splitlines())
    return [row for row in rows if len(row) == cells]


def gpus_of(table: str) -> List[Gpu]:
    """From nvidia-smi's rows; what is no number there, as `[N/A]`, is not known."""
    found: List[Gpu] = [
        {
            "index": int(index),
            "name": name[:200],
            "driver": driver[:100],
            "busy": min(1.0, int(busy) / 100) if busy.isdigit() else None,
            "used_bytes": int(used) << 20,
            "memory_bytes": int(memory) << 20,
        }
        for index, name, driver, busy, used, memory in rows_of(table, 6)
        if index.isdigit() and used.isdigit() and memory.isdigit()
    ]
    return found[:64]


def gpu_users(path: str) -> List[GpuUser]:
    """Processes that have memory of a GPU, whoever's they are."""
    uuids = rows_of(nvidia_smi(path, "--query-gpu=index,uuid") or "", 2)
    numbers = {uuid: int(index) for index, uuid in uuids if index.isdigit()}
    return users_of(nvidia_smi(path, "--query-compute-apps=" + _USERS) or "", numbers)


def users_of(table: str, numbers: Mapping[str, int]) -> List[GpuUser]:
    """From nvidia-smi's rows; `numbers`: those of the GPUs by their UUIDs."""
    found: List[GpuUser] = [
        {"gpu": numbers[uuid], "pid": int(pid), "name": os.path.basename(name)[:100], "user": _user(int(pid))}
        for uuid, pid, name in rows_of(table, 3)
        if uuid in numbers and pid.isdigit()
    ]
    return found[:1000]
