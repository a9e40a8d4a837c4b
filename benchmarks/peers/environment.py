"""The peers that are Python packages, in an environment of their own, and the versions of all."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.environments import Recipe, Unfit, build

RECIPE = Recipe(
    "ansible, asyncssh, fabric, paramiko, pssh, ClusterShell",
    ("3.12", "3.13", "3.11", "3.10"),
    ("ansible", "asyncssh", "fabric", "paramiko", "parallel-ssh", "ClusterShell"),
)
"""Not pinned: what a user would install today. The page tells the versions."""

OF_DEBIAN = {"pdsh": ["pdsh", "-V"], "rsync": ["rsync", "--version"], "OpenSSH": ["ssh", "-V"]}


@dataclass(frozen=True)
class Environment:
    python: Path | None
    lacks: str = ""
    """Why there is no such environment."""

    def program(self, name: str) -> str:
        return str(self.python.with_name(name)) if self.python else name

    def missing(self, program: str = "") -> str:
        """Why a contender cannot take part that needs this environment, or a program of the machine."""
        if program:
            return "" if shutil.which(program) else f"{program} is not installed"
        return self.lacks

    def versions(self) -> list[str]:
        found = [_version_of(name, argv) for name, argv in OF_DEBIAN.items() if shutil.which(argv[0])]
        if self.python:
            ask = f"from importlib.metadata import version\nfor name in {RECIPE.packages}: print(name, version(name))"
            found += _said([str(self.python), "-c", ask]).splitlines()
        return sorted(found, key=str.lower)


def peers() -> Environment:
    try:
        return Environment(build("peers", RECIPE))
    except (Unfit, RuntimeError, OSError) as error:
        return Environment(None, f"no environment of the peers: {str(error).splitlines()[0]}")


def _version_of(name: str, argv: Sequence[str]) -> str:
    found = re.search(r"\d+\.[\w.]+", _said(argv))
    return f"{name} {found.group() if found else ''}".strip()


def _said(argv: Sequence[str]) -> str:
    return subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout
