"""Where dtctl keeps things of its own on the controller's machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """For what may be lost at any time."""
    return _base("XDG_CACHE_HOME", ".cache") / "dtctl"


def state_directory() -> Path:
    """For the records of runs."""
    return _base("XDG_STATE_HOME", ".local/state") / "dtctl"


def local_root() -> Path:
    """The root of the agents of this machine, as they choose it themselves."""
    return Path(os.environ.get("DTCTL_ROOT") or Path.home() / ".dtctl").absolute()


def own_directories() -> tuple[Path, ...]:
    """None of them is ever part of a training program, though that may lie in the home directory itself."""
    return cache_directory(), state_directory(), local_root()


def _base(variable: str, usual: str) -> Path:
    """Paths that are not absolute are not valid (XDG Base Directory Specification)."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / usual
