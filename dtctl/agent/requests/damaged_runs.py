"""Runs whose files are damaged or missing.

Such a run answers no request. But its processes are identified by their environment or arguments, and its directory by
its path: that is enough to stop and remove it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import chain

from ..host import locks, paths
from ..records.values import brief
from ..run.runfiles import RunFiles
from ..survival import revival
from . import orphans, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple, Union

    from ..conversation import Conversation
    from ..records import answers


class DamagedRun:
    """`problem`: the damaged file, and its damage. `cluster` is None if it cannot be determined.

    `unread`: why a possibly intact file cannot be read; such a run is not removed.
    """

    def __init__(self, directory: str, cluster: Optional[str], problem: str, unread: Optional[OSError] = None) -> None:
        self.directory = directory
        self.id = os.path.basename(os.path.dirname(directory))
        self.host = os.path.basename(directory)
        self.cluster = cluster
        self.problem = brief(problem)
        self.unread = unread
        self._root = RunFiles(directory).root

    def record(self) -> answers.DamagedRun:
        return {"run": self.id, "host": self.host, "cluster": self.cluster, "problem": self.problem}

    @property
    def is_gone(self) -> bool:
        """Whether only processes are left of it."""
        return not os.path.lexists(self.directory)

    def is_dead(self) -> bool:
        """Whether it was begun on this machine, and no agent, keeper or trainer of it is left."""
        if self.unread is not None:
            return False
        files = RunFiles(self.directory)
        try:
            if self.is_gone:
                return not orphans.of_directory(self._root, self.directory)
            if not files.is_of_this_machine() or orphans.of_directory(self._root, self.directory):
                return False
            with locks.alone(files.lock_path) as alone:
                return alone
        except FileNotFoundError:
            return True
        except OSError:  # another kind of file is in its place
            return False

    def end(self, grace_s: float) -> List[orphans.Orphan]:
        """Ends its processes without reading its files; returns those that survived SIGKILL."""
        revival.retire(RunFiles(self.directory))
        return orphans.end_directory(self._root, self.directory, grace_s)

    def remove(self) -> None:
        """Removes a dead run. The caller holds the lock of its cluster, if it has one."""
        runs.remove(RunFiles(self.directory), self.cluster)


def every(talk: Conversation) -> Iterator[DamagedRun]:
    """All damaged runs that have a directory below the root."""
    return (found for found in _read(talk, None) if isinstance(found, DamagedRun))


def all_of(talk: Conversation) -> List[DamagedRun]:
    """All damaged runs, also those without a directory."""
    return [*every(talk), *_without_files(talk)]


def _without_files(talk: Conversation) -> Iterator[DamagedRun]:
    return (DamagedRun(*found) for found in orphans.without_files(talk.root))


def of_cluster(
    talk: Conversation, cluster: str, host: str, named: Optional[str]
) -> Tuple[List[runs.Run], List[DamagedRun]]:
    """The run that a request names, or, with `named` None, all of a cluster on a host: those that hold, and the others.

    Oldest first. Each is read once. One whose cluster is unknown counts if it is named, or has no files any more.
    """
    whole: List[runs.Run] = []
    damaged: List[DamagedRun] = []
    for found in chain(_read(talk, host), _without_files(talk)):
        if named not in (found.id, None):
            continue
        if isinstance(found, runs.Run):
            whole += [found] if found.spec["cluster"] == cluster else []
        elif found.host == host and (found.cluster == cluster or (found.cluster is None and (named or found.is_gone))):
            damaged.append(found)
    return sorted(whole, key=lambda run: run.spec["created"]), damaged


def _read(talk: Conversation, host: Optional[str]) -> Iterator[Union[runs.Run, DamagedRun]]:
    """The runs that have a directory below the root; `host`: as in runs.every."""
    for directory in runs.run_directories(talk.root, host):
        with suppress(FileNotFoundError):  # removed just now
            yield _inspect(talk, directory)


def _inspect(talk: Conversation, directory: str) -> Union[runs.Run, DamagedRun]:
    cluster = None
    try:
        run = runs.Run(talk, directory)
        cluster = run.spec["cluster"]
        run.state()
        run.intent()
        run.refuse_older()
    except paths.Damaged as damage:
        return DamagedRun(directory, cluster or cluster_of(talk.root, directory), str(damage))
    except FileNotFoundError:
        raise
    except OSError as error:  # no permission, a failing disk, too many open files
        problem = "%s cannot be read: %s" % (error.filename or directory, error.strerror)
        return DamagedRun(directory, cluster or cluster_of(talk.root, directory), problem, error)
    return run


def cluster_of(root: str, directory: str) -> Optional[str]:
    """The cluster whose current run it is."""
    host, run = os.path.basename(directory), os.path.basename(os.path.dirname(directory))
    for cluster in filter(paths.is_component, paths.entries(os.path.join(root, "clusters"))):
        if runs.current(root, cluster, host)[0] == run:
            return cluster
    return None
