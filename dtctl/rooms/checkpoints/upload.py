"""Writes a checkpoint of this machine to a storage URL, where the run of a host restores it.

Object storage renames nothing. A note beside the checkpoint (dtctl/rooms/storage/arriving.py) says that it is arriving,
and what comes last is what makes it a checkpoint for its framework.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence

from dtctl.agent.checkpoints import formats, state_file
from dtctl.errors import PreflightError
from dtctl.operations.client import Progress
from dtctl.rooms.checkpoints.delivery import Delivery
from dtctl.rooms.checkpoints.local import OwnFile
from dtctl.rooms.storage import PATIENCE_S, Object, Place, StorageError, arriving, label
from dtctl.rooms.storage.searching import Group, Search


class Upload(Delivery):
    """The conversation with a host that restores from there, and the upload from here."""

    def send(self) -> None:
        """Sends every file but the last. Raises PreflightError where another checkpoint has its name."""
        self._place = Place(self._target.directory, PATIENCE_S)
        self._row = formats.BY_KIND[self._own.kind]  # type: ignore[index]
        self._below = f"{self._target.below}/" if self._target.below else ""
        self._note = self._below + arriving.note_name(self._own.name)
        self._left: list[OwnFile] = []
        there = self._objects()
        noted = arriving.read(self._place, self._note)
        if noted is not None:
            self._remove_other_parts(there, noted)
        if noted is not None or not self._is_in_place(there):
            self._left = [one for one in self._own.files if not self._has_arrived(one, there, noted)]
            files = {one.name: one.sha256 for one in self._own.files}
            if self._left and files != noted:
                arriving.write(self._place, self._note, files)
        for one in self._left[:-1]:
            self._upload(one)
        super().send()

    def keep(self) -> None:
        for one in self._left[-1:]:
            self._upload(one)
        self._point()
        self._place.remove(self._note)
        super().keep()

    def _point(self) -> None:
        """Makes the file that names the checkpoint to restore name this one, where its framework has such a file."""
        if self._row.pointer is None:
            return
        pointer, data = self._below + self._row.pointer, self._own.name.encode()
        if self._row is formats.TENSORFLOW:
            text = self._place.whole(pointer).decode("utf-8", "surrogateescape")
            data = state_file.with_newest(text, self._own.name, time.time()).encode("utf-8", "surrogateescape")
        self._place.write(pointer, data)

    def _at(self, name: str) -> str:
        """The name of the object of a file."""
        return f"{self._below}{self._own.name}/{name}" if self._row.is_directory else self._below + name

    def _objects(self) -> dict[str, Object]:
        """The objects at the URL that are in the way, or have arrived. Raises StorageError."""
        if not self._row.is_directory:
            names = {self._at(one.name) for one in self._own.files}
            return {one.name: one for one in self._place.inside(self._below)[0] if one.name in names}
        search = Search(self._place)
        found = search.whole(Group(self._below + self._own.name, self._row, [])).objects
        if search.cut:
            raise StorageError(f"{self._place.url}/{self._below}{self._own.name} has too many directories to be read")
        return {one.name: one for one in found}

    def _is_in_place(self, there: Mapping[str, Object]) -> bool:
        """Whether this very checkpoint is there. Raises PreflightError for another one with its name."""
        last = self._at(self._own.files[-1].name)
        if not (there if self._row.is_directory else last in there):
            if self._row is not formats.TENSORFLOW:  # shards without an index are no checkpoint
                self._refuse_other(there, [one for one in self._own.files if self._at(one.name) in there])
            return False
        self._refuse_other(there, self._own.files)
        return True

    def _refuse_other(self, there: Mapping[str, Object], files: Sequence[OwnFile]) -> None:
        for one in files:
            found = there.get(self._at(one.name))
            if one.name.endswith(".meta") and self._row is formats.TENSORFLOW:  # the graph holds no values
                continue
            if found is None or found.size != one.size or self._digest(found) != one.sha256:
                raise self._taken(self._at(one.name))

    def _taken(self, name: str) -> PreflightError:
        return PreflightError(
            f"another checkpoint is called {self._own.name} in {self._place.url}",
            detail=f"{name} differs from what was to be stored; it was not touched",
            hint="give yours another name, or move that one away",
        )

    def _remove_other_parts(self, there: Mapping[str, Object], noted: Mapping[str, str]) -> None:
        """Removes what an interrupted push of another checkpoint with this name has left in a directory."""
        if not self._row.is_directory:
            return
        own = {self._at(one.name) for one in self._own.files}
        parts = {self._at(name) for name in noted}
        for name in there:
            if name not in own and name not in parts:
                raise self._taken(name)
        for name in there:
            if name not in own:
                self._place.remove(name)

    def _has_arrived(self, file: OwnFile, there: Mapping[str, Object], noted: Mapping[str, str] | None) -> bool:
        """Whether an earlier push has sent all of it."""
        found = there.get(self._at(file.name))
        if found is None or found.size != file.size:
            return False
        if noted is None:
            return self._row is not formats.TENSORFLOW  # it was compared
        return noted.get(file.name) == file.sha256

    def _upload(self, file: OwnFile) -> None:
        bucket, before = label(self._place.url), self._sent_bytes

        def report(done: int) -> None:
            self._report(Progress(bucket, "send", before + done, self._own.size_bytes))

        self._place.upload(self._at(file.name), file.path, report)
        self._sent_bytes = before + file.size

    def _digest(self, one: Object) -> str:
        found = hashlib.sha256()
        for _, data in self._place.pieces(one):
            found.update(data)
        return found.hexdigest()
