"""Where the file of known host keys that a cluster file names may lie, to be written to."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "known_hosts"


def why_not_written(file: Path, project: Path | None) -> str:
    """Why new keys are not written to this file; empty if they may be.

    A cluster file is somebody else's word as often as not. So it chooses a file inside its own directory, or one of
    those in ~/.ssh that are there for host keys: what else is there (authorized_keys, config, rc) means more to SSH
    than a list of hosts, and `~/.bashrc` more to a shell.
    """
    real = Path(os.path.realpath(file))
    own = Path(os.path.realpath(Path("~/.ssh").expanduser()))
    if own in real.parents:
        in_keeping = real.relative_to(own).parts[0].startswith(NAME) or _has_content(real)
        return "" if in_keeping else f"a new file in ~/.ssh for host keys has to be called {NAME}..."
    if project is not None and Path(os.path.realpath(project)) in real.parents:
        return "its name is git's own" if ".git" in real.parts else ""
    return "it lies neither in ~/.ssh nor beside the cluster file"


def _has_content(file: Path) -> bool:
    """Of a file that is no list of host keys this is seen when it is opened."""
    try:
        return file.stat().st_size > 0
    except OSError:
        return False
