"""Where the file of known host keys that a cluster file names may lie, to be written to."""

from __future__ import annotations

import os
from pathlib import Path

from dtctl.places import is_around_home

NAME = "known_hosts"

_MEANT_FOR_ELSE = ("authorized_", "config", "environment", "id_", "rc")
"""What else OpenSSH reads in ~/.ssh (ssh(1) and sshd(8), FILES). Comments alone could stand in any of them."""


def why_not_written(file: Path, project: Path | None) -> str:
    """Why new keys are not written to this file; empty if they may be.

    A cluster file is somebody else's word as often as not. So it chooses a file inside its own directory, or one of
    those in ~/.ssh that are there for host keys: what else is there (authorized_keys, config, rc) means more to SSH
    than a list of hosts, and `~/.bashrc` more to a shell. A cluster file in the user's home, or above it, has no
    directory of its own.
    """
    real = Path(os.path.realpath(file))
    if is_of_ssh(real):
        first = real.relative_to(_ssh()).parts[0]
        if first.startswith(_MEANT_FOR_ELSE):
            return f"~/.ssh/{first} is read by SSH for something else"
        return "" if is_named_so(real) or _has_content(real) else f"a new file in ~/.ssh has to be called {NAME}..."
    if project is None or Path(os.path.realpath(project)) not in real.parents:
        return "it lies neither in ~/.ssh nor beside the cluster file"
    if ".git" in real.parts:
        return "its name belongs to git"
    if is_around_home(project) and not (is_named_so(real) and real.parent == Path(os.path.realpath(project))):
        return f"beside a cluster file in a home directory it has to be called {NAME}..."
    return ""


def is_of_ssh(file: Path) -> bool:
    return _ssh() in Path(os.path.realpath(file)).parents


def is_named_so(file: Path) -> bool:
    """Its name says what it is for; in ~/.ssh the name of its directory may say so instead."""
    real = Path(os.path.realpath(file))
    return (real.relative_to(_ssh()).parts[0] if is_of_ssh(real) else real.name).startswith(NAME)


def _ssh() -> Path:
    return Path(os.path.realpath(Path("~/.ssh").expanduser()))


def _has_content(file: Path) -> bool:
    """Whether it really holds host keys is checked when it is opened."""
    try:
        return file.stat().st_size > 0
    except OSError:
        return False
