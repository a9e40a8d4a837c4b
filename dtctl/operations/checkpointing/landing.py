"""Where the files of a checkpoint arrive on this machine: beside their place, until all of them are there and right.

DIR/.NAME.part/            what has arrived so far, each file as long as it has come; for this user alone
DIR/.NAME.part/arrived     which version of each file that is, so that another pull can go on
DIR/NAME.data-..., .index  in the end, the index last: without it nobody takes the others for a checkpoint

A host names nothing here. It is told which checkpoint is wanted, and files of any other are not taken.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from dtctl.agent.records.kinds import Wrong
from dtctl.errors import DtctlError
from dtctl.operations.asking.plausible import wrong
from dtctl.places import open_regular, read_regular

_NAME = re.compile(r"(?!\.)[^/\x00-\x1f\x7f]{1,200}\Z")
_STATE = "checkpoint"
_ARRIVED = "arrived"
_MOST_NOTE_BYTES = 1 << 20
_BLOCK = 1 << 20


class Landing:
    """Takes the files of one checkpoint, in whatever order hosts send them. Raises DtctlError, OSError."""

    def __init__(self, directory: Path, name: str) -> None:
        if not _NAME.match(name):
            raise DtctlError(f"{name[:80]!r} is no name that dtctl gives to a file here")
        self.directory = directory
        self.name = name
        self.parts = directory / f".{name}.part"
        self._data = re.compile(re.escape(name) + r"\.data-[0-9]{5}-of-[0-9]{5}\Z")
        self._identities: dict[str, str] = {}

    def begin(self) -> None:
        """Raises DtctlError where a checkpoint of this name is already."""
        for final in (self.directory / f"{self.name}.index", self.directory / self.name):
            if os.path.lexists(final):
                raise DtctlError(f"{final} is there already", hint="name another directory, or move it away")
        self.directory.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.parts.mkdir(mode=0o700)
        found = os.lstat(self.parts)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise DtctlError(f"{self.parts} is no directory of yours", hint="move it away")
        for file in self.directory.iterdir():  # the last steps of an earlier pull were cut short
            if self._takes(file.name) and not os.path.lexists(self.parts / file.name):
                file.rename(self.parts / file.name)
        self._identities = self._read_note()

    def _takes(self, name: str) -> bool:
        return name in (self.name, f"{self.name}.index", f"{self.name}.meta") or bool(self._data.match(name))

    def have(self) -> list[dict[str, object]]:
        """What has arrived before, for those who send the rest."""
        there = {name: self.parts / name for name in self._identities if self._takes(name)}
        return [
            {"name": name, "size": file.lstat().st_size, "identity": self._identities[name]}
            for name, file in there.items()
            if file.is_file() and not file.is_symlink()
        ]

    def put(self, name: str, offset: int, identity: str, data: bytes) -> None:
        """Raises Wrong for what no file of this checkpoint is, or does not follow what has arrived."""
        if not self._takes(name):
            raise wrong("name", f"a file of {self.name}", name)
        if self._identities.get(name) != identity:
            self._identities[name] = identity
            with suppress(FileNotFoundError):
                (self.parts / name).unlink()
            self._write_note()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with os.fdopen(os.open(self.parts / name, flags, 0o600), "ab") as file:
            size = os.fstat(file.fileno()).st_size
            if offset != size:
                raise wrong("offset", str(size), offset)
            file.write(data)

    def check(self, name: str, size: int, sha256: str) -> None:
        """Raises Wrong, and lets go of the file, where it is not what its host says that it has sent."""
        if not self._takes(name):
            raise wrong("files", f"files of {self.name}", name)
        file = self.parts / name
        try:
            same = file.lstat().st_size == size and _sha256(file) == sha256
        except FileNotFoundError:
            same = False
        if not same:
            with suppress(FileNotFoundError):
                file.unlink()
            raise Wrong(f"{name} as it arrived", "another checksum")

    def finish(self, names: Collection[str]) -> tuple[Path, ...]:
        """Gives the files their names, the index last, and names the checkpoint to TensorFlow if nothing else is."""
        final = []
        for name in sorted(names, key=lambda name: (name.endswith(".index"), name)):
            with os.fdopen(open_regular(self.parts / name, follow=False), "rb") as file:
                os.fsync(file.fileno())
            (self.parts / name).rename(self.directory / name)
            final.append(self.directory / name)
        if f"{self.name}.index" in names and '"' not in self.name and "\\" not in self.name:
            self._name_it()
        with suppress(OSError):
            (self.parts / _ARRIVED).unlink()
            self.parts.rmdir()
        return tuple(final)

    def _name_it(self) -> None:
        """By the file `checkpoint`, where there is none: `tf.train.latest_checkpoint` finds it so."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileExistsError), os.fdopen(os.open(self.directory / _STATE, flags, 0o600), "w") as file:
            file.write(f'model_checkpoint_path: "{self.name}"\nall_model_checkpoint_paths: "{self.name}"\n')

    def _read_note(self) -> dict[str, str]:
        try:
            told = json.loads(read_regular(self.parts / _ARRIVED, _MOST_NOTE_BYTES))
        except (OSError, ValueError):
            return {}
        if not isinstance(told, Mapping):
            return {}
        return {str(name): str(identity) for name, identity in told.items()}

    def _write_note(self) -> None:
        new = self.parts / f"{_ARRIVED}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600), "w") as file:
            json.dump(self._identities, file)
        new.rename(self.parts / _ARRIVED)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with os.fdopen(open_regular(path, follow=False), "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def not_written(directory: Path, error: OSError) -> DtctlError:
    """Why a file cannot be written here."""
    why = str(error.strerror or error).lower()
    hint = "what has arrived is kept; name another directory"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"df -h {shlex.quote(str(directory))}    shows the disk; what has arrived is kept, and the same command "
        hint += "brings the rest when there is room; or name another directory"
    return DtctlError(f"{directory} cannot be written: {why}", hint=hint)
