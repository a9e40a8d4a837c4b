"""Files of Keras 3: a zip archive (`.keras`) or an HDF5 file (`.weights.h5`), each a checkpoint of its own.

Both contain the length of the file, so a truncated one is detected without Keras. `BackupAndRestore` writes
`latest.weights.h5`, or `epoch_1.weights.h5`, and `training_metadata.json` next to it; with `double_checkpoint` the
earlier ones stay as `latest.weights.h5.bkp` and `training_metadata.json.bkp`, which it restores if the newer weights
cannot be read (keras/src/callbacks/backup_and_restore.py).
"""

from __future__ import annotations

import os
import struct

from ..host import files
from . import archives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

NAME = r"(?s)(.+)\.(keras|weights\.h5|weights\.h5\.bkp)\Z"
SECOND = ".bkp"
"""What the name of the second backup of `BackupAndRestore` ends with."""
BACKUP_METADATA = "training_metadata.json"
NO_CHECKSUMS = "an HDF5 file has no checksums: only its length was checked"

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SUPERBLOCK_BYTES = 96
_FIRST_PART = "config.json"
"""The part without which Keras loads no archive."""


def problem(path: str) -> Optional[str]:
    """Why the file cannot be whole; None when it may be. Raises OSError."""
    with files.opened(path) as file:
        return _problem(file, path)


def _problem(file: int, path: str) -> Optional[str]:
    if path.endswith(".keras"):
        return None if archives.is_whole(file, os.fstat(file).st_size) else archives.CUT
    return _of_hdf5(file)


def damage(path: str, check: Callable[[], None] = lambda: None) -> List[str]:
    """The damage in the file. An archive has a checksum of each part; of an HDF5 file only the length is known."""
    with files.opened(path) as file:
        found = _problem(file, path)
        if found is None and path.endswith(".keras"):
            archive = archives.last_archive(file, os.fstat(file).st_size)
            found = (
                archives.CUT if archive is None else archives.problem_of_parts(file, archive, check, refuse=_refused)
            )
        return [] if found is None else [found]


def _refused(parts: List[str]) -> Optional[str]:
    return None if _FIRST_PART in parts else "%s is missing in it" % _FIRST_PART


def _of_hdf5(file: int) -> Optional[str]:
    """The damage by the superblock, which comes first (HDF5 file format specification, II.A)."""
    head = files.read_at(file, 0, _SUPERBLOCK_BYTES)
    size = os.fstat(file).st_size
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
