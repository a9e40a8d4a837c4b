"""A checkpoint that a controller sends: it arrives beside its place, and comes into it whole.

DIR/.NAME.part/id-PUSH    a random name, by which hosts that share the directory are known
DIR/.NAME.part/arrived    what each file is to be (SHA-256), so that another push can go on
DIR/.NAME.part/placing    while files come into their place: those that are not here any more are there
DIR/.NAME.part/...        what has arrived so far, for this user alone
DIR/NAME.data-..., .index in the end, the index last: without it nobody takes the others for a checkpoint
DIR/checkpoint            then it is named as the one that is restored

Nothing that stands in its place is overwritten. Other users may write there: all is done below a descriptor of the
directory, and nothing but regular files is opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress

from ..host import files
from ..host.errors import Refused
from ..records import kinds
from ..records.checkpoints import is_part
from .repair import OpenDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional

    from ..records.checkpoints import Arrived, FileSent
    from ..records.requests import StoreRequest

    Alive = Callable[[], None]

_BLOCK = 1 << 20
_ID, _ARRIVED, _PLACING = "id-", "arrived", "placing"
_TOKEN_S = 5.0
_MOST_NOTE_BYTES = 4 << 20


class Arrival:
    """One checkpoint on its way. Raises Refused, OSError; what has arrived stays for another try."""

    def __init__(self, directory: str, request: StoreRequest) -> None:
        os.makedirs(directory, exist_ok=True)
        self.directory = os.path.join(directory, request["below"]) if request["below"] else directory
        self.name = request["name"]
        self.files: Mapping[str, FileSent] = {one["name"]: one for one in request["files"]}
        self._id = _ID + request["push"]
        self._place = _open_below(directory, request["below"])
        self.there = self._is_there()
        self._parts = self._open_parts()
        self.token = self._own_token()
        self._take_back()
        self._sizes = self._arrived()

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
        opened = files.descriptor(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._parts)
        with open(opened, "ab") as file:
            file.write(data)
        self._sizes[name] = size + len(data)

    def verify(self, alive: Alive) -> None:
        """Reads what has arrived, and lets go of a file that is not what it should be. Raises what `alive` does."""
        for name, one in {} if self.there else self.files.items():
            with files.opened(name, os.O_RDWR | os.O_CREAT, self._parts) as file:
                os.fsync(file)
                same = _sha256(file, alive) == one["sha256"]
            if not same:
                os.unlink(name, dir_fd=self._parts)
                raise Refused("checkpoint_damaged", "%s was damaged on its way here" % name, "", "try again")

    def finish(self, now: float) -> None:
        """Gives the files their names, the index last, and then names the checkpoint to TensorFlow."""
        if not self.there:
            self._refuse_other()
            with suppress(FileExistsError):
                os.close(_create(_PLACING, self._parts))
            os.fsync(self._parts)
            for name in self.files:
                os.utime(name, (now, now), dir_fd=self._parts)  # the newest, however long it was on its way
                os.rename(name, name, src_dir_fd=self._parts, dst_dir_fd=self._place)
            os.fsync(self._place)
        OpenDirectory(self._place, time.monotonic() + 60.0).name_newest(self.name, now)
        os.fsync(self._place)
        self._clear()

    def leave(self) -> None:
        """What is given up before a byte has come leaves nothing."""
        if not any(self._sizes.values()):
            self._clear()

    def _clear(self) -> None:
        with suppress(OSError):
            for name in os.listdir(self._parts):
                os.unlink(name, dir_fd=self._parts)
            os.rmdir(self._parts_name, dir_fd=self._place)

    @property
    def _parts_name(self) -> str:
        return ".%s.part" % self.name

    def _is_there(self) -> bool:
        """This very checkpoint. Raises Refused for another one of its name."""
        if not _exists(self.name + ".index", self._place):
            return False
        try:
            for name, one in self.files.items():
                if not name.endswith(".meta") and not self._is_same(name, one):  # the graph is none of its values
                    raise self._taken(name)
        except (FileNotFoundError, files.Unfit) as error:
            raise self._taken(os.path.basename(str(error.filename))) from None
        return True

    def _is_same(self, name: str, one: FileSent) -> bool:
        with files.opened(name, at=self._place) as file:
            return os.fstat(file).st_size == one["size"] and _sha256(file) == one["sha256"]

    def _taken(self, name: str) -> Refused:
        return Refused(
            "name_taken",
            "another checkpoint is called %s in %s" % (self.name, self.directory),
            "%s differs from what was to be stored; it was not touched" % name,
            "give yours another name, or move that one away",
        )

    def _refuse_other(self) -> None:
        for name in self.files:
            if _exists(name, self._place):
                raise self._taken(name)

    def _open_parts(self) -> int:
        with suppress(FileExistsError):
            os.mkdir(self._parts_name, 0o700, dir_fd=self._place)
        opened = os.open(
            self._parts_name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._place
        )
        if os.fstat(opened).st_uid != os.geteuid():
            os.close(opened)
            raise files.Unfit(os.path.join(self.directory, self._parts_name), "belongs to another user")
        return opened

    def _own_token(self) -> str:
        """Of this push: whoever comes first to a directory that hosts share gives it its name."""
        token = os.urandom(16).hex()
        try:
            with open(_create(self._id, self._parts), "w") as file:
                file.write(token)
            return token
        except FileExistsError:
            until = time.monotonic() + _TOKEN_S
            while time.monotonic() < until:  # whoever makes it may not have written it yet
                found = files.read(self._id, 64, self._parts).decode("ascii", "replace")
                if len(found) == len(token) and not set(found) - set("0123456789abcdef"):
                    return found
                time.sleep(0.05)
            return token

    def _take_back(self) -> None:
        """The last steps of an earlier push were cut short: what it had given its name arrives once more."""
        if self.there:
            return
        if _exists(_PLACING, self._parts):
            for name in self._note():
                if is_part(self.name, name) and not _exists(name, self._parts) and _exists(name, self._place):
                    os.rename(name, name, src_dir_fd=self._place, dst_dir_fd=self._parts)
            os.unlink(_PLACING, dir_fd=self._parts)
        self._refuse_other()

    def _arrived(self) -> Dict[str, int]:
        """How much of each file there is; what belongs to another version of it goes."""
        before = self._note()
        wanted = {name: one["sha256"] for name, one in self.files.items()}
        for name in os.listdir(self._parts):
            outdated = is_part(self.name, name) and before.get(name) != wanted.get(name)
            if outdated or (name.startswith(_ID) and name != self._id):
                os.unlink(name, dir_fd=self._parts)
        self._write_note(wanted)
        sizes = {}
        for name, one in self.files.items():
            size = _size_of(name, self._parts)
            if size > one["size"]:
                os.unlink(name, dir_fd=self._parts)
            sizes[name] = size if size <= one["size"] else 0
        return sizes

    def _note(self) -> Dict[str, str]:
        try:
            told = kinds.parse_json(files.read(_ARRIVED, _MOST_NOTE_BYTES, self._parts))
        except (OSError, ValueError):
            return {}
        return {str(name): str(value) for name, value in told.items()} if isinstance(told, dict) else {}

    def _write_note(self, wanted: Mapping[str, str]) -> None:
        new = _ARRIVED + ".new"
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=self._parts)
        with open(_create(new, self._parts), "w") as file:
            json.dump(wanted, file)
        os.replace(new, _ARRIVED, src_dir_fd=self._parts, dst_dir_fd=self._parts)


def _open_below(directory: str, name: Optional[str]) -> int:
    """The configured directory may be reached through any link; what is in it may not."""
    if name is None:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(FileExistsError):
        os.mkdir(os.path.join(directory, name))
    return files.directory_below(directory, name)


def _create(name: str, at: int) -> int:
    """The descriptor of a new file. Raises FileExistsError."""
    return files.descriptor(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, at)


def _exists(name: str, at: int) -> bool:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=at, follow_symlinks=False)
        return True
    return False


def _size_of(name: str, at: int) -> int:
    try:
        return files.look(name, at).st_size
    except FileNotFoundError:
        return 0


def _sha256(opened: int, alive: Callable[[], None] = lambda: None) -> str:
    """`alive` is called from time to time, and may raise."""
    digest, offset = hashlib.sha256(), 0
    while True:
        data = files.read_at(opened, offset, _BLOCK)
        if not data:
            return digest.hexdigest()
        digest.update(data)
        offset += len(data)
        alive()
