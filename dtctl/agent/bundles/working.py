"""The working directory of a cluster's trainers: a copy of the pushed code, and files that they write.

work/CLUSTER/tree/...     the working directory; one for all hosts and runs of the cluster below this root
work/CLUSTER/code.json    the copied files, to distinguish them from files of trainers
work/CLUSTER/lock         shared by sessions that are about to start a run, exclusive to remove the directory
work/CLUSTER/turn         exclusive to change it

A copy, and not links into the bundle: Python resolves links to determine the directory of a script and of its imports,
so files that programs write next to their own would end up in the bundle.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import ExitStack, contextmanager, suppress

from ..host import files, locks, paths
from ..host.errors import from_os_error
from ..records.kinds import made
from ..records.run_state import Code
from .tree import Manifest, file_sha256, remove_tree, signature, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Container, Dict, Iterator, List, Optional, Tuple

    from ..records.answers import Written


_MOST_BYTES = 256 * 1024 * 1024

_claimed: Dict[str, int] = {}
"""Locks of the directories that this process has laid out: they are not cleared away while it lives."""


def lay_out(root: str, cluster: str, run: str, bundle: str) -> List[str]:
    """Updates the directory to this bundle, once for a run; returns the new paths of moved files of trainers.

    Files of the last code that the new one lacks are removed, files of trainers stay. If they have changed a pushed
    file, or one is pushed where they have written, the pushed one replaces it, and theirs is moved aside.
    """
    place = _WorkingDirectory(root, cluster)
    try:
        place.claim()
        with place.turn() as alive:
            code = place.code()
            if code["run"] == run and code["bundle"] == bundle:
                return []  # pushed by another host of the inventory that has the same directory
            return Change(place.tree, code, place.keep, alive).bring_to(run, bundle, Source.of(root, bundle))
    except OSError as error:
        raise from_os_error(error, "copy the code into the working directory") from error


def clear(root: str, cluster: str, dry_run: bool = False) -> Tuple[int, Optional[Written]]:
    """Takes the code away again, and the directory too if trainers have written nothing.

    Returns the bytes that this sets free, and what is left. The cluster has no run here; a directory that a session is
    about to use is left alone.
    """
    place = _WorkingDirectory(root, cluster)
    with place.alone() as alone:
        if not alone:
            return 0, None
        code, before = place.code(), paths.used_bytes(place.base)
        copies = sum(paths.own_bytes(os.path.join(place.tree, path)) for path in (*code["files"], *code["links"]))
        if not dry_run:
            Change(place.tree, code, place.keep).take_away()
        found, size_bytes = Ours(place.tree, code).others()
        if not found:
            if not dry_run:
                remove_tree(place.base)
            return before, None
        return copies if dry_run else max(0, before - paths.used_bytes(place.base)), {
            "cluster": cluster,
            "id": code["id"],
            "path": place.tree,
            "files": found,
            "size_bytes": size_bytes,
        }


def remove(root: str, cluster: str) -> bool:
    """Removes it with files of trainers; False if a session is about to use it."""
    place = _WorkingDirectory(root, cluster)
    with place.alone() as alone:
        if alone:
            remove_tree(place.base)
        return alone


def directory(root: str, cluster: str) -> str:
    """The directory with all of its data, also locks."""
    return os.path.dirname(paths.working_directory(root, cluster))


def clusters(root: str) -> List[str]:
    """The clusters that have a working directory here."""
    return [name for name in paths.entries(os.path.join(root, "work")) if paths.is_component(name)]


class _WorkingDirectory:
    """The paths and locks of one cluster's directory."""

    def __init__(self, root: str, cluster: str) -> None:
        self.base = directory(root, cluster)
        self.tree = paths.working_directory(root, cluster)

    def code(self) -> Code:
        """Reads code.json. A damaged one counts as none: then a pushed file is recognised only by its content."""
        try:
            found = paths.read_record(self._path("code.json"), Code, _MOST_BYTES)
        except (OSError, paths.Damaged):
            found = None
        return found or made(Code, id=os.urandom(16).hex())

    def keep(self, code: Code) -> None:
        paths.write_json(self._path("code.json"), code)

    def claim(self) -> None:
        """Holds the shared lock until this process ends."""
        path = self._path("lock")
        while path not in _claimed:
            paths.make_directory(self.base)
            with suppress(FileNotFoundError):  # cleared away just now
                descriptor = locks.share(path)
                if descriptor is None:
                    return
                _claimed[path] = descriptor

    @contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Waits for the exclusive lock; yields a function that shows waiting processes that this one works."""
        with locks.closing(locks.wait_turn(self._path("turn"), done=lambda: False)) as lock:
            yield lambda: None if lock is None else locks.show_life(lock)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no session is about to use it; none will, until it is left."""
        held = _claimed.pop(self._path("lock"), None)
        if held is not None:
            os.close(held)
        with ExitStack() as stack:
            alone = False
            with suppress(FileNotFoundError):
                alone = stack.enter_context(locks.alone(self._path("lock")))
            yield alone

    def _path(self, name: str) -> str:
        return os.path.join(self.base, name)


