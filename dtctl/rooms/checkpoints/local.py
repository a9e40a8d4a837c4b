"""A checkpoint on this machine: which one is meant, and whether every byte of it is as it was saved."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from dtctl.agent.checkpoints import formats, reading, state_file, verifying
from dtctl.agent.checkpoints.tensor_bundle import Index
from dtctl.agent.host.budget import Budget, Spent
from dtctl.agent.records.checkpoints import MOST_STORED, Checkpoint
from dtctl.agent.rooms.checkpoints.records import is_path_inside
from dtctl.config.outgoing import OVERRIDE, why_none_of, why_refused
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, PreflightError, UsageError
from dtctl.folder import open_regular, read_regular

_FILE = re.compile(r"(.+)\.(index|meta|data-[0-9]{5}-of-[0-9]{5})\Z", re.DOTALL)
_NAME = re.compile(r"(?!\.)[^/\\\"\x00-\x1f\x7f]{1,200}\Z")
FOR_KERAS = "put it into the code directory, which `dtctl up` sends, and let the trainer load it"
_LOOK_S = 30.0
_VERIFY_S = 24 * 3600.0
_MOST_STATE_BYTES = 4 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True)
class OwnFile:
    """One file of the checkpoint, as it was read."""

    path: Path
    name: str
    """Its path in a checkpoint that is a directory."""
    size: int
    sha256: str


@dataclass(frozen=True)
class OwnCheckpoint:
    """A checkpoint that was read and is intact; `files` has the index last, or what else says that it is whole."""

    name: str
    step: int | None
    files: tuple[OwnFile, ...]
    unread: str
    """Why not every tensor could be checked."""
    kind: str = "tensorflow"
    found_by: str = ""
    """How a trainer of another framework than TensorFlow finds its newest one."""

    @property
    def size_bytes(self) -> int:
        return sum(one.size for one in self.files)


def find(path: Path, *, anywhere: bool = False) -> Path:
    """The prefix of the checkpoint that `path` means: the checkpoint itself, one of its files, or the newest of a
    directory.

    Raises UsageError where there is none, PreflightError for one that is of no use, and for a home directory or one of
    keys unless `anywhere`.
    """
    path = path.expanduser()
    if not anywhere:
        _refuse_secrets(path)
    if path.is_dir() and formats.of_directory(str(path)) is None:
        return _in_directory(path)
    if (formats.of_file(path.name) or (path.is_dir() and formats.of_directory(str(path)))) and path.exists():
        _refuse_keras(path)
        return path
    match = _FILE.match(path.name)
    prefix = path.with_name(match.group(1)) if match and path.exists() else path
    if not Path(f"{prefix}.index").exists():
        raise UsageError(
            f"there is no checkpoint {path}",
            hint="name its directory, or its files without what follows the name, as in out/model.ckpt-500",
        )
    return prefix


def _refuse_secrets(path: Path) -> None:
    place = path.resolve()
    what = why_refused(place) if path.is_dir() else why_none_of(place.parent)
    if what is not None:
        itself = "name the checkpoint itself, as in out/model.ckpt-500; or " if path.is_dir() else ""
        raise PreflightError(
            f"{path} is {what}, so dtctl sends nothing of it",
            hint=f"{itself}add {OVERRIDE} to the cluster file if this is intended",
        )


def _in_directory(directory: Path) -> Path:
    """The checkpoint that the file `checkpoint` names, as for TensorFlow, or else the newest complete one."""
    found = reading.read_checkpoints(str(directory), time.monotonic() + _LOOK_S)
    ours = [one for one in found["all"] if one["kind"] == "tensorflow"]
    if not ours and (newest := found["newest_complete"]) is not None:
        _refuse_keras(directory / newest["prefix"])
        return directory / newest["prefix"]
    named = _named(directory)
    complete = [one for one in ours if one["complete"]]
    meant = next((one for one in ours if one["prefix"] == named), None) or next(iter(complete), None)
    if meant is None and found["all"]:
        _refuse_keras(directory / found["all"][0]["prefix"])
    if meant is None or not meant["complete"]:
        raise _none_complete(directory, meant or next(iter(ours or found["all"]), None))
    return directory / meant["prefix"]


def _named(directory: Path) -> str | None:
    try:
        text = read_regular(directory / state_file.STATE_FILE, _MOST_STATE_BYTES)
    except (OSError, ValueError):
        return None
    return state_file.restored_name(text.decode("utf-8", "surrogateescape"))


def _none_complete(directory: Path, checkpoint: Checkpoint | None) -> DtctlError:
    if checkpoint is None:
        return UsageError(
            f"there is no checkpoint in {directory}", hint="name the directory that holds its .index file"
        )
    return PreflightError(
        f"{directory / checkpoint['prefix']} is not complete: {checkpoint['problem']}",
        hint="name another one of that directory, as in out/model.ckpt-500",
    )


def _refuse_keras(path: Path) -> None:
    if formats.of(str(path)).kind == "keras":
        raise PreflightError(
            f"{path.name} is a file of Keras: no trainer restores it by default",
            detail="a trainer loads the file that it names; BackupAndRestore also wants its training_metadata.json",
            hint=FOR_KERAS,
        )


def read(prefix: Path) -> OwnCheckpoint:
    """Reads the checkpoint. Raises PreflightError if no framework would restore it, or if it cannot be read."""
    name = prefix.name
    if not is_name(name):
        raise PreflightError(
            f"{name[:80]!r} is not a valid name for a checkpoint on a host", hint="give its files another name"
        )
    row = formats.of(str(prefix))
    verdict = verifying.verify_format(str(prefix), row, Budget(time.monotonic() + _VERIFY_S, reading.MOST_NAMES))
    if verdict.problems:
        raise PreflightError(
            f"{prefix} is damaged: {verdict.problems[0]}",
            detail="\n".join(verdict.problems[1:]),
            hint="name another one",
        )
    try:
        step, files = _of_tensorflow(prefix) if row is formats.TENSORFLOW else _of_row(prefix, row)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise PreflightError(f"{error.filename or prefix} cannot be read: {why}") from error
    found_by = "" if row is formats.TENSORFLOW else row.texts.newest
    return OwnCheckpoint(name, step, files, verdict.unread or "", row.kind, found_by)


def _of_tensorflow(prefix: Path) -> tuple[int | None, tuple[OwnFile, ...]]:
    index = Index(str(prefix))
    return index.step(), tuple(_read(path, path.name) for path in _paths(prefix, index.shards))


def _of_row(path: Path, row: formats.Format) -> tuple[int | None, tuple[OwnFile, ...]]:
    budget = Budget(time.monotonic() + _LOOK_S, reading.MOST_NAMES)
    try:
        step = row.inspect(str(path), budget).step
        inside = row.files(str(path), budget) if isinstance(row, formats.DirectoryFormat) else []
    except Spent as spent:
        raise PreflightError(f"{path} cannot be listed: {spent}") from None
    if isinstance(row, formats.DirectoryFormat):
        odd = next((name for name in inside if not is_path_inside(name)), None)
        if odd is not None or len(inside) > MOST_STORED:
            why = f"has {len(inside)} files" if odd is None else f"has a file {odd!a:.200}"
            raise PreflightError(f"{path} {why}, and is not sent", hint=f"at most {MOST_STORED} files are")
        return step, tuple(_read(path / name, name) for name in row.in_order(inside))
    beside = [one for one in row.companions(path.name) if path.with_name(one).is_file()]
    return step, tuple(_read(path.with_name(name), name) for name in (*beside, path.name))


def _paths(prefix: Path, shards: int) -> Iterator[Path]:
    for shard in range(shards):
        yield Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}")
    graph = Path(f"{prefix}.meta")
    if graph.is_file() and not graph.is_symlink():
        yield graph
    yield Path(f"{prefix}.index")


def _read(path: Path, name: str) -> OwnFile:
    sha256, size = digest(open_regular(path, follow=False))
    return OwnFile(path, name, size, sha256)


def is_name(name: str) -> bool:
    """Whether the name is valid for a checkpoint that is copied between machines."""
    return _NAME.match(name) is not None and name.isprintable()


def digest(descriptor: int) -> tuple[str, int]:
    """The SHA-256 and the size of an open file, which this closes."""
    found, size = hashlib.sha256(), 0
    with os.fdopen(descriptor, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
            size += len(block)
    return found.hexdigest(), size
