"""Temporary directories that are known as ours, so that those of killed test processes can be removed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

_NAME = re.compile(r"dtctl-[a-z]+-(?P<owner>[0-9a-z]{9})-\w+")


def make_directory(kind: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"dtctl-{kind}-{owner()}-"))


def sweep_directories() -> None:
    for directory in Path(tempfile.gettempdir()).glob("dtctl-*"):
        if (match := _NAME.fullmatch(directory.name)) and not is_alive(match["owner"]):
            shutil.rmtree(directory, ignore_errors=True)


def owner() -> str:
    """The name of this process in what it makes: pid and start time, so that no later process is taken for it."""
    return _base36(os.getpid(), 5) + _base36(_start_time(os.getpid()), 4)


def is_alive(owner: str) -> bool:
    born = _start_time(int(owner[:5], 36))
    return born != 0 and _base36(born, 4) == owner[5:9]


def _base36(number: int, width: int) -> str:
    """The last digits."""
    digits = ""
    while len(digits) < width:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def _start_time(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 if there is no such process, and where there is no /proc."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0
