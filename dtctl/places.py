"""Where dtctl keeps things of its own on this machine; how files are replaced, and read that others may have made."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from dtctl.errors import PreflightError


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


def make_private(directory: Path) -> None:
    """Makes the directory and what is missing above it, for this user alone whatever the umask says.

    Raises OSError, and PreflightError as `check_private` does.
    """
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    for place in reversed(missing):
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:  # by another dtctl, just now
            continue
        place.chmod(0o700)
    check_private(directory)


def check_private(directory: Path) -> None:
    """Closes a directory of ours that others may look into. Raises PreflightError for one that others may write to.

    What lies in it decides where dtctl connects to and what it sends. One that is not there is fine.
    """
    try:
        found = directory.stat()
    except OSError:  # not there, or out of reach for whoever uses it too
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
        with suppress(OSError):  # it may lie on a disk that cannot be written to: nobody else can write there either
            directory.chmod(0o700)


def open_regular(path: str | os.PathLike[str], *, follow: bool = True, dir_fd: int | None = None) -> int:
    """A descriptor for reading what is a regular file now that it is open; nobody waits for a FIFO. Raises OSError."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """All that a file holds. Raises OSError, also when that is more than the limit."""
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"It holds more than {limit_bytes} bytes", os.fspath(path))
    return content


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes 0600 and all at once: a reader sees the old content or the new, and a full disk leaves the old one.

    Nothing else is left, wherever Ctrl-C comes. `durable`: when it returns the content is on the disk, whatever becomes
    of this machine. Raises OSError.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        # Not by `tempfile`: an interrupt as it opens the file would leave one whose name nobody knows.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # the umask may have taken more
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())  # some file systems tell only now that there is no room, or no quota
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if durable:
        _settle(path.parent)


def _settle(directory: Path) -> None:
    """The name of the new file is on the disk too; where directories cannot be synced, soon."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_own_group(group: int) -> bool:
    """The group that has this user's name and nobody else in it, as distributions make one for each user."""
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
