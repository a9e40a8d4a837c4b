"""Where dtctl keeps things of its own on this machine, and whether others may write there."""

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
    """For what may be lost at any time."""
    return _base("XDG_CACHE_HOME", ".cache") / "dtctl"


def forget_old(part: Path) -> None:
    """Removes what was not used for a month. The file `looked` of a directory was written when that was used; one
    without it was left by a command that was killed."""
    import shutil

    for one in part.iterdir():
        with suppress(OSError):
            used = one / "looked" if (one / "looked").exists() else one
            if time.time() - used.stat().st_mtime > _KEPT_S:
                shutil.rmtree(one) if one.is_dir() else one.unlink()


def state_directory() -> Path:
    """For the records of runs."""
    return _base("XDG_STATE_HOME", ".local/state") / "dtctl"


def local_root() -> Path:
    """The root of the agents of this machine, as they choose it themselves."""
    return Path(os.environ.get("DTCTL_ROOT") or Path.home() / ".dtctl").absolute()


def own_directories() -> tuple[Path, ...]:
    """None of them is ever part of a training program, though that may lie in the home directory itself."""
    return cache_directory(), state_directory(), local_root()


def is_around_home(directory: Path) -> bool:
    """It is the user's home or above it: programs read many files there that have nothing to do with dtctl."""
    real, home = Path(os.path.realpath(directory)), Path(os.path.realpath(Path.home()))
    return real == home or real in home.parents


def check_private(directory: Path) -> None:
    """Closes a directory of ours that others may look into. Raises PreflightError for one that others may write to.

    What lies in it decides where dtctl connects to and what it sends. One that is not there is fine.
    """
    try:
        found = directory.stat()
    except OSError:  # missing, or not accessible: its user gets the error
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
        with suppress(OSError):  # it may lie on a disk that cannot be written to: no other user can write there either
            directory.chmod(0o700)


def _is_own_group(group: int) -> bool:
    """The group that has this user's name and no other member, as distributions make one for each user."""
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
    """Paths that are not absolute are not valid (XDG Base Directory Specification)."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / usual
