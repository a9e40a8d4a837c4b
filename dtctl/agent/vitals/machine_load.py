"""The host's resources and their load: processors, memory, network, disks, and packages of its Pythons."""

from __future__ import annotations

import os
import re
from functools import partial

from ..host import machine
from ..host.budget import Silent, within
from ..records.vitals import is_full

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

    from ..records.run_state import FullDisk
    from ..records.vitals import Disk, Machine, Waiting


PRESSED = 0.4
"""Shares of waiting from which on something is short."""


def presses(machine: Machine) -> List[str]:
    """The resources that are short on the host: cpu, memory, io, disk space."""
    waiting: Mapping[str, object] = machine["waiting"]
    short = [what for what, share in waiting.items() if isinstance(share, float) and share >= PRESSED]
    return [*short, "full"] if machine["full"] else short


class MachineLoad:
    """Samples the machine; shares are of the time between the last two samples."""

    def __init__(self) -> None:
        self._times: List[int] = []
        self._sent: Optional[Tuple[int, int]] = None

    def sample(self, wall: float, run_dir: Optional[str] = None) -> Machine:
        """A sample. `run_dir`: the directory whose disk is checked."""
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
            "gpus": None,
            "full": next(filter(is_full, disks_of([run_dir])[0]), None) if run_dir is not None else None,
        }

    def _processors(self) -> Tuple[Optional[float], Optional[float]]:
        # proc(5), /proc/stat: user nice system idle iowait irq softirq steal; guest times are in user and nice
        words = machine.text("/proc/stat").partition("\n")[0].split()[1:9]
        times = [int(word) for word in words] if len(words) == 8 else []
        passed = [now - before for now, before in zip(times, self._times)] if self._times else []
        self._times = times
        whole = sum(passed)
        if whole <= 0:
            return None, None
        idle, stolen = passed[3] + passed[4], passed[7]
        return _share(whole - idle - stolen, whole), _share(stolen, whole)

    def _resent(self) -> Optional[float]:
        rows = [line.split()[1:] for line in machine.text("/proc/net/snmp").splitlines() if line.startswith("Tcp:")]
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
    rows = (line.split() for line in machine.text("/proc/meminfo").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3}


def _waiting() -> Waiting:
    return {"cpu": _pressure("cpu"), "memory": _pressure("memory"), "io": _pressure("io")}


def _pressure(what: str) -> Optional[float]:
    # Documentation/accounting/psi.rst: some avg10=0.00 avg60=0.00 avg300=0.00 total=0
    words = dict(word.partition("=")[::2] for word in machine.text("/proc/pressure/" + what).partition("\n")[0].split())
    try:
        return _share(float(words["avg10"]), 100.0)
    except (KeyError, ValueError):
        return None


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), 3)


ANSWER_S = 3.0
"""The time limit for one directory; a file system may hang."""


def disks_of(places: Sequence[str]) -> Tuple[List[Disk], List[str]]:
    """One disk for each file system, and the places that do not answer."""
    found: Dict[int, Disk] = {}
    silent: List[str] = []
    for place in places:
        try:
            device, disk = within(ANSWER_S, place, partial(_disk, place))
        except Silent:
            silent.append(place[:8192])
            continue
        except OSError:
            continue
        found.setdefault(
            device,
            {
                "path": place[:8192],
                "free_bytes": disk.f_bavail * disk.f_frsize,
                "size_bytes": disk.f_blocks * disk.f_frsize,
                "free_files": disk.f_favail if disk.f_files else None,
            },
        )
    return list(found.values())[:100], silent[:100]


_NO_ROOM = re.compile(r"No space left on device|Errno 28\b|ENOSPC")
_PATH = re.compile(r"(?<![\w.~/])/[^'\":;\s]+")
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay")
"""Types of file systems that answer at once."""
_MOST_DISKS = 3
_LONGEST_PATH = 4096


