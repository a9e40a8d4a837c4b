"""Large files of a bundle: blocks in a file of the same name, or of an interrupted transfer, are not sent again."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress

from ..host import files
from ..records.values import BLOCK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Mapping

DIGEST_BYTES = 32
PARTIAL = "partial-"


class Partial:
    """A large file that arrives at `path`. Nothing of what is there already is accepted.

    `digests`: the SHA-256 of each block, one after the other.
    """

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size
        self.digests = b""
        self.blocks = -(-size // BLOCK_BYTES)

    def length(self, number: int) -> int:
        return min(BLOCK_BYTES, self._size - number * BLOCK_BYTES)

    def missing(self, digests: bytes, seeds: Mapping[str, bytes]) -> List[int]:
        """Takes intact blocks from the file itself and from the seeds; returns those that are in none of them.

        `seeds`: paths, with the digests of their blocks if known; such a file is not hashed.
        """
        import hashlib

        self.digests = digests
        missing = []
        with ExitStack() as stack:
            part = stack.enter_context(files.opened(self._path, os.O_RDWR | os.O_CREAT))
            sources = [(part, b"")] if os.fstat(part).st_size else []  # a new file has no content to read and hash
            os.ftruncate(part, self._size)
            for path, known in seeds.items():
                with suppress(OSError):
                    sources.append((stack.enter_context(files.opened(path)), known))
            for number in range(self.blocks):
                digest = _digest(digests, number)
                for source, known in sources:
                    if known and _digest(known, number) != digest:
                        continue
                    data = files.read_at(source, number * BLOCK_BYTES, self.length(number))
                    if known or hashlib.sha256(data).digest() == digest:
                        if source != part:
                            write_at(part, data, number * BLOCK_BYTES)
                        break
                else:
                    missing.append(number)
        return missing

    def put(self, number: int, chunks: Iterable[bytes]) -> bool:
        """Writes a block that is `missing`, and nothing beyond it; whether it is right."""
        import hashlib

        offset, end, content = number * BLOCK_BYTES, number * BLOCK_BYTES + self.length(number), hashlib.sha256()
        with files.opened(self._path, os.O_RDWR) as part:
            for chunk in chunks:
                content.update(chunk)
                write_at(part, chunk[: end - offset], offset)
                offset = min(end, offset + len(chunk))
        return content.digest() == _digest(self.digests, number)


def _digest(digests: bytes, number: int) -> bytes:
    return digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def keep(store: str, directory: str) -> None:
    """Moves received parts of large files into `store`, for another session."""
    with suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(PARTIAL):
                os.replace(os.path.join(directory, name), os.path.join(store, "." + name))