_CHUNK = 16 * 1024 * 1024
_PYTHONS = "__pycache__"


class Source:
    """The contents of the directory: the files of the push, which are copied, and links to files of the setup."""

    def __init__(self, tree: str, manifest: Manifest) -> None:
        self.tree = tree
        self.files = {path: (sha256, mode) for path, mode, _, sha256 in manifest.files}
        self.links = dict(manifest.links)
        self.dirs = {path: mode | 0o700 for path, mode in manifest.dirs}  # trainers write there
        self._add_what_setup_made("")

    @classmethod
    def of(cls, root: str, bundle: str) -> Source:
        base = paths.bundle_directory(root, bundle)
        manifest = Manifest.load(os.path.join(base, "manifest.json"), bundle)
        if manifest is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), base)
        return cls(os.path.join(base, "tree"), manifest)

    def _add_what_setup_made(self, prefix: str) -> None:
        with os.scandir(os.path.join(self.tree, prefix)) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != _PYTHONS:
                    self.dirs.setdefault(path, 0o700)
                    self._add_what_setup_made(path + "/")
            elif path not in self.files:
                target = os.readlink(entry.path) if entry.is_symlink() else entry.path
                self.links.setdefault(path, target)


class Ours:
    """Whether something in the directory is as dtctl has put it there."""

    def __init__(self, tree: str, code: Code) -> None:
        self._tree = tree
        self._code = code

    def __call__(self, path: str) -> bool:
        place = os.path.join(self._tree, path)
        copy, target = self._code["files"].get(path), self._code["links"].get(path)
        try:
            found = os.lstat(place)
            if stat.S_ISLNK(found.st_mode):
                return target is not None and os.readlink(place) == target
            if copy is None or not stat.S_ISREG(found.st_mode):
                return False
            return _signature(found) == copy["signature"] or file_sha256(place) == copy["sha256"]
        except OSError:
            return False

    def others(self) -> Tuple[int, int]:
        """The number of files other than ours, and their bytes; without Python's compiled files."""
        count = size_bytes = 0
        for directory, below, names in os.walk(self._tree):
            below[:] = [name for name in below if name != _PYTHONS]
            links = [name for name in below if os.path.islink(os.path.join(directory, name))]
            for name in (*names, *links):
                place = os.path.join(directory, name)
                if not self(os.path.relpath(place, self._tree)):
                    count += 1
                    size_bytes += paths.own_bytes(place)
        return count, size_bytes


