"""The directory that a cluster's trainers work in: a copy of the pushed code, and beside it what they write.

work/CLUSTER/tree/...     the working directory; one for all hosts and runs of the cluster below this root
work/CLUSTER/code.json    what in it was copied, so that it can be told from what trainers have written
work/CLUSTER/lock         shared by sessions that are about to start a run, exclusive to clear the directory away
work/CLUSTER/turn         exclusive to change it

A copy, and not links into the bundle: Python takes the directory of a script, and of what it imports, from where a link
leads to, so that what programs write beside their own files would end up in the bundle.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress

from ..host import locks, paths
from ..host.errors import from_os_error
from ..records.kinds import made
from ..records.working import Code
from .laying import Change, Ours, Source
from .tree import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Optional, Tuple

    from ..records.answers import Written

_MOST_BYTES = 256 * 1024 * 1024

_claimed: Dict[str, int] = {}
"""Locks of the directories that this process has laid out: nobody clears them away while it lives."""


def lay_out(root: str, cluster: str, run: str, bundle: str) -> List[str]:
    """Brings the directory to this bundle, once for a run; returns where files of trainers were moved to.

    Files of the last code that the new one lacks go, what trainers have written stays. Where they have written to a
    pushed file, or one is pushed where they have written, the pushed one wins, and theirs is moved aside.
    """
    place = _Place(root, cluster)
    try:
        place.claim()
        with place.turn() as alive:
            code = place.code()
            if code["run"] == run and code["bundle"] == bundle:
                return []  # by another host of the inventory that has the same directory
            return Change(place.tree, code, place.keep, alive).bring_to(run, bundle, Source.of(root, bundle))
    except OSError as error:
        raise from_os_error(error, "copy the code into the working directory") from error


def clear(root: str, cluster: str, dry_run: bool = False) -> Tuple[int, Optional[Written]]:
    """Takes the code away again, and the directory too if trainers have written nothing.

    Returns the bytes that this sets free, and what is left. For a cluster without a run here; a directory that a
    session is about to use is left alone.
    """
    place = _Place(root, cluster)
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
    """With what trainers have written; False when a session is about to use it."""
    place = _Place(root, cluster)
    with place.alone() as alone:
        if alone:
            remove_tree(place.base)
        return alone


def directory(root: str, cluster: str) -> str:
    """All that is kept of it, locks too."""
    return os.path.dirname(paths.working_directory(root, cluster))


def clusters(root: str) -> List[str]:
    """Those that have a working directory here."""
    return [name for name in paths.entries(os.path.join(root, "work")) if paths.is_component(name)]


class _Place:
    """The paths and locks of one cluster's directory."""

    def __init__(self, root: str, cluster: str) -> None:
        self.base = directory(root, cluster)
        self.tree = paths.working_directory(root, cluster)

    def code(self) -> Code:
        """code.json. A damaged one is as good as none: then a pushed file is known by its content alone."""
        try:
            found = paths.read_record(self._path("code.json"), Code, _MOST_BYTES)
        except (OSError, paths.Damaged):
            found = None
        return found or made(Code, id=os.urandom(16).hex())

    def keep(self, code: Code) -> None:
        paths.write_json(self._path("code.json"), code)

    def claim(self) -> None:
        """Until this process ends."""
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
        """Gives what shows those who wait that somebody is at work."""
        lock = locks.wait_turn(self._path("turn"), done=lambda: False)
        try:
            yield lambda: None if lock is None else locks.show_life(lock)
        finally:
            if lock is not None:
                os.close(lock)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody is about to use it; nobody will, until it is left."""
        held = _claimed.pop(self._path("lock"), None)
        if held is not None:
            os.close(held)
        try:
            lock = locks.hold(self._path("lock"), exclusive=True, create=False, certain=True)
        except FileNotFoundError:
            lock = None
        try:
            yield lock is not None
        finally:
            if lock is not None:
                os.close(lock)

    def _path(self, name: str) -> str:
        return os.path.join(self.base, name)
