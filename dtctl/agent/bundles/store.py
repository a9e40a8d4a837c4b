"""The pushed training code on this host: received once, verified before every start (docs/agent.md, "Bundles").

bundles/ID/               complete: it came into place by one rename
bundles/ID.lock           shared by the sessions that need the bundle, exclusive while it is received or removed
bundles/.incoming-*/      work of one session: `lock`, held as long as it lives, and what it has received so far
bundles/.partial-SHA256   what a session that was cut off has received of a large file, for a day
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import ExitStack, suppress

from ..host import locks
from ..host.errors import from_os_error
from ..host.files import private
from ..host.paths import entries, make_directory, modified
from . import blocks, receiver
from .tree import Manifest, Tree, is_bundle_id, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

    from ..conversation import Conversation, Wire
    from ..records.answers import PushResult
    from ..records.requests import PushRequest


_in_use: Dict[str, int] = {}
"""Lock files of the bundles that this process has prepared, with descriptors: while it lives they are not pruned."""


def push(talk: Conversation, request: PushRequest) -> PushResult:
    with talk.at("bundle"):
        return {"bundle": request["bundle"], "sent_files": obtain(talk.root, request["bundle"], talk.wire)[1]}


def ensure(root: str, bundle_id: str, wire: Wire) -> str:
    """The directory of the bundle's tree, complete and according to its manifest. Raises Refused, Gone."""
    return obtain(root, bundle_id, wire)[0]


def obtain(root: str, bundle_id: str, wire: Wire) -> Tuple[str, int]:
    """Does what `ensure` does, and also returns how many files the controller had to send."""
    store = os.path.join(root, "bundles")
    base = os.path.join(store, bundle_id)
    received = 0
    try:
        make_directory(store)
        remove_abandoned(store)
        while True:
            if _is_complete(base):
                _use(base)
                manifest = _load(base)
                if manifest is not None:
                    return os.path.join(base, "tree"), received + _repair(store, base, manifest, wire)
            _release(base)
            sent, is_new = _receive(store, bundle_id, wire)
            received += sent
            if is_new:
                _use(base)
                if _is_complete(base):  # not pruned since; every file was checked as it arrived
                    return os.path.join(base, "tree"), received
    except OSError as error:
        raise from_os_error(error, "store the bundle") from error


def prune(root: str, keep: set[str], before: Callable[[], None] = lambda: None) -> None:
    """Removes the bundles that are neither in `keep` nor being prepared. `before` is called before each of them."""
    store = os.path.join(root, "bundles")
    remove_abandoned(store)
    for base in unneeded(root, keep):
        before()
        try:
            with Incoming(store) as incoming:
                os.rename(base, os.path.join(incoming.path, "bundle"))
            os.unlink(base + ".lock")
        except FileNotFoundError:
            continue  # another process has removed it
        except OSError as error:
            raise from_os_error(error, "remove a bundle") from error


def unneeded(root: str, keep: set[str]) -> Iterator[str]:
    """The bundles that are neither in `keep` nor being prepared. Each is locked until the next one is requested."""
    store = os.path.join(root, "bundles")
    for name in entries(store):
        if not is_bundle_id(name) or name in keep:
            continue
        base = os.path.join(store, name)
        _release(base)
        with suppress(FileNotFoundError), locks.alone(base + ".lock", create=True) as alone:  # removed concurrently
            if alone:
                yield base


def _receive(store: str, bundle_id: str, wire: Wire) -> Tuple[int, bool]:
    """The whole bundle, unless another session that is at it already gets done first.

    Returns how many files had to be sent, and whether it is in its place as it was received.
    """
    base = os.path.join(store, bundle_id)
    with locks.closing(locks.wait_turn(base + ".lock", done=lambda: _is_complete(base))) as lock:
        if _load(base) is not None:
            return 0, False
        with Incoming(store) as incoming:
            manifest_text = receiver.receive_manifest(wire)
            manifest = Manifest.parse(manifest_text, bundle_id)
            new_base = os.path.join(incoming.path, "bundle")
            os.mkdir(new_base, 0o700)
            tree = Tree(new_base, manifest, fresh=True)
            sources = receiver.Sources(_others(store, bundle_id))
            received = receiver.Filling(tree, sources, incoming.path, wire, lock).fill([*range(len(manifest.files))])
            tree.remember()
            with open(os.path.join(new_base, "manifest.json"), "xb", opener=private) as file:
                file.write(manifest_text)
            return received, _move_into_place(new_base, base)


