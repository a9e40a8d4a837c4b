"""Files of a checkpoint that arrive beside their place, on a host or on the controller, and come into it together.

DIR/.NAME.part/arrived    which version of each file arrives, so that another try can continue
DIR/.NAME.part/placing    {file: inode} while files come into their place: those that are not here any more are there
DIR/.NAME.part/...        what has arrived so far, for this user alone

Nothing that is there already is overwritten. Other users may write there: all is done below descriptors of the
directories, and nothing but regular files is opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from contextlib import suppress

from ..host import files
from ..records import kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Collection, Dict, List, Mapping, Optional, Sequence

_BLOCK = 1 << 20
_ARRIVED, _PLACING = "arrived", "placing"
_MOST_NOTE_BYTES = 4 << 20


def folder_name(name: str) -> str:
    """Of the directory in which the files of checkpoint `name` arrive."""
    return ".%s.part" % name


class Parts:
    """`place`, `at`: descriptors of the directory and of the one in it in which files arrive. Raises OSError."""

    def __init__(self, place: int, at: int, name: str) -> None:
        self._place = place
        self._at = at
        self._folder = folder_name(name)
        self.versions = self._note(_ARRIVED)

    def take_back(self, names: Collection[str]) -> None:
        """The last steps of an earlier try were cut short: what it had given its name arrives once more."""
        for name, inode in self._note(_PLACING).items():
            found = find(name, self._place) if name in names else None
            if found is not None and inode == str(found.st_ino) and find(name, self._at) is None:
                os.rename(name, name, src_dir_fd=self._place, dst_dir_fd=self._at)
        self.remove(_PLACING)

    def expect(self, versions: Mapping[str, str]) -> None:
        """These files arrive now; what has arrived of another version goes."""
        if any(self.versions.get(name) != version for name, version in versions.items()):
            for name, version in versions.items():
                if self.versions.get(name) != version:
                    self.remove(name)
            self.versions.update(versions)
            self._write(_ARRIVED, self.versions)

    def size(self, name: str) -> int:
        """How much of a file there is."""
        try:
            return files.stat_regular(name, self._at).st_size
        except FileNotFoundError:
            return 0

    def append(self, name: str, data: bytes) -> None:
        with open(files.descriptor(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._at), "ab") as file:
            if os.fstat(file.fileno()).st_nlink > 1:
                raise files.Unfit(name, "has another name, too (a hard link)")
            file.write(data)

    def verify(self, name: str, size: int, sha256: str, alive: Callable[[], None] = lambda: None) -> bool:
        """Reads the file, which is on the disk then; one that is not what it should be goes."""
        with files.opened(name, os.O_RDWR | os.O_CREAT, self._at) as file:
            os.fsync(file)
            same = is_same(file, size, sha256, alive)
        if not same:
            self.remove(name)
        return same

    def move_into_place(self, names: Sequence[str], times: Optional[float] = None) -> None:
        """Gives the files their names, in this order. Raises FileExistsError. `times`: of their last change."""
        for name in names:
            self._refuse_taken(name)
        self._write(_PLACING, {name: str(files.stat_regular(name, self._at).st_ino) for name in names})
        with files.opened(_PLACING, at=self._at) as file:
            os.fsync(file)
        os.fsync(self._at)
        for name in names:
            self._refuse_taken(name)
            if times is not None:
                os.utime(name, (times, times), dir_fd=self._at)
            os.rename(name, name, src_dir_fd=self._at, dst_dir_fd=self._place)

    def _refuse_taken(self, name: str) -> None:
        if find(name, self._place) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)

    def names(self) -> List[str]:
        return os.listdir(self._at)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._at)

    def clear(self) -> None:
        with suppress(OSError):
            for name in self.names():
                os.unlink(name, dir_fd=self._at)
            os.rmdir(self._folder, dir_fd=self._place)

    def _note(self, name: str) -> Dict[str, str]:
        try:
            noted = kinds.parse_json(files.read(name, _MOST_NOTE_BYTES, self._at))
        except (OSError, ValueError):
            return {}
        return {str(name): str(value) for name, value in noted.items()} if isinstance(noted, dict) else {}

    def _write(self, name: str, note: Mapping[str, str]) -> None:
        new = name + ".new"
        self.remove(new)
        with open(create(new, self._at), "w") as file:
            json.dump(note, file)
        os.replace(new, name, src_dir_fd=self._at, dst_dir_fd=self._at)


def create(name: str, at: int) -> int:
    """The descriptor of a new file. Raises FileExistsError."""
    return files.descriptor(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, at)


def find(name: str, at: int) -> Optional[os.stat_result]:
    """What has this name, a link too."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=at, follow_symlinks=False)
    return None


def is_same(opened: int, size: int, sha256: str, alive: Callable[[], None] = lambda: None) -> bool:
    """`alive` is called from time to time, and may raise."""
    digest, offset = hashlib.sha256(), 0
    while offset <= size:
        data = files.read_at(opened, offset, _BLOCK)
        if not data:
            break
        digest.update(data)
        offset += len(data)
        alive()
    return (offset, digest.hexdigest()) == (size, sha256)
