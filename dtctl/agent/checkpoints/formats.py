"""Reads checkpoints other than TensorFlow's own files of tensors: Keras, Orbax, and the file `checkpoint`.

Keras 3 saves a zip archive (`.keras`) or an HDF5 file (`.weights.h5`), each in a single file. Both contain the length
of the file, so a truncated one is detected without Keras. `BackupAndRestore` writes `latest.weights.h5`, or
`epoch_1.weights.h5`, and `training_metadata.json` next to it.

Orbax saves a directory for each checkpoint, with a file of metadata in it, as programs of JAX write them. A save works
in a directory whose name has a suffix, and renames it when it has ended; if a storage cannot rename a directory
atomically, `commit_success.txt` is written last (orbax/checkpoint/_src/path/atomicity.py).

TensorFlow's file `checkpoint` names the checkpoint of its directory to restore, and the others: a text CheckpointState
(tensorflow/python/training/checkpoint_state.proto), one field a line. TF1 writes absolute paths, TF2 relative names,
and times for the paths with the same index.
"""

from __future__ import annotations

import io
import json
import os
import re
import struct
from contextlib import suppress

from ..host import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Callable, List, Optional, Tuple
    from zipfile import ZipFile, ZipInfo

    from ..host.budget import Budget


KERAS_NAME = r"(?s)(.+)\.(keras|weights\.h5)\Z"
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SUPERBLOCK_BYTES = 96
_PIECE_BYTES = 1 << 20
_MOST_CONTENTS = 1 << 20
"""The most bytes of an archive's table of contents: some thousand parts, where Keras writes a handful. Each part takes
ten times as much memory as it has bytes there."""
_END_BYTES = 66_000
"""The bytes that contain the end of an archive: it has 22 bytes, and a comment of at most 65535."""
_FIRST_PART = "config.json"
"""The part without which Keras loads no archive."""


def keras_problem(path: str) -> Optional[str]:
    """Why the file cannot be whole; None when it may be. Raises OSError."""
    import zipfile  # rarely needed

    with open(files.descriptor(path), "rb") as file:
        if path.endswith(".keras"):
            return None if zipfile.is_zipfile(file) else "it is cut short, or is no archive"
        return _of_hdf5(file)


def keras_damage(path: str, check: Callable[[], None] = lambda: None) -> List[str]:
    """The damage in the file. An archive has a checksum of each part; of an HDF5 file only the length is known.

    A small archive may contain terabytes: `check` is called after each piece, and an exception of it ends the reading.
    """
    import zipfile  # rarely needed

    try:
        found = keras_problem(path)
        if found is not None or not path.endswith(".keras"):
            return [found] if found is not None else []
        with _Archive(open(files.descriptor(path), "rb", buffering=0)) as file, zipfile.ZipFile(file) as archive:
            problem = _problem_of_archive(archive, _number_of_parts(file), check)
            return [] if problem is None else [problem]
    except FileNotFoundError:
        return ["it is missing"]
    except files.Unfit as unfit:
        return ["it %s" % unfit.strerror]
    except OSError as error:
        return ["it cannot be read: %s" % error.strerror]
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError, struct.error) as error:
        return ["it is damaged: %s" % (str(error)[:200] or "it ends within a part")]


class _Archive(io.BufferedReader):
    """Limits reads: the table of contents is read as a whole, and may claim any size."""

    def read(self, size: Optional[int] = -1) -> bytes:
        if size is not None and size > _MOST_CONTENTS:
            raise ValueError("its table of contents is too large")
        return super().read(_MOST_CONTENTS if size is None or size < 0 else size)


def _number_of_parts(file: BinaryIO) -> Optional[int]:
    """How many parts the end of an archive claims (APPNOTE.TXT, 4.3.16); None where it has no room for the number."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
    end = file.read(_END_BYTES)
    number = int.from_bytes(end[end.rindex(b"PK\5\6") + 10 :][:2], "little")
    return None if number == 0xFFFF else number


def _problem_of_archive(archive: ZipFile, number: Optional[int], check: Callable[[], None]) -> Optional[str]:
    import zipfile

    parts = archive.infolist()
    if number not in (None, len(parts)):
        return "its table of contents has %d of %d parts" % (len(parts), number)
    if all(part.filename != _FIRST_PART for part in parts):
        return "%s is missing in it" % _FIRST_PART
    for part in parts:
        # Keras writes no other kinds; those of `bzip2` and `lzma` would be expanded in memory without any limit
        if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return "%s in it is compressed in a way that Keras does not use" % part.filename[:200]
        if not _is_sound(archive, part, check):
            return "%s in it does not match its checksum" % part.filename[:200]
    return None


def _is_sound(archive: ZipFile, part: ZipInfo, check: Callable[[], None]) -> bool:
    import zipfile
    import zlib

    left = part.file_size
    try:
        with archive.open(part) as piece:
            while True:
                data = piece.read(_PIECE_BYTES)
                if not data:
                    return left == 0
                left -= len(data)
                check()
    except (zipfile.BadZipFile, zlib.error):
        return False


def _of_hdf5(file: BinaryIO) -> Optional[str]:
    """The damage by the superblock, which comes first (HDF5 file format specification, II.A)."""
    head = file.read(_SUPERBLOCK_BYTES)
    size = os.fstat(file.fileno()).st_size
    if not head.startswith(_SIGNATURE) or len(head) < 48:
        return "it is cut short, or is no HDF5 file"
    version = head[8]
    place = {0: 24, 1: 28, 2: 12, 3: 12}.get(version)
    width = head[13] if version < 2 else head[9]
    if place is None or width != 8:
        return None  # of an unknown kind
    at = place + 16  # after the base address and one more
    (end,) = struct.unpack_from("<Q", head, at)
    return None if size >= end else "it is cut short: it has %d of %d bytes" % (size, end)


METADATA = "_CHECKPOINT_METADATA"
COMMITTED = "commit_success.txt"
ORBAX_MARKS = (METADATA, COMMITTED, "_METADATA", os.path.join("default", "_METADATA"))
"""Files that identify a directory as a checkpoint; the last two are of versions before 0.6."""

_UNFINISHED = r"\.orbax-checkpoint-tmp(?:-[0-9]+)?\Z"
_STEP = r"(?:\A|[_-])([0-9]{1,15})\Z"
_MOST_METADATA_BYTES = 1 << 20
_MOST_DEPTH = 6


def is_orbax(path: str) -> bool:
    """Whether a directory is one of Orbax's, or is about to become one. Raises OSError."""
    return re.search(_UNFINISHED, path) is not None or any(
        os.path.lexists(os.path.join(path, mark)) for mark in ORBAX_MARKS
    )


