"""Writing files on this machine, and reading files that other users may have made."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dtctl.paths import check_private, is_around_home

PRIVATE = 0o700
RESERVE_BYTES = 500 << 20
"""The space of a disk that is left free; on a small disk a twentieth of it."""
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_LONGEST_PART = 200
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""A URL's beginning as a path contains it: gs:/bucket/x."""


class Folder:
    """A directory that dtctl writes in, held open. All files on this machine are written through one.

        with Folder(directory, project=record.project, make=PRIVATE) as folder:
            folder.replace("report.html", content)      atomically
            with folder.new("worker-0.log") as file:    which must not exist
                ...
            with folder.below("train/eval", make=PRIVATE) as inner:
                ...

    Links that others may have made are not followed: none within a project or below a folder; above, only the user's
    own and root's. A project is `project`, the cluster file's directory, or the working directory, or a repository
    around that, but not the home directory or one above it. A name is one component, and its file is no link either.

    `make`: the mode for missing directories, which are made. Raises OSError, whose `strerror` names the link.
    """

    def __init__(self, path: Path, project: Path | None = None, *, make: int | None = None) -> None:
        if make is not None and _URL.match(str(path)) and not os.path.lexists(path.parts[0]):
            raise _failed(errno.EINVAL, path, "It looks like a URL, and is no directory of this machine")
        self.path = path
        self.descriptor, self.is_of_project = _walk(Path("/"), path.absolute().parts[1:], make, projects=_own(project))

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        descriptor, self.descriptor = self.descriptor, -1  # a late thread must not use a reused descriptor
        os.close(descriptor)

    def below(self, name: str, *, make: int | None = None) -> Folder:
        """A directory below this one, by a relative path. Raises OSError, also for a path that leads out of it."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        inner = Folder.__new__(Folder)
        inner.path = self.path.joinpath(*map(_one, parts))
        inner.descriptor, inner.is_of_project = _walk(self.path, parts, make, at=os.dup(self.descriptor))
        return inner

    def new(self, name: str, mode: int = 0o600) -> BinaryIO:
        """A new file, open for writing. Raises OSError if the name exists."""
        return os.fdopen(self._open(name, os.O_WRONLY | os.O_EXCL, mode), "wb")

    def append(self, name: str) -> BinaryIO:
        """A regular file, open for appending; made if it is missing. Raises OSError.

        Within a project, a file with a second hard link is refused, because that may lie elsewhere.
        """
        opened = regular(self._open(name, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK), self.path / name)
        if self.is_of_project and os.fstat(opened).st_nlink > 1:
            os.close(opened)
            raise _failed(errno.EMLINK, self.path / name, "It has another name, too (a hard link)")
        return os.fdopen(opened, "ab")

    def _open(self, name: str, flags: int, mode: int = 0o600) -> int:
        flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(_one(name), flags, mode, dir_fd=self.descriptor)

    def replace(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Replaces a file atomically, with mode 0600: a reader never sees a part of the content.

        A full disk keeps the old content, and Ctrl-C leaves no other file. `durable`: on return the content is on the
        disk, even if the machine crashes. Raises OSError.
        """
        start = os.fsencode(name)[:_LONGEST_PART].decode("utf-8", "ignore")
        part = f".{start}.{os.urandom(8).hex()}"
        try:
            # Not by `tempfile`: an interrupt as it opens the file would leave a file of an unknown name.
            with self.new(part) as file:
                os.fchmod(file.fileno(), 0o600)  # the umask may have removed permissions
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())  # some file systems report a full disk or quota only now
            os.replace(part, _one(name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            with suppress(OSError):
                self.unlink(part)
            raise
        if durable:
            self.settle()

    def read(self, name: str, limit_bytes: int) -> bytes:
        """The whole content of a file that is not a link. Raises as `read_regular` does."""
        return _read(open_regular(name, follow=False, dir_fd=self.descriptor), limit_bytes, self.path / name)

    def move(self, name: str, to: Folder, new: str | None = None, *, overwrite: bool = False) -> None:
        """Renames a file into another folder.

        Raises FileExistsError if the name exists and not `overwrite`; OSError.
        """
        target = _one(name if new is None else new)
        if not overwrite and to.find(target) is not None:
            raise _failed(errno.EEXIST, to.path / target)
        os.rename(_one(name), target, src_dir_fd=self.descriptor, dst_dir_fd=to.descriptor)

    def link(self, name: str, target: str | Path) -> None:
        """Makes a symbolic link to something elsewhere. Raises OSError."""
        os.symlink(target, _one(name), dir_fd=self.descriptor)

    def find(self, name: str) -> os.stat_result | None:
        """The status of the entry with this name, without following a link; None if there is none."""
        with suppress(FileNotFoundError):
            return os.stat(_one(name), dir_fd=self.descriptor, follow_symlinks=False)
        return None

    def names(self) -> list[str]:
        with self.readable() as opened:
            return os.listdir(opened)  # noqa: PTH208 (of a descriptor)

    def unlink(self, name: str) -> None:
        os.unlink(_one(name), dir_fd=self.descriptor)

    def refuse_without_room(self, size_bytes: int) -> None:
        """Raises OSError if so many more bytes would leave less of the disk free than its reserve."""
        disk = os.fstatvfs(self.descriptor)
        reserve = min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // 20)
        if size_bytes > disk.f_bavail * disk.f_frsize - reserve:
            raise _failed(errno.ENOSPC, self.path)

    def settle(self) -> None:
        """Syncs the names of files to the disk. If directories cannot be synced, they follow soon."""
        with suppress(OSError), self.readable() as opened:
            os.fsync(opened)

    @contextmanager
    def readable(self) -> Iterator[int]:
        """A descriptor with which the directory can be listed and synced."""
        opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            yield opened
        finally:
            os.close(opened)


@contextmanager
def temporary_folder(prefix: str, within: Path | None = None) -> Iterator[Folder]:
    """A folder for this user alone, in $TMPDIR or /tmp by default. At the end it is removed with its content."""
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        with Folder(place) as folder:
            yield folder
    finally:
        shutil.rmtree(place, ignore_errors=True)


def replace_file(path: Path, content: bytes, *, project: Path | None = None, durable: bool = True) -> None:
    """Does what `Folder.replace` does, in an existing directory. Raises OSError."""
    with Folder(path.parent, project) as folder:
        folder.replace(path.name, content, durable=durable)


@contextmanager
def folder_of(path: Path, project: Path | None = None, *, make: int | None = None) -> Iterator[tuple[Folder, str]]:
    """The folder and the name of a file, after following the user's own links. Raises OSError as `Folder`."""
    for _ in range(_MOST_LINKS):
        with Folder(path.parent, project, make=make) as folder:
            found = folder.find(path.name)
            if found is None or not stat.S_ISLNK(found.st_mode):
                yield folder, path.name
                return
            path = path.parent / _followed(path, found, folder.descriptor, within=folder.is_of_project)
    raise _failed(errno.ELOOP, path)


def _own(project: Path | None) -> set[tuple[int, int]]:
    """The directories in which links are not the user's own, by device and inode."""
    projects = [] if project is None else [project]
    with suppress(OSError):  # the working directory may be gone
        here = Path.cwd()
        projects += [here, *(above for above in here.parents if os.path.lexists(above / ".git"))]
    return {_identity(one.stat()) for one in projects if one.is_dir() and not is_around_home(one)}


def _walk(
    path: Path,
    parts: Sequence[str],
    make: int | None,
    *,
    at: int | None = None,
    projects: Collection[tuple[int, int]] = (),
) -> tuple[int, bool]:
    """A descriptor of the directory that `parts` lead to, and whether it lies in a project.

    They start at the root, or at the descriptor `at`, which is closed, and below which no link is followed.
    """
    left, links, depth = list(reversed(parts)), 0, 0 if at is None else 1
    at = os.open("/", _DIRECTORY) if at is None else at
    try:
        while left:
            name = left.pop()
            try:
                found = os.open(name, _DIRECTORY, dir_fd=at)
            except FileNotFoundError:
                if make is None:
                    raise
                with suppress(FileExistsError):  # another dtctl made it just now
                    os.mkdir(name, make, dir_fd=at)
                    if make == PRIVATE:
                        os.chmod(name, make, dir_fd=at)  # the umask may have removed permissions
                left.append(name)
                continue
            except NotADirectoryError:
                if not stat.S_ISLNK((link := os.stat(name, dir_fd=at, follow_symlinks=False)).st_mode):
                    raise
                if (links := links + 1) > _MOST_LINKS:
                    raise _failed(errno.ELOOP, path / name) from None
                target = _followed(path / name, link, at, within=depth > 0)
                left += reversed([part for part in target.parts if part != "/"])
                if target.is_absolute():
                    os.close(at)
                    at, path = os.open("/", _DIRECTORY), Path("/")
                continue
            os.close(at)
            at, path = found, path / name
            if name == "..":
                depth = max(0, depth - 1)
            elif depth or _identity(os.fstat(at)) in projects:
                depth += 1
        return at, depth > 0
    except BaseException:
        os.close(at)
        raise


def _followed(path: Path, link: os.stat_result, at: int, *, within: bool) -> Path:
    """The target of a link. Raises OSError for a link that others may have made."""
    target = Path(os.readlink(path.name, dir_fd=at))
    if within or link.st_uid not in (0, os.geteuid()):
        raise _failed(errno.ELOOP, path, f"{path} is a link (to {target}), which is not followed")
    return target


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _one(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise _failed(errno.EINVAL, name, "Not the name of a file")
    return name


def _failed(number: int, path: str | os.PathLike[str], why: str = "") -> OSError:
    return OSError(number, why or os.strerror(number), os.fspath(path))


def make_private(directory: Path) -> None:
    """Makes the directory and its missing parents, for this user alone under any umask.

    Raises OSError, and PreflightError as `check_private` does.
    """
    with Folder(directory, make=PRIVATE):
        check_private(directory)


def open_regular(path: str | os.PathLike[str], *, follow: bool = True, dir_fd: int | None = None) -> int:
    """A descriptor for reading a regular file, checked once it is open. Never blocks on a FIFO. Raises OSError."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    return regular(os.open(path, flags, dir_fd=dir_fd), path)


def regular(descriptor: int, path: str | os.PathLike[str]) -> int:
    """The descriptor, if it is of a regular file; otherwise closes it and raises OSError."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise _failed(errno.EISDIR, path)
    raise _failed(errno.EINVAL, path, "Not a regular file")


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """The whole content of a file. Raises OSError, also if it is larger than the limit."""
    return _read(open_regular(path), limit_bytes, path)


def _read(descriptor: int, limit_bytes: int, path: Path) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        content: bytes | None = file.read(limit_bytes + 1)
    if content is None:  # a file of /proc may have nothing to read yet
        raise _failed(errno.EAGAIN, path)
    if len(content) > limit_bytes:
        raise _failed(errno.EFBIG, path, f"It holds more than {limit_bytes} bytes")
    return content
