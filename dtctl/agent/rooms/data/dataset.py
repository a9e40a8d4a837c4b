"""A data set: the files of a bundle in a directory of the user's, where trainers read them.

data/KEY/place.json       the path of that directory, and its files that others had put there before
data/KEY/BUNDLE.json      the manifest, also of an interrupted push
data/KEY/stats.json       as of a bundle (tree.py)
DIR/.dtctl-incoming/      during a push: its lock, and arriving files, on the disk of their final place
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import contextmanager, suppress

from ...bundles import blocks, receiver, store
from ...bundles.tree import Manifest, Tree, mode_of, remove_tree, target_of
from ...host import files, locks, paths
from ...host.errors import Refused
from ...records.kinds import made
from ...records.run_state import DataFolder
from .records import DataHeld

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

    from ...conversation import Wire
    from .records import DataDropped, DataPushRequest, DataPushResult
    from .relay import FileServer

_INCOMING = ".dtctl-incoming"
GIVEN_UP_S = 60.0
"""Another push takes over the received files after this long without a byte."""
_MOST_BYTES = 256 * 1024 * 1024
_NAMED = 10


class DataSet:
    """The files that dtctl has put into one directory. Raises OSError."""

    def __init__(self, root: str, directory: str) -> None:
        self.directory = os.path.realpath(directory)
        key = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:32]
        self._base = os.path.join(root, "data", key)
        self._incoming = os.path.join(self.directory, _INCOMING)
        self._place: Optional[DataFolder] = None
        self._manifest: Optional[Manifest] = None
        self._made = False
        self._load()

    def _load(self) -> None:
        try:
            self._place = paths.read_record(os.path.join(self._base, "place.json"), DataFolder, _MOST_BYTES)
        except paths.Damaged:  # no file is known to be dtctl's then
            self._place = None
        bundle = self.bundle
        self._manifest = None if bundle is None else Manifest.load(self._manifest_path(bundle), bundle)

    @property
    def bundle(self) -> Optional[str]:
        return None if self._place is None else self._place["bundle"]

    def _manifest_path(self, bundle: str) -> str:
        return os.path.join(self._base, bundle + ".json")

    def _tree(self, manifest: Manifest, alive: Callable[[int], None]) -> Tree:
        return Tree(self._base, manifest, root=self.directory, what="the data", alive=alive)

    def _ours(self) -> Set[str]:
        if self._place is None or self._manifest is None:
            return set()
        every = {*self._manifest.paths(), *(path for path, _ in self._manifest.dirs)}
        return every.difference(self._place["of_others"])

    def held(self, asked: str, verify: Optional[Callable[[int], None]] = None) -> DataHeld:
        """Its state by sizes and times; with `verify`, which is called for each MiB, by the files' contents."""
        answer = made(DataHeld, dir=asked, there=os.path.isdir(self.directory))
        if self._manifest is None:
            return answer
        tree = self._tree(self._manifest, verify or (lambda size: None))
        if verify is not None:
            tree.forget()
        answer["bundle"], answer["files"] = self.bundle, len(self._manifest.files)
        for index, (path, _, size, _) in enumerate(self._manifest.files):
            answer["size_bytes"] += size
            found = tree.condition(index)
            if found and verify is not None:
                found = tree.is_right(index)
            if not found:
                answer["changed" if found is False else "missing"] += 1
                answer["missing_bytes"] += size if found is None else 0
                answer["examples"] += [path][: _NAMED - len(answer["examples"])]
        if verify is not None:
            tree.remember()
        return answer

    def push(self, request: DataPushRequest, wire: Wire, refuse_live: Callable[[], None]) -> DataPushResult:
        """Puts the bundle into the directory. `refuse_live` is called before the first change."""
        self._make_directories()
        manifest, text = self._manifest, b""
        if manifest is None or self.bundle != request["bundle"]:
            text = receiver.receive_manifest(wire)
            manifest = Manifest.parse(text, request["bundle"])
        tree = self._tree(manifest, lambda size: None)
        lacking = tree.damaged()
        removed = sent = 0
        relay: Optional[FileServer] = None
        if not lacking and not self._stale(manifest) and tree.has_its_shape():
            self._keep(request["bundle"], text, _refuse_other(tree, lacking, self._ours(), overwrite=True))
            relay = _relay(tree, lacking, request)
        else:
            refuse_live()
            tree.remember()  # so that it is not hashed again
            with self._turn() as lock:
                self._load()  # another session may have pushed since
                tree = self._tree(manifest, lambda size: None if lock is None else locks.show_life(lock))
                lacking = tree.damaged()
                of_others = _refuse_other(tree, lacking, self._ours(), overwrite=request["overwrite"])
                removed = self._remove(self._stale(manifest))[0]
                self._keep(request["bundle"], text, of_others)
                relay = _relay(tree, lacking, request)
                sent = self._fill(tree, lacking, wire, lock, relay)
        tree.remember()
        found = len(self._of_others(tree))
        return {
            "bundle": request["bundle"],
            "sent_files": sent,
            "found_files": found,
            "removed_files": removed,
            "port": None if relay is None else relay.port,
        }

    def _make_directories(self) -> None:
        self._made = not os.path.isdir(self.directory)
        os.makedirs(self.directory, exist_ok=True)
        paths.make_directory(self._base)

    def _stale(self, manifest: Manifest) -> Set[str]:
        """The paths of an earlier push that are not in this one."""
        dirs = (path for path, _ in manifest.dirs)
        return self._ours().difference(manifest.paths(), dirs)

    def _keep(self, bundle: str, text: bytes, of_others: Set[str]) -> None:
        """Writes down what is about to be put there."""
        before, was_made = self.bundle, self._place["made"] if self._place is not None else self._made
        if text:
            paths.write_text(self._manifest_path(bundle), text.decode("ascii"))
        folder: DataFolder = {
            "dir": self.directory,
            "bundle": bundle,
            "made": was_made,
            "of_others": sorted(of_others),
        }
        paths.write_json(os.path.join(self._base, "place.json"), folder)
        self._place = folder
        if before not in (None, bundle):
            with suppress(FileNotFoundError):
                os.unlink(self._manifest_path(str(before)))

    @contextmanager
    def _turn(self) -> Iterator[Optional[int]]:
        """Waits until it is alone in the directory, which hosts may share. Parts of an interrupted push stay in it.

        None: its holder has been silent for long. Its connection is cut, and its host has not noticed.
        """
        place = os.path.join(self._incoming, "lock")
        lock: Optional[int] = None
        while True:
            paths.make_directory(self._incoming)
            _refuse_others(self._incoming)
            with suppress(FileNotFoundError):  # its holder has removed it just now
                lock = locks.wait_turn(place, done=lambda: False)
                if lock is not None or time.time() - paths.modified(place) > GIVEN_UP_S:
                    break
        try:
            yield lock
        finally:
            if paths.entries(self._incoming) == ["lock"]:
                with suppress(OSError):
                    os.unlink(place)
                _remove_if_empty(self._incoming)
            if lock is not None:
                os.close(lock)

    def _fill(
        self, tree: Tree, lacking: List[int], wire: Wire, lock: Optional[int], relay: Optional[FileServer]
    ) -> int:
        store.remove_abandoned(self._incoming)
        if lock is None:  # the files of the silent holder, which writes only valid contents
            for name in paths.entries(self._incoming):
                blocks.keep(self._incoming, os.path.join(self._incoming, name))
        try:
            with store.Incoming(self._incoming) as staging:
                sources = receiver.Sources([])
                sent = receiver.Filling(tree, sources, staging.path, wire, lock, relay).fill(lacking)
        except BaseException:
            tree.remember()  # received blocks are not hashed again
            raise
        for name in paths.entries(self._incoming):
            if name.startswith("." + blocks.PARTIAL):  # of a file that the data set no longer has
                os.unlink(os.path.join(self._incoming, name))
        return sent

    def drop(self, asked: str) -> DataDropped:
        """Removes what was put there and is unchanged, and forgets the rest."""
        answer: DataDropped = {"dir": asked, "removed_files": 0, "freed_bytes": 0, "kept_files": 0}
        if self._place is not None and os.path.isdir(self.directory):
            with self._turn():
                answer["removed_files"], answer["freed_bytes"], answer["kept_files"] = self._remove(self._ours())
                for name in paths.entries(self._incoming):
                    if name.startswith("." + blocks.PARTIAL):
                        os.unlink(os.path.join(self._incoming, name))
            if self._place["made"]:
                _remove_if_empty(self.directory)
        remove_tree(self._base)
        return answer

    def _remove(self, wanted: Set[str]) -> Tuple[int, int, int]:
        """Removes unchanged files, links, and directories that are then empty; returns files, bytes, and remaining
        files.

        No link that others have put in the place of a directory is followed.
        """
        manifest = self._manifest
        if manifest is None:
            return 0, 0, 0
        tree = self._tree(manifest, lambda size: None)
        real = {""}
        for path, _ in manifest.dirs:  # a directory comes before its contents
            if os.path.dirname(path) in real and mode_of(tree.place(path)) is not None:
                real.add(path)
        removed = freed = kept = 0
        for index, (path, _, size, _) in enumerate(manifest.files):
            if path in wanted and os.path.dirname(path) in real and tree.condition(index) is not None:
                if tree.is_right(index):
                    os.unlink(tree.place(path))
                    removed, freed = removed + 1, freed + size
                else:
                    kept += 1
        for path, target in manifest.links:
            if path in wanted and os.path.dirname(path) in real and target_of(tree.place(path)) == target:
                os.unlink(tree.place(path))
        for path, _ in reversed(manifest.dirs):
            if path in wanted and path in real:
                _remove_if_empty(tree.place(path))
        return removed, freed, kept + len(self._of_others(tree))

    def _of_others(self, tree: Tree) -> List[str]:
        """Files of the data set that others had put there."""
        others = set(self._place["of_others"] if self._place is not None else ())
        return [path for path, *_ in tree.manifest.files if path in others and os.path.lexists(tree.place(path))]


