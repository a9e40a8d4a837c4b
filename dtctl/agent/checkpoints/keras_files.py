"""What Keras 3 saves: `.keras` is a zip archive, `.weights.h5` an HDF5 file, each whole in one file.

Both formats tell where the file ends, so that one that was cut short is known without Keras. `BackupAndRestore` writes
`latest.weights.h5`, or `epoch_1.weights.h5`, and `training_metadata.json` beside it.
"""

from __future__ import annotations

import io
import os
import re
import struct

from ..host import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Callable, List, Optional
    from zipfile import ZipFile, ZipInfo

NAME = re.compile(r"(.+)\.(keras|weights\.h5)\Z", re.DOTALL)
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SUPERBLOCK_BYTES = 96
_PIECE_BYTES = 1 << 20
_MOST_CONTENTS = 64 << 20


def problem(path: str) -> Optional[str]:
    """Why the file cannot be whole; None when it may be. Raises OSError."""
    opened = files.descriptor(path)
    with open(opened, "rb") as file:
        return _of_archive(file) if path.endswith(".keras") else _of_hdf5(file)


def damage(path: str, check: Callable[[], None] = lambda: None) -> List[str]:
    """What is wrong in the file. An archive has a checksum of each part; of an HDF5 file only the length is known.

    A small archive may hold terabytes: `check` is called after each piece, and what it raises ends the reading.
    """
    import zipfile  # rarely needed

    try:
        found = problem(path)
        if found is not None or not path.endswith(".keras"):
            return [found] if found is not None else []
        with _Archive(open(files.descriptor(path), "rb", buffering=0)) as file, zipfile.ZipFile(file) as archive:
            for part in archive.infolist():
                if not _is_sound(archive, part, check):
                    return ["%s in it does not match its checksum" % part.filename[:200]]
            return []
    except FileNotFoundError:
        return ["it is missing"]
    except files.Unfit as unfit:
        return ["it %s" % unfit.strerror]
    except OSError as error:
        return ["it cannot be read: %s" % error.strerror]
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        return ["it is damaged: %s" % error]


class _Archive(io.BufferedReader):
    """Its table of contents is read as a whole, and may claim any size."""

    def read(self, size: Optional[int] = -1) -> bytes:
        if size is not None and size > _MOST_CONTENTS:
            raise ValueError("its table of contents is too large")
        return super().read(_MOST_CONTENTS if size is None or size < 0 else size)


def _is_sound(archive: ZipFile, part: ZipInfo, check: Callable[[], None]) -> bool:
    import zipfile

    try:
        with archive.open(part) as piece:
            while piece.read(_PIECE_BYTES):
                check()
    except zipfile.BadZipFile:
        return False
    return True


def _of_archive(file: BinaryIO) -> Optional[str]:
    import zipfile

    return None if zipfile.is_zipfile(file) else "it is cut short, or is no archive"


def _of_hdf5(file: BinaryIO) -> Optional[str]:
    """By the superblock, which stands first (HDF5 file format specification, II.A)."""
    head = file.read(_SUPERBLOCK_BYTES)
    size = os.fstat(file.fileno()).st_size
    if not head.startswith(_SIGNATURE) or len(head) < 48:
        return "it is cut short, or is no HDF5 file"
    version = head[8]
    place = {0: 24, 1: 28, 2: 12, 3: 12}.get(version)
    width = head[13] if version < 2 else head[9]
    if place is None or width != 8:
        return None  # of a kind that is not known here
    at = place + 16  # after the base address and one more
    (end,) = struct.unpack_from("<Q", head, at)
    return None if size >= end else "it is cut short: it has %d of %d bytes" % (size, end)
