"""The use of the host itself: processors, swap, network interfaces, and what processes wait for."""

from __future__ import annotations

import os

from ...host import machine, processes
from .records import MOST_INTERFACES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from .records import Interface

_NET = "/sys/class/net/"
_WAITS_FOR = ("cpu", "memory", "io")


class HostUse:
    """Samples the host. Its counters since its start are of no interest: the first sample only remembers them."""

    def __init__(self) -> None:
        self._times: List[int] = []
        self._pages: Optional[int] = None
        self._waited: Dict[str, int] = {}
        self._bytes: Dict[str, Tuple[int, int]] = {}

    def sample(self) -> Dict[str, Any]:
        """The fields of a Sample that are about the host."""
        busy_s, stolen_s = self._processors()
        return {
            "cpus": os.cpu_count() or 1,
            "busy_s": busy_s,
            "stolen_s": stolen_s,
            "swapped_bytes": self._swapped(),
            "waited_s": self._waits(),
            "interfaces": self._interfaces(),
        }

    def _processors(self) -> Tuple[Optional[float], Optional[float]]:
        # proc(5), /proc/stat: user nice system idle iowait irq softirq steal, in ticks
        words = machine.text("/proc/stat").partition("\n")[0].split()[1:9]
        times = [int(word) for word in words] if len(words) == 8 else []
        passed = [max(0, now - before) for now, before in zip(times, self._times)]
        self._times = times
        if not passed:
            return None, None
        busy = sum(passed) - passed[3] - passed[4] - passed[7]
        return round(busy / processes.TICKS_A_SECOND, 3), round(passed[7] / processes.TICKS_A_SECOND, 3)

    def _swapped(self) -> int:
        """Bytes that came from the swap, and went there."""
        rows = (line.split() for line in machine.text("/proc/vmstat").splitlines())
        pages = sum(int(row[1]) for row in rows if row[0] in ("pswpin", "pswpout"))
        before, self._pages = self._pages, pages
        return max(0, pages - before) * os.sysconf("SC_PAGE_SIZE") if before is not None else 0

    def _waits(self) -> Dict[str, float]:
        found: Dict[str, float] = {}
        for what in _WAITS_FOR:
            # accounting/psi.rst: some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS
            total = machine.text("/proc/pressure/" + what).partition("\n")[0].rpartition("total=")[2]
            if total.isdigit():
                if what in self._waited:
                    found[what] = round(max(0, int(total) - self._waited[what]) / 1e6, 3)
                self._waited[what] = int(total)
        return found

    def _interfaces(self) -> Dict[str, Interface]:
        """Those that have carried data since the last sample; the largest first."""
        found: Dict[str, Interface] = {}
        counted: Dict[str, Tuple[int, int]] = {}
        for line in machine.text("/proc/net/dev").splitlines()[2:]:
            name, _, rest = line.partition(":")
            words = rest.split()
            name = name.strip()
            if name == "lo" or len(words) < 9:
                continue
            counted[name] = int(words[8]), int(words[0])
            if name in self._bytes:
                sent, received = (max(0, now - old) for now, old in zip(counted[name], self._bytes[name]))
                if sent or received:
                    found[name[:64]] = {"sent_bytes": sent, "received_bytes": received, "bits_a_second": None}
        self._bytes = counted
        names = sorted(found, key=lambda name: -found[name]["sent_bytes"] - found[name]["received_bytes"])
        return {name: {**found[name], "bits_a_second": _speed(name)} for name in names[:MOST_INTERFACES]}


def _speed(name: str) -> Optional[float]:
    """The speed of hardware: virtual interfaces report 10 Gbit/s, whatever lies below (drivers/net/veth.c)."""
    if not any(os.path.exists(_NET + name + part) for part in ("/device", "/bonding")):
        return None
    try:
        megabits = int(machine.text(_NET + name + "/speed"))
    except ValueError:
        return None
    return megabits * 1e6 if megabits > 0 else None
