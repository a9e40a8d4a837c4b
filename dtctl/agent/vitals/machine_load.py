"""How busy the host is: processors, memory, disk and network, by /proc."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

    from ..records.vitals import Machine, Waiting


PRESSED = 0.4
"""Shares of waiting from which on something is short."""


def presses(machine: Machine) -> List[str]:
    """What is short on the host: cpu, memory, io."""
    waiting: Mapping[str, object] = machine["waiting"]
    return [what for what, share in waiting.items() if isinstance(share, float) and share >= PRESSED]


class MachineLoad:
    """Shares are of the time between the last two looks."""

    def __init__(self) -> None:
        self._times: List[int] = []
        self._sent: Optional[Tuple[int, int]] = None

    def look(self, wall: float) -> Machine:
        memory = _memory()
        busy, stolen = self._processors()
        return {
            "time": wall,
            "cpus": os.cpu_count() or 1,
            "load": round(_load(), 2),
            "busy": busy,
            "stolen": stolen,
            "memory_bytes": memory.get("MemTotal", 0),
            "available_bytes": memory.get("MemAvailable", memory.get("MemFree", 0)),
            "resent": self._resent(),
            "waiting": _waiting(),
        }

    def _processors(self) -> Tuple[Optional[float], Optional[float]]:
        # proc(5), /proc/stat: user nice system idle iowait irq softirq steal; guest times are in user and nice
        words = _text("stat").partition("\n")[0].split()[1:9]
        times = [int(word) for word in words] if len(words) == 8 else []
        passed = [now - before for now, before in zip(times, self._times)] if self._times else []
        self._times = times
        whole = sum(passed)
        if whole <= 0:
            return None, None
        idle, stolen = passed[3] + passed[4], passed[7]
        return _share(whole - idle - stolen, whole), _share(stolen, whole)

    def _resent(self) -> Optional[float]:
        rows = [line.split()[1:] for line in _text("net/snmp").splitlines() if line.startswith("Tcp:")]
        named = dict(zip(*rows[:2])) if len(rows) == 2 else {}
        if not {"OutSegs", "RetransSegs"} <= set(named):
            return None
        sent, before = (int(named["OutSegs"]), int(named["RetransSegs"])), self._sent
        self._sent = sent
        if before is None or sent[0] <= before[0]:
            return None
        return _share(sent[1] - before[1], sent[0] - before[0])


def _load() -> float:
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def _memory() -> Dict[str, int]:
    rows = (line.split() for line in _text("meminfo").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3}


def _waiting() -> Waiting:
    return {"cpu": _pressure("cpu"), "memory": _pressure("memory"), "io": _pressure("io")}


def _pressure(what: str) -> Optional[float]:
    # Documentation/accounting/psi.rst: some avg10=0.00 avg60=0.00 avg300=0.00 total=0
    words = dict(word.partition("=")[::2] for word in _text("pressure/" + what).partition("\n")[0].split())
    try:
        return _share(float(words["avg10"]), 100.0)
    except (KeyError, ValueError):
        return None


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), 3)


def _text(name: str) -> str:
    try:
        with open("/proc/" + name, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # an old kernel, or a container that does not show it
