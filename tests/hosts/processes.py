"""Processes of this machine that a test has started, known by a variable that all of them have inherited.

Tests wait for their end by querying again and again, beside other tests: a query opens one file a process.
"""

from __future__ import annotations

import os
from pathlib import Path

_MOST_BYTES = 1 << 20


def marked(mark: str) -> list[int]:
    """Live processes with `mark` (NAME=VALUE) in their environment. One that has ended has none any more."""
    wanted = mark.encode()
    return [pid for pid in every() if wanted in environment(pid)]


def every() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 (a Path for each takes longer)


def environment(pid: int) -> list[bytes]:
    return content(pid, "environ").split(b"\0")


def command(pid: int) -> str:
    """Its words, empty if it has ended."""
    return content(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def content(pid: int, name: str) -> bytes:
    """A file of the process in /proc, empty if the process has ended."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, _MOST_BYTES):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
