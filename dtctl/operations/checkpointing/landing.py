"""Where the files of a checkpoint arrive on this machine: beside their place, until all of them are there and right.

DIR/.NAME.part/            what has arrived so far, each file as long as it has come; for this user alone
DIR/.NAME.part/arrived     which version of each file that is, so that another pull can go on
DIR/.NAME.part/placing     the inode of each file while they are given their names: those alone are ever taken back
DIR/NAME.data-..., .index  in the end, the index last: without it nobody takes the others for a checkpoint

A host names nothing here: only files that a checkpoint of this kind and name has are taken. What is there already is
neither moved nor replaced.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from dtctl.agent.records.checkpoints import FilePart
from dtctl.agent.records.kinds import Wrong
from dtctl.errors import DtctlError
from dtctl.operations.checkpointing.own import digest, is_name
from dtctl.operations.client.plausible import wrong
from dtctl.places import PRIVATE, Folder, open_regular

_STATE = "checkpoint"
_ARRIVED, _PLACING = "arrived", "placing"
_MOST_NOTE_BYTES = 1 << 20


class Landing:
    """Takes these files of one checkpoint, in whatever order hosts send them. Raises DtctlError, OSError."""

    def __init__(self, directory: Path, name: str, files: Collection[str], project: Path | None = None) -> None:
        """Raises DtctlError where a checkpoint of this name is already."""
        if not is_name(name):
            raise DtctlError(f"{name[:80]!r} is no name that dtctl gives to a file here")
        self.name = name
        self._files = files
        self._totals: dict[str, int] = {}
        self._folder = Folder(directory, project, make=0o777)
        self._parts = self._folder.below(f".{name}.part", make=PRIVATE)
        if os.fstat(self._parts.descriptor).st_uid != os.geteuid():
            raise DtctlError(f"{self.parts} is no directory of yours", hint="move it away")
        self._take_back()
        for one in files:
            if self._folder.find(one) is not None:
                if not self._parts.names():
                    self._remove_parts()
                raise DtctlError(f"{directory / one} is there already", hint="name another directory, or move it away")
        self._identities = self._note(_ARRIVED)

    @property
    def parts(self) -> Path:
        return self._parts.path

    def close(self) -> None:
        for folder in (self._parts, self._folder):
            folder.__exit__()

    def _take_back(self) -> None:
        """The last steps of an earlier pull were cut short."""
        for name, inode in self._note(_PLACING).items():
            found = self._folder.find(name) if name in self._files else None
            if found is not None and inode == _inode(found) and self._parts.find(name) is None:
                self._folder.move(name, self._parts)

    def have(self, names: Collection[str]) -> list[dict[str, object]]:
        """What of these has arrived before, for those who send the rest."""
        there = {name: self._parts.find(name) for name in names if name in self._identities}
        return [
            {"name": name, "size": found.st_size, "identity": self._identities[name]}
            for name, found in there.items()
            if found is not None and stat.S_ISREG(found.st_mode)
        ]

    def put(self, part: FilePart, data: bytes) -> None:
        """Raises Wrong for what no file of this checkpoint is, or does not follow what has arrived."""
        name, end = part["name"], part["offset"] + len(data)
        if name not in self._files:
            raise wrong("name", f"a file of {self.name}", name)
        if self._identities.get(name) != part["identity"]:
            self._identities[name] = part["identity"]
            self._totals.pop(name, None)
            with suppress(FileNotFoundError):
                self._parts.unlink(name)
            self._parts.replace(_ARRIVED, json.dumps(self._identities).encode(), durable=False)
        if name not in self._totals:
            self._totals[name] = part["total"]
            self._parts.refuse_without_room(sum(total - self._size(one) for one, total in self._totals.items()))
        if part["total"] != self._totals[name] or end > part["total"]:
            raise wrong("total", str(max(end, self._totals[name])), part["total"])
        with self._parts.append(name) as file:
            size = os.fstat(file.fileno()).st_size
            if part["offset"] != size:
                raise wrong("offset", str(size), part["offset"])
            file.write(data)

    def _size(self, name: str) -> int:
        found = self._parts.find(name)
        return 0 if found is None else found.st_size

    def check(self, name: str, size: int, sha256: str) -> None:
        """Raises Wrong, and lets go of the file, where it is not what its host says that it has sent."""
        if name not in self._files:
            raise wrong("files", f"files of {self.name}", name)
        try:
            same = digest(self._open(name)) == (sha256, size)
        except FileNotFoundError:
            same = False
        if not same:
            with suppress(FileNotFoundError):
                self._parts.unlink(name)
            raise Wrong(f"{name} as it arrived", "another checksum")

    def _open(self, name: str) -> int:
        return open_regular(name, follow=False, dir_fd=self._parts.descriptor)

    def finish(self, names: Collection[str]) -> tuple[Path, ...]:
        """Gives the files their names, the index last, and names the checkpoint to TensorFlow if nothing else is."""
        ordered = sorted(set(names), key=lambda name: (name.endswith(".index"), name))
        inodes = {}
        for name in ordered:
            with os.fdopen(self._open(name), "rb") as file:
                os.fsync(file.fileno())
                inodes[name] = _inode(os.fstat(file.fileno()))
        self._parts.replace(_PLACING, json.dumps(inodes).encode())
        for name in ordered:
            self._parts.move(name, self._folder)
        if f"{self.name}.index" in ordered:  # `tf.train.latest_checkpoint` finds it by this file
            with suppress(FileExistsError), self._folder.new(_STATE) as file:
                file.write(
                    f'model_checkpoint_path: "{self.name}"\nall_model_checkpoint_paths: "{self.name}"\n'.encode()
                )
        self._folder.settle()
        self._remove_parts()
        return tuple(self._folder.path / name for name in ordered)

    def _remove_parts(self) -> None:
        for name in (_PLACING, _ARRIVED):
            with suppress(OSError):
                self._parts.unlink(name)
        with suppress(OSError):
            os.rmdir(self.parts.name, dir_fd=self._folder.descriptor)

    def _note(self, name: str) -> dict[str, str]:
        try:
            told = json.loads(self._parts.read(name, _MOST_NOTE_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return {str(name): str(value) for name, value in told.items()} if isinstance(told, Mapping) else {}


def _inode(found: os.stat_result) -> str:
    return f"{found.st_dev}-{found.st_ino}"


def not_written(directory: Path, error: OSError) -> DtctlError:
    """Why a file cannot be written here."""
    why = str(error.strerror or error)
    hint = "what has arrived is kept; name another directory"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"df -h {shlex.quote(str(directory))}    shows the disk; what has arrived is kept, and the same command "
        hint += "brings the rest when there is room; or name another directory"
    return DtctlError(f"{directory} cannot be written: {why[:1].lower()}{why[1:]}", hint=hint)
