"""The limits of a process that a login, a shell or a program has set (`ulimit`), by what they may end it with."""

from __future__ import annotations

import re
import signal

from ..records.kinds import MOST
from . import machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..records.run_state import ProcessLimit

ADDRESS_SPACE, DATA, PROCESSES, OPEN_FILES, FILE_SIZE, CPU_TIME = "-v", "-d", "-u", "-n", "-f", "-t"
"""The options of `ulimit`."""

_OPTIONS = {
    "Max address space": (ADDRESS_SPACE, 1024, "%d kB"),
    "Max data size": (DATA, 1024, "%d kB"),
    "Max processes": (PROCESSES, 1, "%d"),
    "Max open files": (OPEN_FILES, 1, "%d"),
    "Max file size": (FILE_SIZE, 1024, "%d kB"),
    "Max cpu time": (CPU_TIME, 1, "%d s"),
}
"""Limits by their names in /proc/PID/limits: the option of `ulimit`, the size of its unit, and how it is shown."""

_MEMORY = (
    r"\bMemoryError\b|std::bad_alloc|Cannot allocate memory|Unable to allocate|(?:not enough|can't allocate) memory|"
    r"Errno 12\b|\bENOMEM\b|(?i:out of memory)|mmap failed"
)
_PROCESSES = (
    r"(?i:can't start new thread|cannot fork|fork: retry|fork failed|thread creation failed|pthread_create)|Errno 11\b|"
    r"Resource temporarily unavailable"
)
_MAY_END = (
    (_PROCESSES, ("-u", "-v")),
    (_MEMORY, ("-v", "-d")),
    (r"Too many open files|Errno 24\b", ("-n",)),
    (r"File too large|Errno 27\b|File size limit", ("-f",)),
)
"""Messages, and the limits that may be their cause."""


def soft_limits(pid: int) -> Dict[str, int]:
    """Those that are set, by their option of `ulimit`: bytes, seconds or a number (proc_pid_limits(5)).

    The process may have ended without having been waited for.
    """
    lines = machine.text("/proc/%d/limits" % pid).splitlines()
    found = (
        (_OPTIONS[name][0], line[len(name) :].split()[:1])
        for line in lines
        for name in _OPTIONS
        if line.startswith(name + " ")
    )
    return {option: int(words[0]) for option, words in found if words and words[0].isdigit()}


def limits_of(pid: int) -> List[ProcessLimit]:
    """The same, as records."""
    return [_limit(option, value) for option, value in soft_limits(pid).items()]


def _limit(option: str, value: int) -> ProcessLimit:
    unit, shown = next((unit, shown) for name, unit, shown in _OPTIONS.values() if name == option)
    return {"option": option, "value": min(value, MOST), "text": shown % (value // unit)}


def met(
    limits: List[ProcessLimit], cause: str, number: Optional[int] = None, cpu_s: Optional[float] = None
) -> List[ProcessLimit]:
    """Those that may have caused such an end, by its message, its signal and the CPU time that it has used.

    A limit of CPU time that cannot be raised ends with SIGKILL (setrlimit(2)).
    """
    options = next((options for pattern, options in _MAY_END if re.search(pattern, cause)), ())
    options = {signal.SIGXCPU: (CPU_TIME,), signal.SIGXFSZ: (FILE_SIZE,)}.get(number, options)  # type: ignore[call-overload]
    if number == signal.SIGKILL and cpu_s is not None:
        options = (CPU_TIME,)
        limits = [limit for limit in limits if limit["option"] == CPU_TIME and cpu_s >= _USED_UP * limit["value"]]
    if number == signal.SIGXCPU:
        limits = [_before_warning(limit) if limit["option"] == CPU_TIME else limit for limit in limits]
    return [limit for limit in limits if limit["option"] in options]


_USED_UP = 0.5
"""A limit of CPU time counts as used up from this share on: the kernel compares the limit with whole ticks, of which a
process that shares its core uses a part, and reports the exact time (0.62 of the limit measured on a busy machine).
"""


def _before_warning(limit: ProcessLimit) -> ProcessLimit:
    """The limit as it was set: Linux raises it by a second with each SIGXCPU (check_process_timers of
    posix-cpu-timers.c).
    """
    return _limit(CPU_TIME, limit["value"] - 1)