def _repair(store: str, base: str, manifest: Manifest, wire: Wire) -> int:
    """Restores what was changed or lost in a complete bundle; returns how many files had to be sent."""
    tree = Tree(base, manifest)
    received = 0
    if tree.damaged() or not tree.has_its_shape():
        with Incoming(store) as incoming:
            sources = receiver.Sources(_others(store, os.path.basename(base)))
            tree.shape()  # first: files that are reached through what must go do not count
            received = receiver.Filling(tree, sources, incoming.path, wire, None).fill(tree.damaged())
    tree.remember()
    return received


def _move_into_place(new_base: str, base: str) -> bool:
    """Keeps a bundle that is there already; if it had lost its manifest, it is repaired where it is."""
    try:
        os.rename(new_base, base)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        os.rename(os.path.join(new_base, "manifest.json"), os.path.join(base, "manifest.json"))
        return False
    return True


def _is_complete(base: str) -> bool:
    """Whether a bundle looks complete; its manifest may still be damaged."""
    return os.path.exists(os.path.join(base, "manifest.json"))


def _load(base: str) -> Optional[Manifest]:
    """The manifest of a complete bundle; None when there is none that can be accepted."""
    return Manifest.load(os.path.join(base, "manifest.json"), os.path.basename(base))


def _others(store: str, bundle_id: str) -> List[str]:
    """The other bundles here, the newest first."""
    found = [os.path.join(store, name) for name in entries(store) if is_bundle_id(name) and name != bundle_id]
    return sorted(found, key=modified, reverse=True)


def _use(base: str) -> None:
    """Protects the bundle from pruning until this process ends."""
    path = base + ".lock"
    if path not in _in_use:
        descriptor = locks.share(path)
        if descriptor is not None:
            _in_use[path] = descriptor


def _release(base: str) -> None:
    descriptor = _in_use.pop(base + ".lock", None)
    if descriptor is not None:
        os.close(descriptor)


_PREFIX = ".incoming-"
_ORPHAN_S = 24 * 3600.0


class Incoming:
    """A directory below `bundles/` for this session alone; removed at the end with what is still in it, but `blocks`
    keeps what has arrived of large files."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._lock: Optional[int] = None
        self.path = ""

    def __enter__(self) -> Incoming:
        while not self._take(os.path.join(self._store, _PREFIX + os.urandom(8).hex())):
            pass  # another session took the new directory for an abandoned one before it was locked
        return self

    def _take(self, path: str) -> bool:
        os.mkdir(path, 0o700)
        try:
            self._lock = locks.hold(os.path.join(path, "lock"), exclusive=True)
        except FileNotFoundError:
            return False
        self.path = path
        return self._lock is not None

    def __exit__(self, *_: Any) -> None:
        blocks.keep(self._store, self.path)
        remove_tree(self.path)
        if self._lock is not None:
            os.close(self._lock)


def remove_abandoned(store: str) -> None:
    """Removes what sessions that were killed have left behind."""
    for path in abandoned(store):
        with suppress(OSError):  # its session is faster, or it is another user's
            blocks.keep(store, path)
            remove_tree(path)
    for name in entries(store):
        path = os.path.join(store, name)
        if name.startswith("." + blocks.PARTIAL) and time.time() - modified(path) > _ORPHAN_S:
            with suppress(OSError):
                os.unlink(path)


def abandoned(store: str) -> Iterator[str]:
    """Directories into which no session receives any more.

    Each is locked, if possible, until the next one is requested.
    """
    for name in entries(store):
        if name.startswith(_PREFIX):
            path = os.path.join(store, name)
            with ExitStack() as stack:
                alone = False
                with suppress(FileNotFoundError):  # it is about to be locked, or almost removed
                    alone = stack.enter_context(locks.alone(os.path.join(path, "lock")))
                if alone or time.time() - modified(path) > _ORPHAN_S:
                    yield path
