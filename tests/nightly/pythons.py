"""The interpreters that are to be had here."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

AGENT = [f"3.{minor}" for minor in range(8, 15)]
"""What agents run on."""

CONTROLLER = [f"3.{minor}" for minor in range(10, 15)]
"""What the rest runs on."""


def interpreter(version: str) -> str | None:
    """One of that version that really runs, since a shim may only pretend."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for candidate in filter(None, [shutil.which(f"python{version}"), *map(str, pyenv)]):
        tell = [candidate, "-ISc", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(tell, capture_output=True, text=True, check=False).stdout.strip() == version:
            return candidate
    return None


def lower_bounds(dependencies: list[str]) -> Iterator[str]:
    """`typer>=0.19` -> `typer==0.19`: the versions that a constraint file holds pip to."""
    for dependency in dependencies:
        found = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", dependency)
        if not found:
            raise ValueError(f"{dependency!r} has no lower bound")
        yield f"{found[1]}=={found[2]}"
