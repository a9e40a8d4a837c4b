"""A checkpoint that a controller sends: it arrives beside its place (parts.py), and comes into it whole.

DIR/.NAME.part/id-PUSH    a random name, by which hosts that share the directory are known
DIR/NAME.data-..., .index in the end, the index last: without it the others are not taken for a checkpoint
DIR/checkpoint            then it is named as the one that is restored
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress

from ..host import files
from ..host.errors import Refused
from ..records.values import normal_url
from .parts import Parts, create, find, folder_name, is_same
from .repair import OpenDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Mapping, Optional

    from ..records.checkpoints import Arrived, FileSent, StoreRequest

    Alive = Callable[[], None]

_ID = "id-"
_TOKEN_S = 5.0


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
        self._at = self._open_parts()
        self._parts = Parts(self._place, self._at, self.name)
        self.token = self._own_token()
        if not self.there:
            self._parts.take_back(self.files)
            self._refuse_other()
        self._forget_others()
        self._sizes = {name: self._parts.size(name) for name in self.files}

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
        self._parts.append(name, data)
        self._sizes[name] = size + len(data)

    def verify(self, alive: Alive) -> None:
        """Reads what has arrived, and lets go of a file that is not what it should be. Raises what `alive` does."""
        for name, one in {} if self.there else self.files.items():
            if not self._parts.verify(name, one["size"], one["sha256"], alive):
                raise Refused("checkpoint_damaged", "%s was damaged on its way here" % name, "", "try again")

    def finish(self, now: float) -> None:
        """Gives the files their names, the index last, and then names the checkpoint to TensorFlow."""
        if not self.there:
            self._refuse_other()
            self._parts.move_into_place(list(self.files), now)  # the newest, however long it was on its way
            os.fsync(self._place)
        OpenDirectory(self._place, time.monotonic() + 60.0).name_newest(self.name, now)
        os.fsync(self._place)
        self._parts.clear()

    def leave(self) -> None:
        """What is given up before a byte has come leaves nothing."""
        if not any(self._sizes.values()):
            self._parts.clear()

    def _is_there(self) -> bool:
        """This very checkpoint. Raises Refused for another one of its name."""
        if find(self.name + ".index", self._place) is None:
            return False
        try:
            for name, one in self.files.items():
                if name.endswith(".meta"):  # the graph is none of its values
                    continue
                with files.opened(name, at=self._place) as file:
                    if not is_same(file, one["size"], one["sha256"]):
                        raise self._taken(name)
        except (FileNotFoundError, files.Unfit) as error:
            raise self._taken(os.path.basename(str(error.filename))) from None
        return True

    def _taken(self, name: str) -> Refused:
        return Refused(
            "name_taken",
            "another checkpoint is called %s in %s" % (self.name, self.directory),
            "%s differs from what was to be stored; it was not touched" % name,
            "give yours another name, or move that one away",
        )

    def _refuse_other(self) -> None:
        for name in self.files:
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
            while time.monotonic() < until:  # created, but perhaps not written yet
                found = files.read(self._id, 64, self._at).decode("ascii", "replace")
                if len(found) == len(token) and not set(found) - set("0123456789abcdef"):
                    return found
                time.sleep(0.05)
            return token

    def _forget_others(self) -> None:
        """What belongs to another version of a file, to another checkpoint of the name or to another push, goes."""
        self._parts.expect({name: one["sha256"] for name, one in self.files.items()})
        for name in self._parts.names():
            outdated = name in self._parts.versions and name not in self.files
            if outdated or (name.startswith(_ID) and name != self._id):
                self._parts.remove(name)
        for name, one in self.files.items():
            if self._parts.size(name) > one["size"]:
                self._parts.remove(name)


class Elsewhere:
    """One at a storage URL: the controller writes it there itself, and no run may start here meanwhile."""

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
        """Nothing of it is here."""


def _open_below(directory: str, name: Optional[str]) -> int:
    """The configured directory may be reached through any link; what is in it may not."""
    if name is None:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(FileExistsError):
        os.mkdir(os.path.join(directory, name))
    return files.directory_below(directory, name)
