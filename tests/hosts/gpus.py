"""A host's GPUs, as a library of the tests' own tells of them: tests/hosts/nvml.c, which stands in for NVIDIA's."""

from __future__ import annotations

import atexit
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.hosts.sandbox import make_directory

GB = 10**9


@cache
def _library() -> Path:
    """The directory that it is in."""
    if shutil.which("cc") is None:
        pytest.skip("there is no cc here")
    directory = make_directory("nvml")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    source = Path(__file__).with_name("nvml.c")
    command = ["cc", "-shared", "-fPIC", "-w", "-o", str(directory / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(command, check=True)
    return directory


def gpu(
    name: str = "A100",
    *,
    lost: bool = False,
    busy: int = 90,
    used: int = 30 * GB,
    total: int = 40 * GB,
    degrees: int = 60,
    clock: int = 1410,
    most_clock: int = 1410,
    lanes: int = 16,
    throttled: int = 0,
    ecc: int = 0,
    xid: int = 0,
    users: Mapping[int, int] | None = None,
) -> str:
    """`throttled`: bits of nvmlClocksThrottleReasons; `users`: the memory of each by its pid."""
    figures = f"{used} {total} {degrees} {clock} {most_clock} {lanes} {throttled:x} {ecc} {xid}"
    each = " ".join(f"{pid}:{size}" for pid, size in (users or {}).items())
    return f"gpu {name} {int(lost)} {busy} {figures} {each}"


class Gpus:
    """Those of a host whose sessions have the variables `env`."""

    def __init__(self, directory: Path, *lines: str) -> None:
        self._file = directory / "gpus"
        self.env = {"LD_LIBRARY_PATH": str(_library()), "FAKE_NVML": str(self._file)}
        self.are(*lines)

    def are(self, *lines: str) -> None:
        """Sets the GPUs from now on; `hang FUNCTION`, `crash FUNCTION` and `init CODE` are lines, too."""
        new = self._file.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self._file)