def orbax_step(name: str) -> Optional[int]:
    """The step by the name of its directory, as a CheckpointManager chooses it: `100`, `checkpoint_100`."""
    found = re.search(_STEP, re.sub(_UNFINISHED, "", os.path.basename(name)))
    return int(found.group(1)) if found else None


def orbax_problem(path: str) -> Optional[str]:
    """Why it is not complete; None when it is. Raises OSError."""
    unfinished = "the save has not ended, or was interrupted"
    if re.search(_UNFINISHED, path):
        return unfinished
    if os.path.lexists(os.path.join(path, COMMITTED)):
        return None
    try:
        metadata = json.loads(files.read(os.path.join(path, METADATA), _MOST_METADATA_BYTES))
    except FileNotFoundError:
        return None  # of an older version, which has renamed it
    except (ValueError, RecursionError):
        return "%s in it is damaged" % METADATA
    ended = metadata.get("commit_timestamp_nsecs") if isinstance(metadata, dict) else None
    return None if ended else unfinished


def orbax_modified(path: str) -> float:
    """The time of its last change: that of its metadata, else its own. Raises OSError."""
    with suppress(FileNotFoundError):
        return os.lstat(os.path.join(path, METADATA)).st_mtime
    return os.lstat(path).st_mtime


def orbax_size_bytes(path: str, budget: Budget, depth: int = 0) -> int:
    """The size of the files in it; links are not followed. Raises OSError, Spent."""
    total = 0
    with os.scandir(path) as listed:
        for entry in listed:
            budget.name()
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    total += orbax_size_bytes(entry.path, budget, depth + 1) if depth < _MOST_DEPTH else 0
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


STATE_FILE = "checkpoint"

_PATH = r'(model_checkpoint_path|all_model_checkpoint_paths): "(.*)"\s*\Z'
_TIMESTAMP = "all_model_checkpoint_timestamps: "
_PRESERVED = "last_preserved_timestamp: "


def restored_name(state: str) -> Optional[str]:
    """The name of the checkpoint that is to be restored; None where none is."""
    restored = _parsed(state)[0]
    return None if restored is None else os.path.basename(restored)


def with_renamed(text: str, damaged: str, good: str) -> str:
    """The text with `good` in place of `damaged`, with paths in the same form; it no longer lists `damaged`."""
    restored, listed, preserved = _parsed(text)
    if restored is not None and os.path.basename(restored) == damaged:
        restored = restored[: -len(damaged)] + good
    return _written(restored, [one for one in listed if os.path.basename(one[0]) != damaged], preserved)


def with_newest(text: str, name: str, now: float) -> str:
    """The text with `name` as the checkpoint to restore, and as the newest; all others stay listed.

    `name` may contain neither quotes nor backslashes.
    """
    _, listed, preserved = _parsed(text)
    at = "%s%r" % (_TIMESTAMP, now) if any(at for _, at in listed) else ""
    return _written(name, [*(one for one in listed if os.path.basename(one[0]) != name), (name, at)], preserved)


def _parsed(text: str) -> Tuple[Optional[str], List[Tuple[str, str]], List[str]]:
    """The path to be restored; all paths, each with the line of its time; and the line of the last preserved.

    Lines of any other form are left out, and so are times where there are not as many as paths.
    """
    lines = text.strip().split("\n")
    matches = [match for line in lines for match in [re.match(_PATH, line)] if match]
    restored = [match.group(2) for match in matches if match.group(1) == "model_checkpoint_path"]
    paths = [match.group(2) for match in matches if match.group(1) == "all_model_checkpoint_paths"]
    times = [line for line in lines if line.startswith(_TIMESTAMP)]
    listed = list(zip(paths, times if len(times) == len(paths) else [""] * len(paths)))
    return restored[-1] if restored else None, listed, [line for line in lines if line.startswith(_PRESERVED)][:1]


def _written(restored: Optional[str], listed: List[Tuple[str, str]], preserved: List[str]) -> str:
    lines = [] if restored is None else ['model_checkpoint_path: "%s"' % restored]
    lines += ['all_model_checkpoint_paths: "%s"' % path for path, _ in listed]
    return "\n".join([*lines, *(at for _, at in listed if at), *preserved]) + "\n"
