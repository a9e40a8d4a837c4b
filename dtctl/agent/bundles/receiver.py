"""A bundle's missing files: from other bundles of this host where it holds them, else over the wire."""

from __future__ import annotations

import errno
import os
import time
import zlib
from contextlib import suppress

from ..conversation import expect_control
from ..host import files, locks
from ..host.errors import NO_ROOM, Refused
from ..records.values import LARGE_BYTES
from .blocks import DIGEST_BYTES, PARTIAL, Partial
from .tree import MOST_BYTES, Manifest, Tree, read_blocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

    from ..conversation import Wire
    from ..records.answers import BlockAt, Need, Progress

CHUNK = 256 * 1024
"""Bytes of a file in one frame at most, before compression."""

_MOST_SOURCES = 8


class Sources:
    """Where on this host a file with a certain content may be. What is there now has to be checked."""

    def __init__(self, bundles: List[str]) -> None:
        self._places: Dict[str, str] = {}
        self._shared: Dict[str, Tuple[Tree, int]] = {}
        """Files of other bundles, of which this one may have another name: nobody works in either."""
        self._trees: List[Tree] = []
        for base in reversed(bundles[:_MOST_SOURCES]):  # the newest last, so that it wins
            manifest = Manifest.load(os.path.join(base, "manifest.json"), os.path.basename(base))
            if manifest is not None:
                tree = Tree(base, manifest)
                self._trees.append(tree)
                self._shared.update((file[3], (tree, index)) for index, file in enumerate(manifest.files))

    def add(self, sha256: str, place: str) -> None:
        """Of the tree that is filled: its own files are copies of each other, and this one wins."""
        self._shared.pop(sha256, None)
        self._places[sha256] = place

    def take(self, tree: Tree, index: int, staging: str) -> bool:
        """Fills one file from here; False if its content is not available."""
        sha256 = tree.manifest.files[index][3]
        shared = self._shared.get(sha256)
        try:
            if shared is not None:
                other, at = shared
                if tree.share(index, other, at, staging):
                    self.add(sha256, tree.place(tree.manifest.files[index][0]))
                    return True
                return tree.install(index, read_blocks(other.place(other.manifest.files[at][0])), staging)
            place = self._places.get(sha256)
            return place is not None and tree.install(index, read_blocks(place), staging)
        except files.Unfit:
            return False
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                return False
            raise

    def seeds(self, path: str) -> List[str]:
        """Files of that name in other bundles, the newest first: a new version has much of an old one."""
        return [one.place(path) for one in reversed(self._trees) if os.path.lexists(one.place(path))]

    def remember(self) -> None:
        """A file that has got another name has another signature."""
        for tree in self._trees:
            tree.remember()


def receive_manifest(wire: Wire) -> bytes:
    need: Need = {"manifest": True, "files": [], "digests": [], "blocks": []}
    wire.send(dict(need, type="need"))
    fields, payload = wire.receive()
    expect_control(fields, "manifest")
    return _inflate(payload, MOST_BYTES)


def fill(tree: Tree, lacking: List[int], sources: Sources, staging: str, wire: Wire, lock: Optional[int]) -> int:
    """Makes the tree what its manifest says, given the files that it lacks. The number of files that were sent.

    `lock` is shown life while files come in: others wait for it.
    """
    try:
        return _fill(tree, lacking, sources, staging, wire, lock)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _disk_full(tree, lacking) from error


def _fill(tree: Tree, lacking: List[int], sources: Sources, staging: str, wire: Wire, lock: Optional[int]) -> int:
    tree.shape()
    asked: List[int] = []
    twins: List[int] = []
    contents = set()
    for index in lacking:
        sha256 = tree.manifest.files[index][3]
        if sha256 in contents:
            twins.append(index)
        elif not sources.take(tree, index, staging):
            contents.add(sha256)
            asked.append(index)
    if sum(tree.manifest.files[index][2] for index in asked + twins) > _free_bytes(tree):
        raise _disk_full(tree, asked + twins)
    partly = _missing_blocks(tree, asked, sources, staging, wire)
    whole = [index for index in asked if index not in partly]
    blocks: List[BlockAt] = [
        {"index": index, "number": number} for index, missing in partly.items() for number in missing
    ]
    need: Need = {"manifest": False, "files": whole, "digests": [], "blocks": blocks}
    wire.send(dict(need, type="need"))
    total = sum(tree.manifest.files[index][2] for index in whole)
    total += sum(_partial(tree, one["index"], staging).length(one["number"]) for one in blocks)
    progress = _Progress(total, wire, lock)
    for index in [*whole, *partly]:
        path, _, _, sha256 = tree.manifest.files[index]
        if index in partly:
            for number in partly[index]:
                _partial(tree, index, staging).put(number, _chunks(index, wire, progress))
            right = tree.adopt(index, tree.part(index, staging))
        else:
            right = tree.install(index, _chunks(index, wire, progress), staging)
        if not right:
            raise Refused("bundle_damaged", "a file was damaged on its way here", path, "try again")
        sources.add(sha256, tree.place(path))
    for index in twins:
        if not sources.take(tree, index, staging):
            raise Refused("bundle_damaged", "a file has changed while it was copied", tree.manifest.files[index][0])
    tree.settle()
    sources.remember()
    return len(asked)


