"""Where dtctl keeps files of its own on this machine, and whether other users may write there."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import time
from contextlib import suppress
from pathlib import Path

from dtctl.errors import PreflightError

_KEPT_S = 30 * 86400.0


def cache_directory() -> Path:
    """The directory for files that may be deleted at any time."""
    return _base("XDG_CACHE_HOME", ".cache") / "dtctl"


def forget_old(part: Path) -> None:
    """Removes entries that were not used for a month.

    The file `looked` of a directory was written when the directory was used; a directory without it was left by a
    command that was killed.
    """
    import shutil

    for one in part.iterdir():
        with suppress(OSError):
            used = one / "looked" if (one / "looked").exists() else one
            if time.time() - used.stat().st_mtime > _KEPT_S:
                shutil.rmtree(one) if one.is_dir() else one.unlink()


def state_directory() -> Path:
    """The directory for the records of runs."""
    return _base("XDG_STATE_HOME", ".local/state") / "dtctl"


def local_root() -> Path:
    """The root of the agents of this machine, chosen as they choose it themselves."""
    return Path(os.environ.get("DTCTL_ROOT") or Path.home() / ".dtctl").absolute()


def own_directories() -> tuple[Path, ...]:
    """dtctl's directories. They are never part of a training program, even if its code is the home directory."""
    return cache_directory(), state_directory(), local_root()


def is_around_home(directory: Path) -> bool:
    """Whether it is the user's home or a parent of it: programs read many files there that are unrelated to dtctl."""
    real, home = Path(os.path.realpath(directory)), Path(os.path.realpath(Path.home()))
    return real == home or real in home.parents


def check_private(directory: Path) -> None:
    """Closes a directory of ours that others may look into. Raises PreflightError for one that others may write to.

    Its content decides where dtctl connects to and what it sends. A missing directory is fine.
    """
    try:
        found = directory.stat()
    except OSError:  # missing, or not accessible: its next use raises the error
        return
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        raise PreflightError(
            f"{directory} belongs to {_user(found.st_uid)}, not to you",
            detail="what lies in it decides where dtctl connects to and what it sends",
            hint=f"ls -ld {directory}    shows it; move it away, and dtctl makes one of its own",
        )
    if mode & 0o002 or (mode & 0o020 and not _is_own_group(found.st_gid)):
        raise PreflightError(
            f"{directory} can be written to by other users (mode {mode:04o})",
            detail="what lies in it decides where dtctl connects to and what it sends",
            hint=f"look at what is in it, then chmod 700 {directory}",
        )
    if mode & 0o077:
        with suppress(OSError):  # a read-only disk, perhaps: no other user can write there either
            directory.chmod(0o700)


def _is_own_group(group: int) -> bool:
    """Whether the group has this user's name and no other member, as distributions create one for each user."""
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user.pw_name and set(entry.gr_mem) <= {user.pw_name}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _base(variable: str, usual: str) -> Path:
    """The directory of the variable, or the default: no relative path is valid (XDG Base Directory Specification)."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / usual
