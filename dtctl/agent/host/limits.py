"""The limits of a process that a login, a shell or a program has set (`ulimit`), by what they may end it with."""

from __future__ import annotations

import re

from ..records.reasons import Fact, fact
from . import machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

_OPTIONS = {
    "Max address space": ("-v", 1024),
    "Max data size": ("-d", 1024),
    "Max processes": ("-u", 1),
    "Max open files": ("-n", 1),
    "Max file size": ("-f", 1024),
}
"""As /proc/PID/limits calls them: the option of `ulimit`, and the size of its unit (1024 bytes, or one)."""

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


def limits_of(pid: int) -> List[Fact]:
    """Those that are set, also of a process that has ended and was not waited for yet."""
    lines = machine.text("/proc/%d/limits" % pid).splitlines()
    found = (
        (name, line[len(name) :].split()[:1]) for line in lines for name in _OPTIONS if line.startswith(name + " ")
    )
    return [_limit(name, int(words[0])) for name, words in found if words and words[0].isdigit()]


def _limit(name: str, value: int) -> Fact:
    option, unit = _OPTIONS[name]
    return fact("limit", what="ulimit %s" % option, text="%d kB" % (value // unit) if unit > 1 else str(value))


def met(limits: List[Fact], cause: str) -> List[Fact]:
    """Those that may have caused such an end."""
    options = next((options for pattern, options in _MAY_END if re.search(pattern, cause)), ())
    return [one for one in limits if one["what"].split()[-1] in options]