def _missing_blocks(tree: Tree, asked: List[int], sources: Sources, staging: str, wire: Wire) -> Dict[int, List[int]]:
    """Of the large files of which something may be here already, the blocks that are not."""
    seeds: Dict[int, List[str]] = {}
    for index in asked:
        path, _, size, sha256 = tree.manifest.files[index]
        if size < LARGE_BYTES:
            continue
        part = tree.part(index, staging)
        with suppress(OSError):
            os.rename(os.path.join(os.path.dirname(staging), "." + PARTIAL + sha256), part)
        found = [one for one in (tree.place(path), *sources.seeds(path)) if os.path.lexists(one)]
        if found or os.path.lexists(part):
            seeds[index] = found
    if not seeds:
        return {}
    need: Need = {"manifest": False, "files": [], "digests": list(seeds), "blocks": []}
    wire.send(dict(need, type="need"))
    return {
        index: _partial(tree, index, staging).missing(_digests(tree, index, staging, wire), found)
        for index, found in seeds.items()
    }


def _partial(tree: Tree, index: int, staging: str) -> Partial:
    return Partial(tree.part(index, staging), tree.manifest.files[index][2])


def _digests(tree: Tree, index: int, staging: str, wire: Wire) -> bytes:
    fields, payload = wire.receive()
    size = DIGEST_BYTES * _partial(tree, index, staging).blocks
    if expect_control(fields, "digests")["index"] != index or len(payload) != size:
        raise Refused("bad_request", "expected the digests of file %d of the bundle" % index)
    return payload


def _chunks(index: int, wire: Wire, progress: _Progress) -> Iterator[bytes]:
    """The content of one file as it comes in."""
    while True:
        fields, payload = wire.receive()
        part = expect_control(fields, "file")
        if part["index"] != index:
            raise Refused("bad_request", f"expected file {index} of the bundle, not {part['index']}")
        chunk = _inflate(payload, CHUNK) if part["encoding"] == "zlib" else payload
        progress.add(len(chunk))
        yield chunk
        if part["last"]:
            return


class _Progress:
    """Says how far it is, at most ten times a second."""

    def __init__(self, total: int, wire: Wire, lock: Optional[int]) -> None:
        self._total = total
        self._done = 0
        self._wire = wire
        self._lock = lock
        self._next = time.monotonic() + 0.1

    def add(self, size: int) -> None:
        self._done += size
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.1
            progress: Progress = {
                "phase": "receive",
                "done_bytes": self._done,
                "total_bytes": self._total,
                "text": "",
            }
            self._wire.send(dict(progress, type="progress"))
            if self._lock is not None:
                locks.show_life(self._lock)


def _inflate(payload: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(payload, most + 1)  # one more, or the stream's end would not be seen
    except zlib.error as error:
        raise Refused("bundle_damaged", "compressed bytes were damaged on their way here", str(error)) from error
    if len(data) > most or not stream.eof or stream.unused_data:
        raise Refused("bad_request", "compressed bytes are not one whole stream of the agreed size")
    return data


def _free_bytes(tree: Tree) -> int:
    found = os.statvfs(tree.root if os.path.isdir(tree.root) else tree.base)
    return found.f_bavail * found.f_frsize


def _disk_full(tree: Tree, lacking: List[int]) -> Refused:
    needed = sum(tree.manifest.files[index][2] for index in lacking)
    free = _free_bytes(tree)
    return Refused(
        "disk_full",
        f"the disk is too full for {tree.what}",
        detail=f"{needed} bytes are needed below {tree.root}, and {free} are free",
        hint=NO_ROOM,
    )
