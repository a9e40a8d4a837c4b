"""The files of one bundle on disk: verifies them by its manifest, and completes them.

BASE/tree/...       the code
BASE/stats.json     {path: [size, mtime_ns, ctime_ns, inode, sha256, blocks]} of each file when it was last found valid;
                    `blocks`: the SHA-256 of each block of a large file that has arrived by blocks, else empty
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time

from ..host import files, paths
from ..host.errors import Refused
from ..records.values import LARGE_BYTES
from .blocks import PARTIAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple


MOST_BYTES = 256 * 1024 * 1024

_HASH = re.compile(r"[0-9a-f]{64}\Z")


class Manifest:
    """A checked manifest: no path in it leaves the tree, not even through one of its own links."""

    def __init__(
        self,
        files: List[Tuple[str, int, int, str]],
        links: List[Tuple[str, str]],
        dirs: List[Tuple[str, int]],
        cluster: Optional[str] = None,
    ) -> None:
        self.files = files
        self.links = links
        self.dirs = dirs
        self.cluster = cluster

    @classmethod
    def parse(cls, text: bytes, bundle_id: str) -> Manifest:
        """The manifest of the canonical JSON whose hash is the id. Raises Refused."""
        import hashlib

        if hashlib.sha256(text).hexdigest() != bundle_id:
            raise Refused("bundle_damaged", "the manifest is not that of bundle %s" % bundle_id[:12])
        try:
            value = json.loads(text)
            if value["version"] != 1:
                raise Refused("bad_request", "the bundle's manifest has version %r, not 1" % value["version"])
            manifest = cls(
                [(path, mode, size, sha256) for path, mode, size, sha256 in value["files"]],
                [(path, target) for path, target in value["links"]],
                [(path, mode) for path, mode in value["dirs"]],
                value.get("cluster"),
            )
            manifest._check()
        except (ValueError, KeyError, TypeError) as error:
            raise Refused("bad_request", "the bundle's manifest cannot be read", detail=repr(error)) from error
        return manifest

    @classmethod
    def load(cls, path: str, bundle_id: str) -> Optional[Manifest]:
        """The manifest from a complete bundle's own copy; None if there is no valid one."""
        try:
            return cls.parse(files.read(path, MOST_BYTES), bundle_id)
        except (OSError, Refused):
            return None

    def paths(self) -> Set[str]:
        """The paths of the files and links."""
        return {entry[0] for entry in self.files} | {entry[0] for entry in self.links}

    def _check(self) -> None:
        directories = {""}
        for path, mode in self.dirs:  # sorted by path, so that a parent comes before its contents
            _check_place(path, directories)
            _check_number(mode, path, 0o777)
            directories.add(path)
        seen = set(directories)
        entries: List[Tuple[Any, ...]] = [*self.files, *self.links]
        for path, *_ in entries:
            _check_place(path, directories)
            if path in seen:
                raise _unsafe(path, "is there twice")
            seen.add(path)
        for path, mode, size, sha256 in self.files:
            _check_number(mode, path, 0o777)
            _check_number(size, path, 1 << 62)
            if not isinstance(sha256, str) or not _HASH.match(sha256):
                raise _unsafe(path, "has no proper hash")
        for path, target in self.links:
            if not isinstance(target, str) or not target or "\0" in target:
                raise _unsafe(path, "has no proper target")


def is_bundle_id(name: object) -> bool:
    return isinstance(name, str) and bool(_HASH.match(name))


def _check_place(path: object, directories: Set[str]) -> None:
    """Refuses all but plain paths below directories of the manifest: so none can lead through a link."""
    if not isinstance(path, str) or "\0" in path:
        raise _unsafe(path, "is not a path")
    parent, _, name = path.rpartition("/")
    if path.startswith("/") or name in ("", ".", "..") or parent not in directories:
        raise _unsafe(path, "leads out of the tree, or lies in no directory of it")


def _check_number(number: object, path: str, most: int) -> None:
    if type(number) is not int or not 0 <= number <= most:
        raise _unsafe(path, "has a mode or size that cannot be")


def _unsafe(path: object, what: str) -> Refused:
    return Refused("bad_request", "the bundle's manifest is refused: %r %s" % (path, what))


_BLOCK = 1 << 20
_MOST_STATS_BYTES = 256 * 1024 * 1024
_SETTLED_NS = 2 * 10**9
"""A file that was changed less than this before it was hashed may be changed again without a new time stamp."""


