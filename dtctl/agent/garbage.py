"""gc: finds and removes what is provably dtctl's own and of no use to anybody any more.

Each kind has a lock, or an age, that keeps it from a session that is at work right now: runs and the directories of
clusters the lock of the cluster, bundles and programs their own, and what is half made is older than any making takes.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import chain

from . import bundle_incoming, bundles, file_locks, old_runs, paths, programs, reboot, runs, stop, strays
from .bundle_manifest import is_bundle_id
from .bundle_tree import remove_tree
from .conversation import field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Mapping, Optional, Set

    from .conversation import Conversation

HALF_MADE_S = 3600.0
"""A run directory is made within milliseconds; one that has no spec after so long never will."""


def collect(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Of one cluster, or of `all`; what belongs to no cluster is looked for in any case."""
    cluster = None if request.get("all") else field(request, "cluster", str)
    sweep = _Sweep(talk, bool(request.get("dry_run")))
    sweep.end_strays(cluster)
    sweep.remove_runs(cluster)
    sweep.remove_files()
    sweep.remove_bundles()
    if not sweep.dry_run:
        reboot.withdraw(talk.root)
    return sweep.result


class _Sweep:
    """Removes, or with `dry_run` only tells."""

    def __init__(self, talk: Conversation, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.result: Dict[str, Any] = {
            "dry_run": dry_run,
            "processes": [],
            "survivors": [],
            "runs": [],
            "bundles": [],
            "files": [],
            "freed_bytes": 0,
        }
        self._talk = talk
        self._gone: Set[str] = set()
        """Directories of the runs that are removed, or would be."""

    def end_strays(self, cluster: Optional[str]) -> None:
        found = [stray for stray in strays.find(self._talk.root) if cluster in (None, stray.cluster)]
        left = [] if self.dry_run else strays.end(found)
        for stray in found:
            told = {"pid": stray.process.pid, "command": stray.command, "run": stray.run}
            self.result["survivors" if stray in left else "processes"].append(told)

    def remove_runs(self, cluster: Optional[str]) -> None:
        for run, reason in old_runs.expired_here(self._talk, cluster, time.time()):
            size = paths.used_bytes(run.files.directory)
            if self.dry_run or self._remove_run(run):
                told = {"run": run.id, "cluster": run.spec["cluster"], "host": run.spec["host"], "reason": reason}
                self.result["runs"].append(told)
                self.result["freed_bytes"] += size
                self._gone.add(run.files.directory)

    def _remove_run(self, run: runs.Run) -> bool:
        directory = paths.cluster_directory(self._talk.root, run.spec["cluster"], run.spec["host"])
        lock = stop.try_cluster_lock(directory)
        if lock is None:
            return False  # a controller is at work on that cluster, and will see to it
        try:
            return old_runs.remove(run)
        finally:
            os.close(lock)

    def remove_bundles(self) -> None:
        here = [run for run in runs.every(self._talk) if run.files.directory not in self._gone]
        used = {str(run.spec["bundle"]) for run in here if run.spec["bundle"]}
        found = [base for base, written in bundles.unneeded(self._talk.root, used) if not written]
        sizes = {base: paths.used_bytes(base) for base in found}
        if not self.dry_run:
            bundles.prune(self._talk.root, used)
        for base in found:
            if self.dry_run or not os.path.lexists(base):
                self.result["bundles"].append(os.path.basename(base))
                self.result["freed_bytes"] += sizes[base]

    def remove_files(self) -> None:
        root, now = self._talk.root, time.time()
        store = os.path.join(root, "bundles")
        for path in chain(
            bundle_incoming.abandoned(store),
            _bundle_locks(store),
            programs.unused(root, now),
            _half_made(root, now),
            self._idle_clusters(),
        ):
            self._remove(path)

    def _idle_clusters(self) -> Iterator[str]:
        """Directories, and before them the files, of clusters that have no run here. Setups are remembered."""
        clusters = os.path.join(self._talk.root, "clusters")
        for cluster in paths.entries(clusters):
            for host in paths.entries(os.path.join(clusters, cluster)):
                directory = os.path.join(clusters, cluster, host)
                with suppress(FileNotFoundError):
                    lock = file_locks.hold(os.path.join(directory, "lock"), exclusive=True, create=False, certain=True)
                    if lock is not None:
                        try:
                            yield from self._of_idle_cluster(cluster, host, directory)
                        finally:
                            os.close(lock)

    def _of_idle_cluster(self, cluster: str, host: str, directory: str) -> Iterator[str]:
        here = [run for run in runs.every(self._talk, cluster) if run.files.directory not in self._gone]
        if host not in [run.spec["host"] for run in here]:
            yield from (os.path.join(directory, name) for name in ("current", "lock") if name in os.listdir(directory))
            for empty in (directory, os.path.dirname(directory)):
                if not os.listdir(empty):
                    yield empty

    def _remove(self, path: str) -> None:
        size = paths.used_bytes(path)
        if not self.dry_run:
            with suppress(OSError):  # in use after all, as a directory that has been written to just now
                if os.path.isdir(path) and not os.path.islink(path):
                    remove_tree(path)
                else:
                    os.unlink(path)
        if self.dry_run or not os.path.lexists(path):
            self.result["files"].append(path)
            self.result["freed_bytes"] += size


def _bundle_locks(store: str) -> Iterator[str]:
    """Locks of bundles that are not there: each is held until the next one is asked for."""
    for name in paths.entries(store):
        bundle, extension = os.path.splitext(name)
        if extension == ".lock" and is_bundle_id(bundle):
            path = os.path.join(store, name)
            with suppress(FileNotFoundError):
                lock = file_locks.hold(path, exclusive=True, create=False, certain=True)
                if lock is not None:
                    try:
                        if not os.path.lexists(os.path.join(store, bundle)):
                            yield path
                    finally:
                        os.close(lock)


def _half_made(root: str, now: float) -> Iterator[str]:
    """Directories of runs whose making, or whose removal, has not come to its end."""
    store = os.path.join(root, "runs")
    for run in paths.entries(store):
        if run.startswith(old_runs.REMOVED):
            yield os.path.join(store, run)
            continue
        parts = [os.path.join(store, run, host) for host in paths.entries(os.path.join(store, run))]
        for path in [*parts, *([] if parts else [os.path.join(store, run)])]:
            if not os.path.exists(os.path.join(path, "spec.json")) and now - paths.modified(path) > HALF_MADE_S:
                yield path
