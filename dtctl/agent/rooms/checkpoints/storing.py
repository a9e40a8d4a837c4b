"""Receives a checkpoint from a controller under temporary names, and renames its files when it is complete.

DIR/.NAME.part/id-PUSH    a random name, which identifies hosts that share the directory
DIR/NAME.data-..., .index at the end, the index last: without it the others do not count as a checkpoint
DIR/checkpoint            then names it as the one to restore

Files of a checkpoint arrive in this way on a host and on the controller, and move to their place together:

DIR/.NAME.part/arrived    the version of each arriving file, so that another attempt can continue
DIR/.NAME.part/placing    {file: inode} while files are moved: those that are missing here are already in place
DIR/.NAME.part/...        the received files, readable only by this user

No existing file is overwritten. Other users may write there: all operations are below descriptors of the directories,
and only regular files are opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from contextlib import ExitStack, contextmanager, suppress

from ...checkpoints import formats
from ...checkpoints.repair import OpenDirectory
from ...host import files
from ...host.errors import Refused
from ...records import kinds
from ...records.values import normal_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Collection, Dict, Iterator, List, Mapping, Optional, Sequence

    from .records import Arrived, FileSent, StoreRequest

    Alive = Callable[[], None]

_ID = "id-"
_TOKEN_S = 5.0


class Arrival:
    """A checkpoint that is arriving. Raises Refused, OSError; received bytes stay for another attempt."""

    def __init__(self, directory: str, request: StoreRequest) -> None:
        os.makedirs(directory, exist_ok=True)
        self.directory = os.path.join(directory, request["below"]) if request["below"] else directory
        self.name = request["name"]
        self._row = formats.BY_KIND[request["kind"]]
        self.files: Mapping[str, FileSent] = {file["name"]: file for file in request["files"]}
        self._refuse_unfit()
        self._id = _ID + request["push"]
        self._place = _open_below(directory, request["below"])
        self.there = self._is_there()
        self._at = self._open_parts()
        self._parts = Parts(self._place, self._at, self.name)
        self.token = self._own_token()
        if not self.there:
            self._parts.take_back(self.files)
            if self._row.is_directory:
                self._parts.take_directory_back(self.name, flat)
            self._refuse_other()
        self._forget_others()
        self._sizes = {name: self._parts.size(self._here(name)) for name in self.files}

    def _here(self, name: str) -> str:
        """The name of a file in the directory in which it arrives."""
        return flat(name) if self._row.is_directory else name

    def _refuse_unfit(self) -> None:
        """Raises Refused for files that are no checkpoint of this format and name."""
        row = self._row
        if row is formats.TENSORFLOW:
            return
        own = [self.name, *row.companions(self.name)]
        is_file = isinstance(row, formats.FileFormat) and formats.of_file(self.name) is row
        if not (row.is_directory or is_file) or not (row.is_directory or set(self.files) <= set(own)) or not self.files:
            raise Refused("bad_request", "%s is no checkpoint of %s by its files" % (ascii(self.name)[:200], row.title))

    def have(self) -> List[Arrived]:
        return [{"name": name, "size": size} for name, size in self._sizes.items() if size]

    @property
    def complete(self) -> bool:
        return self.there or all(self._sizes[name] == one["size"] for name, one in self.files.items())

    def refuse_without_room(self) -> None:
        disk = os.fstatvfs(self._place)
        free = disk.f_bavail * disk.f_frsize
        lacking = 0 if self.there else sum(one["size"] - self._sizes[name] for name, one in self.files.items())
        if lacking > free:
            raise Refused(
                "disk_full",
                "there is no room for %s" % self.name,
                "%d bytes are still to come, and %s has %d left" % (lacking, self.directory, free),
                "dtctl checkpoints prune --keep N    removes older ones",
            )

    def put(self, name: str, offset: int, data: bytes) -> None:
        """The next bytes of a file."""
        size = self._sizes.get(name)
        if size is None or offset != size or size + len(data) > self.files[name]["size"]:
            raise Refused("bad_request", "%s: bytes from %d on do not follow" % (ascii(name)[:200], offset))
        self._parts.append(self._here(name), data)
        self._sizes[name] = size + len(data)

    def verify(self, alive: Alive) -> None:
        """Reads what has arrived, and lets go of a file that is not what it should be. Raises what `alive` does."""
        for name, one in {} if self.there else self.files.items():
            if not self._parts.verify(self._here(name), one["size"], one["sha256"], alive):
                raise Refused("checkpoint_damaged", "%s was damaged on its way here" % name, "", "try again")

    def finish(self, now: float) -> None:
        """Gives the files their names, the index last, and then names the checkpoint to its framework."""
        if not self.there:
            self._refuse_other()  # times: it is the newest, however long the transfer took
            if self._row.is_directory:
                self._parts.assemble_directory(self.name, {flat(name): name for name in self.files}, now)
                self._parts.move_directory_into_place(self.name)
            else:
                self._parts.move_into_place(list(self.files), now)
            os.fsync(self._place)
        place = OpenDirectory(self._place, time.monotonic() + 60.0)
        if self._row is formats.TENSORFLOW:
            place.name_newest(self.name, now)
        elif self._row.pointer is not None:
            place.point(self._row.pointer, self.name)
        os.fsync(self._place)
        self._parts.clear()

    def leave(self) -> None:
        """Removes the directory if no byte has arrived."""
        if not any(self._sizes.values()):
            self._parts.clear()

    def _is_there(self) -> bool:
        """Whether this very checkpoint is in place. Raises Refused for another one with its name."""
        if find(self.name + (".index" if self._row is formats.TENSORFLOW else ""), self._place) is None:
            return False
        try:
            for name, one in self.files.items():
                if name.endswith(".meta") and self._row is formats.TENSORFLOW:  # the graph holds no values
                    continue
                with self._opened_in_place(name) as file:
                    if not is_same(file, one["size"], one["sha256"]):
                        raise self._taken(name)
        except (FileNotFoundError, NotADirectoryError, files.Unfit) as error:
            raise self._taken(os.path.basename(str(error.filename))) from None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise self._taken(os.path.basename(str(error.filename))) from None
        return True

    @contextmanager
    def _opened_in_place(self, name: str) -> Iterator[int]:
        with ExitStack() as stack:
            at, (*above, last) = self._place, name.split("/")
            for step in [self.name, *above] if self._row.is_directory else []:
                at = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                stack.callback(os.close, at)
            yield stack.enter_context(files.opened(last, at=at))

    def _taken(self, name: str) -> Refused:
        return Refused(
            "name_taken",
            "another checkpoint is called %s in %s" % (self.name, self.directory),
            "%s differs from what was to be stored; it was not touched" % name,
            "give yours another name, or move that one away",
        )

    def _refuse_other(self) -> None:
        for name in [self.name] if self._row.is_directory else self.files:
            if find(name, self._place) is not None:
                raise self._taken(name)

    def _open_parts(self) -> int:
        folder = folder_name(self.name)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700, dir_fd=self._place)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._place)
        if os.fstat(opened).st_uid != os.geteuid():
            os.close(opened)
            raise files.Unfit(os.path.join(self.directory, folder), "belongs to another user")
        return opened

    def _own_token(self) -> str:
        """Identifies this push. In a shared directory the first host writes it and the others read it."""
        token = os.urandom(16).hex()
        try:
            with open(create(self._id, self._at), "w") as file:
                file.write(token)
            return token
        except FileExistsError:
            until = time.monotonic() + _TOKEN_S
            while time.monotonic() < until:  # created, but possibly not written yet
                found = files.read(self._id, 64, self._at).decode("ascii", "replace")
                if len(found) == len(token) and not set(found) - set("0123456789abcdef"):
                    return found
                time.sleep(0.05)
            return token

    def _forget_others(self) -> None:
        """Removes parts of another version of a file, of another checkpoint with the name, or of another push."""
        expected = {self._here(name): one for name, one in self.files.items()}
        self._parts.expect({name: one["sha256"] for name, one in expected.items()})
        for name in self._parts.names():
            outdated = name in self._parts.versions and name not in expected
            if outdated or (name.startswith(_ID) and name != self._id):
                self._parts.remove(name)
        for name, one in expected.items():
            if self._parts.size(name) > one["size"]:
                self._parts.remove(name)


class Elsewhere:
    """A checkpoint at a storage URL: the controller writes it there itself, and no run may start here during that."""

    there = complete = True

    def __init__(self, url: str, request: StoreRequest) -> None:
        self.directory = url
        self.name = request["name"]
        self.token = hashlib.sha256(normal_url(url).encode()).hexdigest()[:32]

    def have(self) -> List[Arrived]:
        return []

    def refuse_without_room(self) -> None:
        """Does nothing: the size of the checkpoint is unknown."""

    def verify(self, alive: Alive) -> None:
        """The controller has."""

    def finish(self, now: float) -> None:
        """The controller has given it its name."""

    def leave(self) -> None:
        """Does nothing, as none of it is on this host."""


def _open_below(directory: str, name: Optional[str]) -> int:
    """The configured directory may be reached through any link; what is in it may not."""
    if name is None:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(FileExistsError):
        os.mkdir(os.path.join(directory, name))
    return files.directory_below(directory, name)


_BLOCK = 1 << 20
_ARRIVED, _PLACING = "arrived", "placing"
_MOST_NOTE_BYTES = 4 << 20


def folder_name(name: str) -> str:
    """The name of the directory in which the files of checkpoint `name` arrive."""
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
        """Expects these files; removes parts of other versions."""
        if any(self.versions.get(name) != version for name, version in versions.items()):
            for name, version in versions.items():
                if self.versions.get(name) != version:
                    self.remove(name)
            self.versions.update(versions)
            self._write(_ARRIVED, self.versions)

    def size(self, name: str) -> int:
        """The number of received bytes of a file."""
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
        """Syncs and reads the file; removes it if it is not the expected one."""
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

    def assemble_directory(self, name: str, paths: Mapping[str, str], times: Optional[float] = None) -> None:
        """Puts all files of a checkpoint that is a directory into it.

        `paths`: the name of each file here -> its path in that directory. `times`: of their last change. Raises
        FileExistsError.
        """
        self._refuse_taken(name)
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self._at)
        top = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._at)
        try:
            for file, path in paths.items():
                above = path.rpartition("/")[0]
                for depth in range(above.count("/") + 1 if above else 0):
                    with suppress(FileExistsError):
                        os.mkdir("/".join(above.split("/")[: depth + 1]), 0o700, dir_fd=top)
                if times is not None:
                    os.utime(file, (times, times), dir_fd=self._at)
                os.rename(file, path, src_dir_fd=self._at, dst_dir_fd=top)
            os.fsync(top)
        finally:
            os.close(top)

    def move_directory_into_place(self, name: str) -> None:
        """Gives an assembled directory its name. Raises FileExistsError."""
        self._refuse_taken(name)
        os.rename(name, name, src_dir_fd=self._at, dst_dir_fd=self._place)

    def take_directory_back(self, name: str, flat: Callable[[str], str]) -> None:
        """The last steps of an earlier attempt were cut short: its files get their names here again."""
        found = find(name, self._at)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return
        for above, _, names, _ in os.fwalk(name, topdown=False, dir_fd=self._at):
            for path in (os.path.join(above, one) for one in names):
                os.rename(path, flat(os.path.relpath(path, name)), src_dir_fd=self._at, dst_dir_fd=self._at)
            os.rmdir(above, dir_fd=self._at)

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


_OF_DIRECTORY = "="
"""What the names of arriving files of a directory begin with: no name of the notes there does."""


def flat(path: str) -> str:
    """One name for a path in a directory."""
    return _OF_DIRECTORY + path.replace("%", "%25").replace("/", "%2F")


def path_of(name: str) -> str:
    """The path of which `flat` makes this name."""
    return name[len(_OF_DIRECTORY) :].replace("%2F", "/").replace("%25", "%")


def create(name: str, at: int) -> int:
    """The descriptor of a new file. Raises FileExistsError."""
    return files.descriptor(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, at)


def find(name: str, at: int) -> Optional[os.stat_result]:
    """The status of the entry with this name, also of a link; None if there is none."""
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