class Change:
    """Changes the code in the directory to another, or to none.

    `keep` writes code.json; `alive` is called periodically.
    """

    def __init__(
        self, tree: str, code: Code, keep: Callable[[Code], None], alive: Callable[[], None] = lambda: None
    ) -> None:
        self._tree = tree
        self._was = code
        self._keep = keep
        self._alive = alive
        self._is_ours = Ours(tree, code)
        self._aside: List[str] = []

    def bring_to(self, run: str, bundle: str, source: Source) -> List[str]:
        now = made(Code, id=self._was["id"], run=run, bundle=bundle)
        paths.make_directory(self._tree)
        try:
            self._remove_stale({*source.files, *source.links}, source.dirs)
            for path, mode in sorted(source.dirs.items()):
                self._make_directory(path, mode)
                now["dirs"].append(path)
            for path, (sha256, mode) in source.files.items():
                self._alive()
                self._put_file(path, os.path.join(source.tree, path), sha256, mode)
                now["files"][path] = {"sha256": sha256, "signature": _signature(os.lstat(self._at(path)))}
            for path, target in source.links.items():
                self._put_link(path, target)
                now["links"][path] = target
        except BaseException:
            self._keep(_both(self._was, now))
            raise
        self._keep(now)
        return self._aside

    def take_away(self) -> None:
        self._remove_stale((), ())
        for directory, below, _ in os.walk(self._tree):
            if _PYTHONS in below:
                remove_tree(os.path.join(directory, _PYTHONS))
        self._keep(made(Code, id=self._was["id"]))

    def _remove_stale(self, wanted: Container[str], dirs: Container[str]) -> None:
        for path in [*self._was["files"], *self._was["links"]]:
            if path not in wanted and self._is_ours(path):
                os.unlink(self._at(path))
        for path in sorted(self._was["dirs"], reverse=True):
            if path not in dirs:
                with suppress(OSError):  # it contains a trainer's file
                    if os.listdir(self._at(path)) == [_PYTHONS]:
                        remove_tree(os.path.join(self._at(path), _PYTHONS))
                    os.rmdir(self._at(path))

    def _make_directory(self, path: str, mode: int) -> None:
        place = self._at(path)
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(place).st_mode):
                return
            self._clear(path)
        os.mkdir(place, 0o700)
        os.chmod(place, mode)

    def _put_file(self, path: str, source: str, sha256: str, mode: int) -> None:
        place = self._at(path)
        copy = self._was["files"].get(path)
        with suppress(FileNotFoundError):
            found = os.lstat(place)
            known = copy is not None and _signature(found) == copy["signature"]
            if stat.S_ISREG(found.st_mode) and (copy["sha256"] if known and copy else _content(place)) == sha256:
                if stat.S_IMODE(found.st_mode) != mode:
                    os.chmod(place, mode)
                return
            if not (stat.S_ISREG(found.st_mode) and self._is_ours(path)):  # a file of dtctl's is replaced at once
                self._clear(path)
        part = os.path.join(os.path.dirname(self._tree), "part")
        with suppress(FileNotFoundError):
            os.unlink(part)
        _copy(source, part, mode)
        os.rename(part, place)

    def _put_link(self, path: str, target: str) -> None:
        place = self._at(path)
        if os.path.lexists(place):
            if os.path.islink(place) and os.readlink(place) == target:
                return
            self._clear(path)
        os.symlink(target, place)

    def _clear(self, path: str) -> None:
        """Clears a path: removes a file of dtctl, moves one of a trainer aside."""
        place = self._at(path)
        if self._is_ours(path):
            os.unlink(place)
            return
        aside = name = "%s.written-%s" % (place, time.strftime("%Y%m%d-%H%M%S", time.gmtime()))
        number = 1
        while os.path.lexists(aside):
            number += 1
            aside = "%s-%d" % (name, number)
        os.rename(place, aside)
        self._aside.append(aside)

    def _at(self, path: str) -> str:
        return os.path.join(self._tree, path)


def _both(was: Code, now: Code) -> Code:
    """The record during a change: each entry may be as in either code."""
    return {
        **now,
        "run": None,
        "files": {**was["files"], **now["files"]},
        "links": {**was["links"], **now["links"]},
        "dirs": sorted({*was["dirs"], *now["dirs"]}),
    }


def _signature(found: os.stat_result) -> str:
    return " ".join(map(str, signature(found)))


def _content(place: str) -> Optional[str]:
    try:
        return file_sha256(place)
    except OSError:
        return None


def _copy(source: str, target: str, mode: int) -> None:
    """Copies by the kernel, which on some file systems shares the blocks; never through a link."""
    with files.opened(source) as reads, files.opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as writes:
        _pour(reads, writes)
        os.fchmod(writes, mode)


def _pour(reads: int, writes: int) -> None:
    with suppress(OSError):  # not between these file systems, or not by this kernel; a full disk is reported below
        while os.copy_file_range(reads, writes, _CHUNK):
            pass
    while True:
        block = os.read(reads, 1 << 20)
        if not block:
            return
        write_all(writes, block)