def _relay(tree: Tree, lacking: List[int], request: DataPushRequest) -> Optional[FileServer]:
    """The relay, which serves until the conversation ends, and this process with it."""
    if request["credentials"] is None:
        return None
    from .relay import FileServer

    return FileServer(tree, lacking, request["credentials"], request["ports"])


def _refuse_other(tree: Tree, lacking: List[int], ours: Set[str], *, overwrite: bool) -> Set[str]:
    """Intact paths of the tree that others have put there. Raises Refused for conflicting ones."""
    manifest = tree.manifest
    wrong = {manifest.files[index][0] for index in lacking}
    right: Dict[str, bool] = {path: path not in wrong for path, *_ in manifest.files}
    right.update((path, target_of(tree.place(path)) == target) for path, target in manifest.links)
    right.update((path, mode_of(tree.place(path)) is not None) for path, _ in manifest.dirs)
    there = [path for path in right if path not in ours and os.path.lexists(tree.place(path))]
    in_the_way = sorted(path for path in there if not right[path])
    if in_the_way and not overwrite:
        raise _in_the_way(in_the_way, tree.root)
    return {path for path in there if right[path]}


def _in_the_way(found: List[str], directory: str) -> Refused:
    more = " and %d more" % (len(found) - _NAMED) if len(found) > _NAMED else ""
    what = "1 file of the data set is" if len(found) == 1 else "%d files of the data set are" % len(found)
    return Refused(
        "data_in_the_way",
        "%s in %s already, and not as pushed" % (what, directory),
        "%s%s" % (", ".join(found[:_NAMED]), more),
        "move them away, or take another directory (dirs.data); dtctl data push --overwrite    replaces them",
    )


def _refuse_others(directory: str) -> None:
    """Refuses a directory that is a link or belongs to another user: others may write to its parent."""
    with suppress(FileNotFoundError):
        found = os.lstat(directory)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise files.Unfit(directory, "is a link, or belongs to another user")


def _remove_if_empty(directory: str) -> None:
    with suppress(OSError):
        os.rmdir(directory)
