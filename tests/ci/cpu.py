"""CPU time of this process and of all that descends from it, daemons and other sessions too."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
"""Of control groups; whoever is in one has children in it, whatever session they begin (cgroups(7))."""


def meter() -> tuple[Callable[[], float], Callable[[], None]]:
    """Seconds so far, and what to call at the end.

    Counts by a control group of its own where this process may make one: as root, as a rule. Elsewhere only children
    that were waited for count.
    """
    for parent, file, unit_s in ((ROOT / "cpuacct", "cpuacct.usage", 1e-9), (ROOT, "cpu.stat", 1e-6)):
        group = parent / f"dtctl-tests-{os.getpid()}"
        if not (parent / "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return lambda: _last_number(group / file) * unit_s, lambda: _leave(group, parent)  # noqa: B023
        except OSError:
            _leave(group, parent)
    return _waited_for_s, lambda: None


def _last_number(file: Path) -> int:
    """cpuacct.usage is a number; cpu.stat of the second version begins with a line `usage_usec NUMBER`."""
    return int(file.read_text().splitlines()[0].split()[-1])


def _leave(group: Path, parent: Path) -> None:
    """What is still there goes to the parent: a group that is not empty cannot be removed."""
    with suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (parent / "cgroup.procs").write_text(pid)
        group.rmdir()


def _waited_for_s() -> float:
    own, children = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