class Tree:
    """`fresh`: not visible to others before it is complete, so files are written where they belong.

    `root`: the directory itself, where it is not in `base`; `what` it is called in errors. `alive` is called after each
    MiB that is hashed, with its size.
    """

    def __init__(
        self,
        base: str,
        manifest: Manifest,
        *,
        fresh: bool = False,
        root: Optional[str] = None,
        what: str = "the pushed code",
        alive: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.base = base
        self.manifest = manifest
        self.what = what
        self._fresh = fresh
        self._alive = alive
        self.root = root or os.path.join(base, "tree")
        self._stats = _load_stats(self._stats_path)
        self._known = dict(self._stats)

    def place(self, path: str) -> str:
        return f"{self.root}/{path}"

    def damaged(self) -> List[int]:
        """Indexes of the files whose content differs from the manifest. Only changed files are hashed."""
        return [index for index in range(len(self.manifest.files)) if not self.is_right(index)]

    def is_right(self, index: int) -> bool:
        path, mode, size, sha256 = self.manifest.files[index]
        place = self.place(path)
        try:
            found = os.lstat(place)
            if not stat.S_ISREG(found.st_mode) or found.st_size != size:
                return False
            if stat.S_IMODE(found.st_mode) != mode:
                os.chmod(place, mode)
                found = os.lstat(place)
            if self._is_known(index, found):
                return True
            if file_sha256(place, self._alive) != sha256:
                return False
        except (FileNotFoundError, NotADirectoryError, files.Unfit):
            return False
        if time.time_ns() - max(found.st_ctime_ns, found.st_mtime_ns) > _SETTLED_NS:
            self._stats[path] = [*signature(found), sha256, ""]
        return True

    def _is_known(self, index: int, found: os.stat_result) -> bool:
        """A data set has other contents at the same path in time."""
        path, _, _, sha256 = self.manifest.files[index]
        return self._stats.get(path, [])[:5] == [*signature(found), sha256]

    def condition(self, index: int) -> Optional[bool]:
        """Whether one file is unchanged since its hash was computed, without reading it; None if it is missing."""
        path, _, size, _ = self.manifest.files[index]
        try:
            found = os.lstat(self.place(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        is_known = path not in self._stats or self._is_known(index, found)
        return stat.S_ISREG(found.st_mode) and found.st_size == size and is_known

    def has_its_shape(self) -> bool:
        """Whether directories with their modes, and links, match the manifest."""
        return (
            mode_of(self.root) is not None
            and all(mode_of(self.place(path)) == mode for path, mode in self.manifest.dirs)
            and all(target_of(self.place(path)) == target for path, target in self.manifest.links)
        )

    def shape(self) -> None:
        """Creates directories, writable until `settle`, and links. Removes other entries in their place."""
        if mode_of(self.root) is None:
            _unlink(self.root)
            os.mkdir(self.root, 0o700)
        for path, _ in self.manifest.dirs:
            place = self.place(path)
            found = mode_of(place)
            if found is None:
                _unlink(place)
                os.mkdir(place, 0o700)
            elif found & 0o700 != 0o700:
                os.chmod(place, found | 0o700)
        for path, target in self.manifest.links:
            place = self.place(path)
            if target_of(place) != target:
                if os.path.isdir(place) and not os.path.islink(place):
                    raise self._obstructed(place)
                _unlink(place)
                os.symlink(target, place)

    def install(self, index: int, chunks: Iterable[bytes], staging: str) -> bool:
        """Puts one file into place atomically; False if `chunks` do not match its hash.

        It is renamed over an existing file, so a trainer that has the old file open keeps it. If it fails, the received
        part of a large file stays: some of its blocks are valid.
        """
        import hashlib

        _, mode, size, sha256 = self.manifest.files[index]
        part = self.part(index, staging)
        hasher = hashlib.sha256()
        written = 0
        stays = size >= LARGE_BYTES
        try:
            descriptor = files.descriptor(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                for chunk in chunks:
                    written += len(chunk)
                    if written > size:
                        return False
                    hasher.update(chunk)
                    write_all(descriptor, chunk)
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)
            if written != size or hasher.hexdigest() != sha256:
                return False
            self._put(part, index)
            stays = True
        finally:
            if not stays:
                _unlink(part)
        return True

    def part(self, index: int, staging: str) -> str:
        """The path at which a file arrives; a large one has a name by which another session finds it."""
        _, _, size, sha256 = self.manifest.files[index]
        if size >= LARGE_BYTES:
            return os.path.join(staging, PARTIAL + sha256)
        return self._arrival(index, staging)

    def _arrival(self, index: int, staging: str) -> str:
        path = self.manifest.files[index][0]
        return self.place(path) if self._fresh else os.path.join(staging, f"part-{index}")

    def adopt(self, index: int, part: str, digests: bytes) -> None:
        """Puts a file into place that has arrived by blocks, each of which matches the controller's digest."""
        os.chmod(part, self.manifest.files[index][1])
        self._put(part, index, digests.hex())

    def digests(self, path: str) -> bytes:
        """The digests of a file's blocks, if known and the file is unchanged since it was hashed; else empty."""
        known = self._stats.get(path, [])
        try:
            return bytes.fromhex(known[5]) if known[:4] == signature(os.lstat(self.place(path))) else b""
        except (OSError, ValueError, TypeError):
            return b""

    def share(self, index: int, other: Tree, at: int, staging: str) -> bool:
        """Makes one file a hard link to one in the tree of another bundle; False if that is not possible.

        Later writes to it there are detected here as in any file, by its times.
        """
        _, mode, _, sha256 = self.manifest.files[index]
        theirs, their_mode, _, their_sha256 = other.manifest.files[at]
        if (mode, sha256) != (their_mode, their_sha256) or not other.is_right(at):
            return False
        known = other._stats.get(theirs)
        if known is None:  # it may have been written to just now
            return False
        part = self._arrival(index, staging)
        shared = False
        try:
            try:
                os.link(other.place(theirs), part, follow_symlinks=False)
                found = os.lstat(part)
            except OSError:  # not on this file system, or too many names, or it was removed
                return False
            # All but the time of the inode's last change, which is another one now that the file has another name.
            if [found.st_size, found.st_mtime_ns, found.st_ino] != [*known[:2], known[3]]:
                return False  # it has been written to just now
            other._stats[theirs] = self._put(part, index, known[5], found)
            shared = True
        finally:
            if not (shared and self._fresh):
                _unlink(part)  # also after a rename over another name of the same file, which does nothing
        return True

    def _put(self, part: str, index: int, digests: str = "", found: Optional[os.stat_result] = None) -> List[Any]:
        """Renames a valid file; returns its entry in `_stats`. `found`: it is in its place."""
        path, _, _, sha256 = self.manifest.files[index]
        place = self.place(path)
        if part != place:
            try:
                os.rename(part, place)
            except IsADirectoryError:
                raise self._obstructed(place) from None
            found = None
        self._stats[path] = [*signature(found or os.lstat(place)), sha256, digests]
        return self._stats[path]

    def settle(self) -> None:
        """The directories get their own modes; deepest first, as some may not be written to from then on."""
        for path, mode in reversed(self.manifest.dirs):
            if mode_of(self.place(path)) != mode:
                os.chmod(self.place(path), mode)

    def _obstructed(self, place: str) -> Refused:
        return Refused(
            "bundle_damaged",
            "a directory is where %s has a file" % self.what,
            detail=place,
            hint="move it away on this host and try again",
        )

    def forget(self) -> None:
        """Forgets all hashes, so that every file is hashed again."""
        self._stats = {}

    def remember(self) -> None:
        """Saves what is known about the files; losing it costs only time."""
        if self._stats == self._known:
            return
        with contextlib.suppress(OSError):
            paths.write_text(self._stats_path, json.dumps(self._stats, separators=(",", ":")))

    @property
    def _stats_path(self) -> str:
        return os.path.join(self.base, "stats.json")


def read_blocks(path: str) -> Iterable[bytes]:
    """The content of a regular file. Raises files.Unfit."""
    with files.opened(path) as file:
        while True:
            block = os.read(file, _BLOCK)
            if not block:
                return
            yield block


def file_sha256(path: str, alive: Callable[[int], None] = lambda size: None) -> str:
    import hashlib

    hasher = hashlib.sha256()
    for block in read_blocks(path):
        hasher.update(block)
        alive(len(block))
    return hasher.hexdigest()


def remove_tree(path: str) -> None:
    """Removes a directory with its contents, also write-protected directories. Missing entries are no error."""
    try:
        os.chmod(path, 0o700)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                else:
                    _unlink(entry.path)
        os.rmdir(path)
    except FileNotFoundError:
        pass


def _load_stats(path: str) -> Dict[str, List[Any]]:
    try:
        stats = json.loads(files.read(path, _MOST_STATS_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    found = stats.items() if isinstance(stats, dict) else ()
    return {path: known for path, known in found if isinstance(known, list) and len(known) == 6}


def signature(found: os.stat_result) -> List[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def mode_of(directory: str) -> int | None:
    """The mode of a directory; None for anything else."""
    try:
        found = os.lstat(directory).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.S_IMODE(found) if stat.S_ISDIR(found) else None


def target_of(link: str) -> str | None:
    """The target of a link; None for anything else."""
    try:
        return os.readlink(link)
    except OSError:
        return None


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
