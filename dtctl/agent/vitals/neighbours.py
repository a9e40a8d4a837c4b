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
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Others:
    """Made at the first of two looks at the process table."""

    def __init__(self, now: float) -> None:
        self._looked = now
        self._ticks = _ticks()

    def busy(self, now: float, own: Container[int]) -> List[Busy]:
        """Those that have kept half a processor or more busy since, but for `own` pids; the busiest first."""
        span = max(0.001, now - self._looked) * _TICKS_A_SECOND
        used = {
            key[0]: (ticks - self._ticks[key]) / span
            for key, ticks in _ticks().items()
            if key in self._ticks and key[0] not in own
        }
        found = sorted((pid for pid, cpu in used.items() if cpu >= LEAST_CPU), key=lambda pid: -used[pid])
        return [
            {"pid": pid, "name": _name(pid), "user": _user(pid), "cpu": round(used[pid], 2)}
            for pid in found[:MOST_BUSY]
        ]


def _ticks() -> Dict[Tuple[int, int], int]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = processes.proc_text(int(name), "stat")
            fields = stat.rpartition(")")[2].split()
            if len(fields) > 19:
                found[int(name), int(fields[19])] = int(fields[11]) + int(fields[12])
    return found


def _name(pid: int) -> str:
    return processes.proc_text(pid, "comm").strip()[:100]


def _user(pid: int) -> str:
    try:
        return machine.name_of_user(os.stat("/proc/%d" % pid).st_uid)[:100]
    except OSError:
        return ""


def gpus(path: str) -> List[Gpu]:
    """As nvidia-smi reports them; none where there is no such program in `path`, or it hangs."""
    return gpus_told(nvidia_smi(path, "--query-gpu=" + _COLUMNS) or "")


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
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_NVIDIA_SMI_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def gpus_told(table: str) -> List[Gpu]:
    """From nvidia-smi's rows; what is no number there, as `[N/A]`, is not known."""
    found: List[Gpu] = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 6 or not all(cells[at].isdigit() for at in (0, 4, 5)):
            continue
        found.append(
            {
                "index": int(cells[0]),
                "name": cells[1][:200],
                "driver": cells[2][:100],
                "busy": min(1.0, int(cells[3]) / 100) if cells[3].isdigit() else None,
                "used_bytes": int(cells[4]) << 20,
                "memory_bytes": int(cells[5]) << 20,
            }
        )
    return found[:64]


def gpu_users(path: str) -> List[GpuUser]:
    """Processes that have memory of a GPU, whoever's they are."""
    numbers = {
        cells[1].strip(): int(cells[0])
        for cells in (line.split(",") for line in (nvidia_smi(path, "--query-gpu=index,uuid") or "").splitlines())
        if len(cells) == 2 and cells[0].strip().isdigit()
    }
    return users_told(nvidia_smi(path, "--query-compute-apps=" + _USERS) or "", numbers)


def users_told(table: str, numbers: Mapping[str, int]) -> List[GpuUser]:
    """From nvidia-smi's rows; `numbers`: those of the GPUs by their UUIDs."""
    found: List[GpuUser] = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 3 and cells[0] in numbers and cells[1].isdigit():
            pid, name = int(cells[1]), os.path.basename(cells[2])[:100]
            found.append({"gpu": numbers[cells[0]], "pid": pid, "name": name, "user": _user(pid)})
    return found[:1000]
