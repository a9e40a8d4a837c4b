"""The CPU and memory of processes, from /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path


def cpu_s(pid: int) -> float:
    """User and system time: fields 14 and 15 of /proc/PID/stat."""
    return sum(_times_s(pid)[:2])


def cpu_with_children_s(pid: int) -> float:
    """The same with its ended children: fields 16 and 17."""
    return sum(_times_s(pid))


def _times_s(pid: int) -> list[float]:
    """Fields 14 to 17, counted after the command's name."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]]


def memory_mb(pid: int) -> tuple[float, float]:
    """(resident, proportional set size): the second divides shared memory among its processes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB$", text, re.MULTILINE))
    return int(found["Rss"]) / 1024, int(found["Pss"]) / 1024
