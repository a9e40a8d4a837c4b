"""Which Python of this machine trains, where the cluster file names none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_OF_TOOLS = ("uv-receipt.toml", "pipx_metadata.json")
"""What `uv tool` and `pipx` leave in an environment that they make for one program (dtctl) and nothing else."""


@dataclass(frozen=True)
class Runtime:
    """The Python that runs dtctl."""

    executable: str
    prefix: str
    in_environment: bool

    @classmethod
    def here(cls) -> Runtime:
        return cls(sys.executable, sys.prefix, sys.prefix != sys.base_prefix)

    @property
    def is_of_a_tool(self) -> bool:
        return any(Path(self.prefix, name).is_file() for name in _OF_TOOLS)


def local_python(environ: Mapping[str, str], own: Runtime | None = None) -> str:
    """That of the active virtual environment; else the one that runs dtctl, unless that one is only dtctl's."""
    own = own or Runtime.here()
    if python := _in(environ.get("VIRTUAL_ENV")):
        return python
    if own.in_environment and not own.is_of_a_tool:
        return own.executable
    # Conda's `base` is active everywhere: it gives way to a virtual environment whose dtctl was typed by its path.
    if python := _in(environ.get("CONDA_PREFIX")):
        return python
    found = shutil.which("python3", path=environ.get("PATH")) if own.is_of_a_tool else None
    return found or own.executable


def _in(environment: str | None) -> str | None:
    if not environment:
        return None
    python = Path(environment).absolute() / "bin" / "python"  # a link, which is to stay one
    return str(python) if os.access(python, os.X_OK) else None
