"""A network of its own for a process of tests: no port there is taken by somebody else, no other host is reached."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_CURRENT = Path("/proc/thread-self/ns/net")

_machine: list[int] = []
"""The machine's own network, held open, once this process has left it."""


def missing() -> str:
    """Why a process cannot have a network of its own here; empty if it can."""
    if not sys.platform.startswith("linux"):
        return "namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip (Debian: iproute2) not found"
    return ""


def enter() -> str:
    """Moves this thread, and all that it starts from now on, to a new network with loopback alone; says why not."""
    if _machine:
        return ""
    if reason := missing():
        return reason
    machine = os.open(_CURRENT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("unshare", _CLONE_NEWNET)
    except OSError as error:
        os.close(machine)
        return f"no network namespace can be made: {error.strerror}"
    _machine.append(machine)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return ""


@contextmanager
def the_machines() -> Iterator[None]:
    """Back in the machine's network for a while: for what has to be fetched from elsewhere."""
    if not _machine:
        yield
        return
    own = os.open(_CURRENT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", _machine[0], _CLONE_NEWNET)
        yield
    finally:
        _call("setns", own, _CLONE_NEWNET)
        os.close(own)


def _call(name: str, *arguments: int) -> None:
    """Calls a function of the C library: Python has these two from 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
