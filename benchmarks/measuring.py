"""Running programs, measuring their cost, and comparing two of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DTCTL = (sys.executable, "-m", "dtctl")


class CannotRun(Exception):
    """This machine lacks something that the benchmark needs."""


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float
    """User and system time of the process and of all its children."""


def measure(argv: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Cost:
    """Runs a program to its end; shows what it printed and raises if it failed."""
    with tempfile.TemporaryFile() as printed:
        begin = time.monotonic()
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed)
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            printed.seek(0)
            sys.stderr.write(printed.read().decode(errors="replace")[-4000:])
            raise subprocess.CalledProcessError(process.returncode, [str(word) for word in argv])
    return Cost(wall_s, used.ru_utime + used.ru_stime)


def client_environment(home: Path) -> dict[str, str]:
    """The environment of a user with a home of their own, no SSH agent, and this checkout's dtctl."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT)}


def heading(name: str, what: str) -> None:
    print(f"\n{name}: {what}")


def show(what: str, value: str, ratio: float | None = None, than: str = "", goal: str = "") -> None:
    """Prints one line: a name, its value, its ratio to another, and the goal."""
    compared = f"{ratio:5.2f} x {than}" if ratio is not None else ""
    print(f"  {what:<34} {value:>22}   {compared:<30} {goal and f'goal: {goal}'}".rstrip())
