"""gc: finds and removes files and processes that are provably dtctl's own and unused.

Each kind has a lock, or an age, that protects it from an active session: runs and the directories of clusters the lock
of the cluster, bundles and programs their own, and incomplete files are older than any creation takes.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial
from itertools import chain

from ..bundles import store, working
from ..bundles.tree import is_bundle_id, remove_tree
from ..host import locks, paths, programs
from ..records.answers import PhaseProgress
from ..records.gc import DeadRun, GcResult, Orphan
from ..records.kinds import made
from ..records.reasons import because, fact
from ..records.values import MOST_CLUSTERS, MOST_FILES, MOST_PROCESSES, MOST_RUNS
from ..run import environments
from ..run.runfiles import NEW, REMOVED
from ..survival import reboot
from . import cluster_lock, damaged_runs, down, forkserver, orphans, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, List, Literal, Optional, Set, TypeVar

    from ..conversation import Conversation
    from ..records.gc import GcRequest
    from ..records.reasons import Fact

    T = TypeVar("T")

REPORT_S = 1.0

HALF_MADE_S = 3600.0
"""A run directory is created within milliseconds; one that is incomplete after this long stays so."""


def collect(talk: Conversation, request: GcRequest) -> GcResult:
    """Cleans up one cluster, or `all`; files of no cluster are cleaned up in both cases."""
    sweep = _Sweep(talk, request)
    with talk.at("processes of dead runs"):
        sweep.end_strays()
    with talk.at("runs"):
        sweep.remove_runs()
        sweep.remove_damaged_runs()
    with talk.at("files"):
        sweep.remove_files()
    sweep.report_progress()
    with talk.at("bundles"):
        sweep.remove_bundles()
    with talk.at("environments"):
        sweep.remove_environments()
    with talk.at("working directories"):
        sweep.clear_working_directories()
    if not request["dry_run"]:
        reboot.withdraw(talk.root)
    return sweep.result


class _Sweep:
    """Removes, or with `dry_run` only reports."""

    def __init__(self, talk: Conversation, request: GcRequest) -> None:
        self.result = made(GcResult, dry_run=request["dry_run"])
        self._talk = talk
        self._request = request
        self._dry_run = request["dry_run"]
        self._cluster = None if request["all"] else request["cluster"]
        """The cluster to clean up; None: all."""
        self._next_report = 0.0
        self._gone: Set[str] = set()
        """Directories of the runs that are removed, or would be."""

    def end_strays(self) -> None:
        found = [
            orphan
            for orphan in orphans.find(self._talk.root)
            if self._cluster is None or orphan.cluster in (self._cluster, None)
        ]
        left = [] if self._dry_run else orphans.end(found)
        for orphan in found:
            found_one: Orphan = {"pid": orphan.process.pid, "command": orphan.command, "run": orphan.run}
            self._add(self.result["survivors" if orphan in left else "processes"], found_one, MOST_PROCESSES)

    def remove_runs(self) -> None:
        for run, why in down.expired_here(self._talk, self._cluster, time.time(), self._request["over"]):
            size = paths.used_bytes(run.files.directory)
            if self._dry_run or self._locked(run.spec["cluster"], run.spec["host"], partial(down.remove, run)):
                self._add_run(run.id, run.spec["cluster"], run.spec["host"], why, run.files.directory, size)

    def remove_damaged_runs(self) -> None:
        """Removes damaged runs that are dead. `runs` lists the others, and `down` stops them."""
        for run in damaged_runs.every(self._talk):
            if self._cluster in (None, run.cluster) and run.is_dead():
                size = paths.used_bytes(run.directory)
                if self._dry_run or self._remove_damaged(run):
                    self._add_run(run.id, run.cluster, run.host, fact("said", text=run.problem), run.directory, size)

    def _add_run(self, run: str, cluster: Optional[str], host: str, why: Fact, directory: str, size_bytes: int) -> None:
        run_record: DeadRun = {
            "run": run,
            "cluster": cluster,
            "host": host,
            **because([why]),
            "size_bytes": size_bytes,
        }
        self._add(self.result["runs"], run_record, MOST_RUNS)
        self.report_progress()
        self.result["freed_bytes"] += size_bytes
        self._gone.add(directory)

    def report_progress(self) -> None:
        """Reports progress between steps that may take long; in a file system that hangs, none is reported."""
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + REPORT_S
        self._talk.send("progress", made(PhaseProgress, phase="gc"))

    def _add(self, records: List[T], one: T, most: int) -> None:
        if len(records) < most:
            records.append(one)
        else:
            self.result["omitted"] += 1

    def _remove_damaged(self, run: damaged_runs.DamagedRun) -> bool:
        def remove() -> bool:
            dead = run.is_dead()
            if dead:
                run.remove()
            return dead

        return remove() if run.cluster is None else self._locked(run.cluster, run.host, remove)

    def _locked(self, cluster: str, host: str, remove: Callable[[], bool]) -> bool:
        with locks.closing(cluster_lock.try_hold(paths.cluster_directory(self._talk.root, cluster, host))) as lock:
            return lock is not None and remove()  # else a controller works on that cluster

    def remove_bundles(self) -> None:
        used = runs.used_bundles(self._talk, without=self._gone)
        sizes = {base: paths.used_bytes(base) for base in store.unneeded(self._talk.root, used)}
        if not self._dry_run:
            store.prune(self._talk.root, used, self.report_progress)
        for base, size_bytes in sizes.items():
            if self._dry_run or not os.path.lexists(base):
                self._add(self.result["bundles"], os.path.basename(base), MOST_FILES)
                self.result["freed_bytes"] += size_bytes

    def remove_environments(self) -> None:
        for path in environments.unneeded(
            self._talk.root, lambda: runs.used_environments(self._talk, without=self._gone)
        ):
            if not self._dry_run:
                environments.forget_container(path)
            self._remove(path, "environments" if os.path.isdir(path) else "files")
            self.report_progress()

    def clear_working_directories(self) -> None:
        """Removes, for clusters without a run here, the code, and on request files of trainers."""
        for cluster in working.clusters(self._talk.root):
            self.report_progress()
            if self._cluster in (None, cluster):
                freed, written = down.clear_working_directory(self._talk, cluster, self._gone, self._dry_run)
                self.result["freed_bytes"] += freed
                if freed and written is None:
                    self._add(self.result["files"], working.directory(self._talk.root, cluster), MOST_FILES)
                if written is not None:
                    goes = self._request["written"] and (self._dry_run or working.remove(self._talk.root, cluster))
                    self._add(self.result["written" if goes else "kept"], written, MOST_CLUSTERS)
                    self.result["freed_bytes"] += written["size_bytes"] if goes else 0

    def remove_files(self) -> None:
        root, now = self._talk.root, time.time()
        directory = os.path.join(root, "bundles")
        for path in chain(
            store.abandoned(directory),
            _bundle_locks(directory),
            programs.unused(root, now),
            forkserver.dead(root),
            _half_made(root, now),
            self._idle_clusters(),
        ):
            self._remove(path)
            self.report_progress()

    def _idle_clusters(self) -> Iterator[str]:
        """Directories, and before them the files, of clusters that have no run here. Setups are remembered."""
        clusters = os.path.join(self._talk.root, "clusters")
        for cluster in filter(paths.is_component, paths.entries(clusters)):
            for host in filter(paths.is_component, paths.entries(os.path.join(clusters, cluster))):
                directory = os.path.join(clusters, cluster, host)
                absent = suppress(FileNotFoundError, NotADirectoryError)
                with absent, locks.alone(os.path.join(directory, "lock")) as alone:
                    if alone:
                        yield from self._of_idle_cluster(cluster, host, directory)

    def _of_idle_cluster(self, cluster: str, host: str, directory: str) -> Iterator[str]:
        here = [run.files.directory for run in runs.every(self._talk, cluster)]
        here += [run.directory for run in damaged_runs.every(self._talk) if run.cluster == cluster]
        if host not in [os.path.basename(run) for run in here if run not in self._gone]:
            yield from (
                os.path.join(directory, name)
                for name in ("current", "setup-logs", "lock")
                if name in os.listdir(directory)
            )
            for empty in (directory, os.path.dirname(directory)):
                if not os.listdir(empty):
                    yield empty

    def _remove(self, path: str, kind: Literal["files", "environments"] = "files") -> None:
        size = paths.used_bytes(path)
        if not self._dry_run:
            with suppress(OSError):  # in use after all, as a directory that has been written to just now
                if os.path.isdir(path) and not os.path.islink(path):
                    remove_tree(path)
                else:
                    os.unlink(path)
        if self._dry_run or not os.path.lexists(path):
            self._add(self.result[kind], path, MOST_FILES)
            self.result["freed_bytes"] += size


def _bundle_locks(directory: str) -> Iterator[str]:
    """Locks of bundles that no longer exist; each is held until the next one is requested."""
    for name in paths.entries(directory):
        bundle, extension = os.path.splitext(name)
        if extension == ".lock" and is_bundle_id(bundle):
            path = os.path.join(directory, name)
            with suppress(FileNotFoundError), locks.alone(path) as alone:
                if alone and not os.path.lexists(os.path.join(directory, bundle)):
                    yield path


def _half_made(root: str, now: float) -> Iterator[str]:
    """Directories of runs that were only half made or half removed."""
    directory = os.path.join(root, "runs")
    for run in paths.entries(directory):
        path = os.path.join(directory, run)
        if run.startswith(REMOVED):
            yield path
            continue
        parts = [] if run.startswith(NEW) else [os.path.join(path, host) for host in paths.entries(path)]
        for part in parts or [path]:
            if now - paths.modified(part) > HALF_MADE_S and _is_half_made(root, part):
                yield part


def _is_half_made(root: str, directory: str) -> bool:
    """Whether a run's directory is incomplete. Those of older builds have no `machine`; damaged runs have it."""
    hidden = os.path.basename(directory).startswith(NEW)
    return hidden or not (os.path.exists(os.path.join(directory, "machine")) or orphans.of_directory(root, directory))
