"""Gets a bundle's missing files: from other bundles of this host if they contain them, else over the wire."""

from __future__ import annotations

import errno
import os
import time
import zlib
from contextlib import suppress

from ..conversation import Aborted, Gone, Wire, expect_control
from ..host import files, locks
from ..host.errors import NO_ROOM, Refused
from ..records.values import CHUNK_BYTES, LARGE_BYTES
from .blocks import DIGEST_BYTES, PARTIAL, Partial
from .tree import MOST_BYTES, Manifest, Tree, read_blocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, ContextManager, Dict, Iterable, Iterator, List, Optional, Protocol, Tuple

    class FileServer(Protocol):
        """Other hosts of a push that have the files, or want them (rooms/data/relay.py)."""

        port: Optional[int]

        def has(self, index: int) -> None:
            """A file is complete here."""

        def growing(self, index: int, part: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
            """The chunks of a file, which others may get while they arrive."""

        def connected(self, address: str, port: int, stays: Callable[[int], bool]) -> ContextManager[Wire]:
            """A connection to a host that has what is needed."""

    from ..records.answers import BlockAt, PhaseProgress

_MOST_SOURCES = 8
_MUCH_BYTES = 1 << 20


class Sources:
    """Places on this host that may have a file with a certain content. Their files must be verified."""

    def __init__(self, bundles: List[str]) -> None:
        self._places: Dict[str, str] = {}
        self._shared: Dict[str, Tuple[Tree, int]] = {}
        """Files of other bundles, of which this one may have another name: no trainer works in either."""
        self.trees: List[Tree] = []
        """The trees of the bundles that were read, the newest first."""
        self._unread = bundles[:_MOST_SOURCES]

    def read_next(self, missed_bytes: int) -> bool:
        """Reads one more bundle; False where none is left, or only older ones and so little is missed that to be sent
        it takes less."""
        while self._unread and (not self.trees or missed_bytes >= _MUCH_BYTES):
            base = self._unread.pop(0)
            manifest = Manifest.load(os.path.join(base, "manifest.json"), os.path.basename(base))
            if manifest is not None:
                tree = Tree(base, manifest)
                self.trees.append(tree)
                for index, file in enumerate(manifest.files):
                    self._shared.setdefault(file[3], (tree, index))
                return True
        return False

    def add(self, sha256: str, place: str) -> None:
        """Adds a file of the tree that is filled: its own files are copies of each other; the last one is used."""
        self._shared.pop(sha256, None)
        self._places[sha256] = place

    def take(self, tree: Tree, index: int, staging: str) -> bool:
        """Fills one file from here; False if its content is not available."""
        sha256 = tree.manifest.files[index][3]
        shared, place = self._shared.get(sha256), self._places.get(sha256)
        try:
            if shared is not None:
                other, at = shared
                if tree.share(index, other, at, staging):
                    self.add(sha256, tree.place(tree.manifest.files[index][0]))
                    return True
                place = other.place(other.manifest.files[at][0])
            return place is not None and tree.install(index, read_blocks(place), staging)
        except files.Unfit:
            return False
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                return False
            raise

    def remember(self) -> None:
        """A file that has got another name has another signature."""
        for tree in self.trees:
            tree.remember()


def receive_manifest(wire: Wire) -> bytes:
    wire.send({"type": "need", "manifest": True})
    fields, payload = wire.receive()
    expect_control(fields, "manifest")
    return _inflate(payload, MOST_BYTES)


class Filling:
    """`lock` is shown life while files come in: others wait for it. `relay`: other hosts may have the files, too."""

    def __init__(
        self,
        tree: Tree,
        sources: Sources,
        staging: str,
        wire: Wire,
        lock: Optional[int],
        relay: Optional[FileServer] = None,
    ) -> None:
        self._tree = tree
        self._sources = sources
        self._staging = staging
        self._wire = wire
        self._lock = lock
        self._relay = relay
        self._partials: Dict[int, Partial] = {}

    def fill(self, lacking: List[int]) -> int:
        """Completes the tree according to its manifest, given the missing files.

        Returns the number of files that were sent.
        """
        try:
            return self._fill(lacking)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise _disk_full(self._tree, lacking) from error

    def _fill(self, lacking: List[int]) -> int:
        tree = self._tree
        tree.shape()
        missed = lacking
        while missed and self._sources.read_next(_total_bytes(tree, missed)):
            missed = [index for index in missed if not self._takes(index)]
        if _total_bytes(tree, missed) > _free_bytes(tree):
            raise _disk_full(tree, missed)
        contents: Dict[str, int] = {}
        for index in missed:
            contents.setdefault(tree.manifest.files[index][3], index)
        asked = dict.fromkeys(contents.values())
        """Requested files in this order, without those that have arrived."""
        twins = [index for index in missed if index not in asked]
        sent = len(asked)
        while asked:
            self._ask(asked)
        for index in twins:
            if not self._takes(index):
                raise Refused("bundle_damaged", "a file has changed while it was copied", tree.manifest.files[index][0])
        tree.settle()
        self._sources.remember()
        return sent

    def _ask(self, asked: Dict[int, None]) -> None:
        """Requests files, and removes arrived ones from `asked`: all of them, if the controller itself sends them."""
        partly = self._missing_blocks(asked)
        whole = [index for index in asked if index not in partly]
        blocks: List[BlockAt] = [
            {"index": index, "number": number} for index, missing in partly.items() for number in missing
        ]
        need = {"type": "need", "files": whole, "blocks": blocks}
        self._wire.send(dict(need, port=None if self._relay is None else self._relay.port))
        total = _total_bytes(self._tree, whole)
        total += sum(self._partial(block["index"]).length(block["number"]) for block in blocks)
        progress = _Progress(total, self._wire, self._lock)
        feeder = _feeder(self._wire) if self._relay is not None else None
        if self._relay is None or feeder is None:
            self._take(asked, partly, self._wire, progress)
            return
        try:
            with self._relay.connected(*feeder, self._stays) as other:
                other.send(need)
                self._take(asked, partly, other, progress)
        except (Refused, Aborted, Gone):  # another source sends the rest, and received files were verified
            if self._wire.noticed:
                raise

    def _stays(self, received_bytes: int) -> bool:
        """Whether the controller, which knows what it could send itself, leaves this host to its feeder."""
        self._wire.send({"type": "fed", "received_bytes": received_bytes})
        return bool(expect_control(self._wire.receive()[0], "feeder_review")["stays"])

    def _take(self, asked: Dict[int, None], partly: Dict[int, List[int]], source: Wire, progress: _Progress) -> None:
        tree = self._tree
        for index in [*(index for index in asked if index not in partly), *partly]:
            path, _, _, sha256 = tree.manifest.files[index]
            if index in partly:
                partial = self._partial(index)
                right = all(partial.put(number, _chunks(index, source, progress)) for number in partly[index])
                if right:
                    tree.adopt(index, tree.part(index, self._staging), partial.digests)
            else:
                chunks = _chunks(index, source, progress)
                if self._relay is not None:
                    chunks = self._relay.growing(index, tree.part(index, self._staging), chunks)
                right = tree.install(index, chunks, self._staging)
            if not right:
                raise Refused("bundle_damaged", "a file was damaged on its way here", path, "try again")
            self._sources.add(sha256, tree.place(path))
            self._has(index)
            del asked[index]

    def _missing_blocks(self, asked: Iterable[int]) -> Dict[int, List[int]]:
        """Large files of which parts may be on this host -> their missing blocks."""
        tree = self._tree
        seeds: Dict[int, List[Tree]] = {}
        for index in asked:
            path, _, size, sha256 = tree.manifest.files[index]
            if size < LARGE_BYTES:
                continue
            part = tree.part(index, self._staging)
            with suppress(OSError):
                os.rename(os.path.join(os.path.dirname(self._staging), "." + PARTIAL + sha256), part)
            found = [one for one in (tree, *self._sources.trees) if os.path.lexists(one.place(path))]
            if found or os.path.lexists(part):
                seeds[index] = found
        if seeds:
            self._wire.send({"type": "need", "digests": list(seeds)})
        return {index: self._missing(index, found) for index, found in seeds.items()}

    def _missing(self, index: int, trees: List[Tree]) -> List[int]:
        """The blocks that no file of the same name has: a new version has much of an old one."""
        partial, path, digests = self._partial(index), self._tree.manifest.files[index][0], self._digests(index)
        known = {one.place(path): one.digests(path) for one in trees}
        missing = partial.missing(digests, known)
        if known != {one.place(path): one.digests(path) for one in trees}:  # it has been written to just now
            missing = partial.missing(digests, dict.fromkeys(known, b""))
        return missing

    def _partial(self, index: int) -> Partial:
        if index not in self._partials:
            part = self._tree.part(index, self._staging)
            self._partials[index] = Partial(part, self._tree.manifest.files[index][2])
        return self._partials[index]

    def _digests(self, index: int) -> bytes:
        fields, payload = self._wire.receive()
        size = DIGEST_BYTES * self._partial(index).blocks
        if expect_control(fields, "digests")["index"] != index or len(payload) != size:
            raise Refused("bad_request", "expected the digests of file %d of the bundle" % index)
        return payload

    def _takes(self, index: int) -> bool:
        taken = self._sources.take(self._tree, index, self._staging)
        if taken:
            self._has(index)
        return taken

    def _has(self, index: int) -> None:
        if self._relay is not None:
            self._relay.has(index)


def _feeder(wire: Wire) -> Optional[Tuple[str, int]]:
    """The address and port of the host that has what is needed; None: the controller sends it."""
    reply = expect_control(wire.receive()[0], "feeder")
    return None if reply["port"] is None else (reply["address"], reply["port"])


def _chunks(index: int, wire: Wire, progress: _Progress) -> Iterator[bytes]:
    """The content of one file as it comes in."""
    while True:
        fields, payload = wire.receive()
        part = expect_control(fields, "file", "alive")
        if part["type"] == "alive":  # the feeder has not received it yet
            progress.add(0)
            continue
        if part["index"] != index:
            raise Refused("bad_request", f"expected file {index} of the bundle, not {part['index']}")
        chunk = _inflate(payload, CHUNK_BYTES) if part["encoding"] == "zlib" else payload
        progress.add(len(chunk))
        yield chunk
        if part["last"]:
            return


class _Progress:
    """Reports progress, at most ten times a second."""

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
            progress: PhaseProgress = {
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
        data = stream.decompress(payload, most + 1)  # one more, or the stream's end would not be detected
    except zlib.error as error:
        raise Refused("bundle_damaged", "compressed bytes were damaged on their way here", str(error)) from error
    if len(data) > most or not stream.eof or stream.unused_data:
        raise Refused("bad_request", "compressed bytes are not one whole stream of the agreed size")
    return data


def _total_bytes(tree: Tree, indexes: Iterable[int]) -> int:
    return sum(tree.manifest.files[index][2] for index in indexes)


def _free_bytes(tree: Tree) -> int:
    found = os.statvfs(tree.root if os.path.isdir(tree.root) else tree.base)
    return found.f_bavail * found.f_frsize


def _disk_full(tree: Tree, lacking: List[int]) -> Refused:
    needed = _total_bytes(tree, lacking)
    free = _free_bytes(tree)
    return Refused(
        "disk_full",
        f"the disk is too full for {tree.what}",
        detail=f"{needed} bytes are needed below {tree.root}, and {free} are free",
        hint=NO_ROOM,
    )
