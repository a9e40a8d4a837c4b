"""Event files as bytes, to a controller that copies them."""

from __future__ import annotations

import os
from contextlib import suppress

from ...host import files
from ..metrics.event_files import CHUNK_BYTES, MOST_FILES, Found, find, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Sequence, Tuple

    from ..metrics.records import FolderAt
    from .records import EventFile, FileHad

    Send = Callable[[EventFile, bytes], None]


class Copying:
    """Sends each file once, and then what it has grown by; from its beginning when it was replaced."""

    def __init__(self, roots: Sequence[str], without: Sequence[FolderAt], have: Sequence[FileHad]) -> None:
        self._roots = roots
        self._without = without
        self._sent: Dict[Tuple[str, str, str], Tuple[str, int]] = {
            (one["dir"], one["name"], one["file"]): (one["inode"], one["size"]) for one in have
        }

    def refresh(self, send: Send) -> int:
        """Sends what is new; how many files there are."""
        number = 0
        for folder in find(self._roots):
            if folder.record in self._without:
                continue
            for name in folder.names:
                if number >= MOST_FILES:
                    return number
                number += 1
                with suppress(OSError):  # deleted, or unreadable: the next call tries again
                    self._pass_on(folder, name, send)
        return number

    def _pass_on(self, folder: Found, name: str, send: Send) -> None:
        key = folder.record["dir"], folder.record["name"], text(name)
        path = os.path.join(folder.path, name)
        inode, offset = self._sent.get(key, ("", 0))
        before = files.stat_regular(path)
        if (str(before.st_ino), before.st_size) == (inode, offset):
            return
        with files.opened(path) as file:
            found = os.fstat(file)
            if str(found.st_ino) != inode or found.st_size < offset:
                inode, offset = str(found.st_ino), 0
            while True:
                data = files.read_at(file, offset, min(CHUNK_BYTES, found.st_size - offset))
                if data or not offset:
                    send({**folder.record, "file": text(name), "inode": inode, "offset": offset}, data)
                offset += len(data)
                self._sent[key] = inode, offset
                if not data or offset >= found.st_size:
                    return