def full_disks(cause: str, own: str) -> List[FullDisk]:
    """The file systems that are full after an end for lack of room.

    That of the path in the message; without a path, all local ones. `own`: a directory of the run.
    """
    if not _NO_ROOM.search(cause):
        return []
    named = _PATH.search(cause)
    places = [nearest_directory(named.group())] if named is not None else _local_mounts()
    full = [one["path"] for one in disks_of(places)[0] if is_full(one)]
    mounts = dict.fromkeys(_mount(path) for path in full)
    here = _mount(own) if mounts else ""
    found: List[FullDisk] = [{"path": mount[:_LONGEST_PATH], "own": mount == here} for mount in mounts]
    return found[:_MOST_DISKS]


def _local_mounts() -> List[str]:
    """The directories on which local file systems are mounted that can be written to (proc_pid_mountinfo(5))."""
    found = []
    for line in machine.text("/proc/self/mountinfo").splitlines():
        mount, _, of_type = line.partition(" - ")
        words = mount.split()
        if len(words) > 5 and of_type.split(" ")[0] in _LOCAL and "rw" in words[5].split(","):
            found.append(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal.group(1), 8)), words[4]))
    return [one for one in dict.fromkeys(found) if os.path.isdir(one) and os.access(one, os.W_OK)]


def _mount(path: str) -> str:
    """The directory on which the file system of a path is mounted."""
    there = os.path.realpath(path)
    while not os.path.ismount(there):
        there = os.path.dirname(there)
    return there


def _disk(place: str) -> Tuple[int, os.statvfs_result]:
    """The disk of a directory; for a missing one that of its nearest existing parent."""
    there = nearest_directory(place)
    return os.stat(there).st_dev, os.statvfs(there)


def nearest_directory(place: str) -> str:
    """The place, or the nearest directory of its path that exists."""
    while not os.path.exists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    return place


WANTED = (
    *("tensorflow", "tensorflow_cpu", "tf_nightly", "keras", "tf_keras", "tensorflow_estimator", "tensorboard"),
    *("torch", "jax", "jaxlib", "mxnet", "numpy", "protobuf"),
)

_INFO = r"([A-Za-z0-9_.]+)-([0-9][A-Za-z0-9.+!]*)\.(?:dist|egg)-info\Z"


def package_versions(python: str, home: str) -> Dict[str, str]:
    """The versions of packages, by the names of their directories; empty if `python`, a path, is no Python."""
    found: Dict[str, str] = {}
    for directory in _directories(python, home):
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            matched = re.match(_INFO, name)
            package = matched.group(1).lower() if matched else ""
            if matched and package in WANTED:
                found.setdefault(package.replace("_", "-"), matched.group(2))
    return found


def is_managed(python: str) -> bool:
    """Whether the system's package manager owns the Python of this path, as PEP 668 marks it."""
    if os.path.exists(os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")):
        return False
    root = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    return any(os.path.exists(path) for path in _below(os.path.join(root, "lib"), "EXTERNALLY-MANAGED"))


def _directories(python: str, home: str) -> Iterator[str]:
    """Directories with packages of that Python, the most certain first; for a virtual environment only its own."""
    own = os.path.dirname(os.path.dirname(python))
    yield from _below(os.path.join(own, "lib"), "site-packages")
    if os.path.exists(os.path.join(own, "pyvenv.cfg")):
        return
    real = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    yield from _below(os.path.join(home, ".local", "lib"), "site-packages")
    for root in dict.fromkeys((real, "/usr/local", "/usr")):
        yield from _below(os.path.join(root, "lib"), "site-packages")
        yield from _below(os.path.join(root, "lib"), "dist-packages")


def _below(root: str, leaf: str) -> List[str]:
    try:
        names = sorted((name for name in os.listdir(root) if name.startswith("python3")), reverse=True)
    except OSError:
        return []
    return [os.path.join(root, name, leaf) for name in names]
