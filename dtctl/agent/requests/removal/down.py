"""down: ends what a host has of a cluster's runs, and removes it."""

from __future__ import annotations

from ...bundles import store
from ...host import paths
from ...records.answers import MOST_CLUSTERS, MOST_PROCESSES, MOST_RUNS
from ...records.reasons import because, fact
from ...records.words import MOST_TASKS
from ...survival import reboot
from .. import cluster_lock, runs, stop
from . import damaged_runs, old_runs, orphans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ...protocol.conversation import Conversation
    from ...records.answers import DownResult, Written
    from ...records.requests import DownRequest
    from ...records.run_state import How


def down(talk: Conversation, request: DownRequest) -> DownResult:
    """Stops the named run, or all of the cluster on this host, and removes its files and the bundles that no run uses.

    A run of which something survives keeps its files.
    """
    how: How = {
        "by": request["by"],
        "grace_s": request["grace_s"],
        **because([fact("taken_down", by=request["by"])]),
    }
    lock = cluster_lock.hold(talk, request, request["by"])
    try:
        damaged = damaged_runs.of_cluster(talk, request["cluster"], request["host"], request["run"])
        removal = _Removal(talk)
        for run in _to_remove(talk, request, [run.directory for run in damaged]):
            removal.remove(run, how)
        for each in sorted(damaged, key=lambda run: run.unread is not None):
            removal.remove_damaged(each, how)
        reboot.withdraw(talk.root)
        with talk.at("bundles"):
            removal.keep(store.prune(talk.root, runs.used_bundles(talk)), request["cluster"])
        with talk.at("working directory"):
            written = old_runs.clear_working_directory(talk, request["cluster"])[1]
            removal.keep([written] if written is not None else [], request["cluster"])
        return removal.told()
    finally:
        lock.release()


class _Removal:
    """What `down` has done so far."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self.result: DownResult = {
            "stopped": [],
            "killed": {},
            "already": [],
            "survivors": [],
            "omitted": 0,
            "removed": [],
            "kept": [],
        }

    def remove(self, run: runs.Run, how: How) -> None:
        ended = stop.stop_run(run, how, self._talk)
        self.result["stopped"] += ended["stopped"]
        self.result["killed"].update(ended["killed"])
        self.result["already"] += ended["already"]
        self.result["survivors"] += ended["survivors"]
        self.result["omitted"] += ended["omitted"]
        if not ended["survivors"]:
            run.remove()
            self.result["removed"].append(run.id)

    def remove_damaged(self, run: damaged_runs.DamagedRun, how: How) -> None:
        """One that no agent can be asked to stop. Raises OSError where its files may be whole, and stay."""
        left = run.end(orphans.GRACE_S if how["grace_s"] is None else how["grace_s"])
        for orphan in left:
            self.result["survivors"].append({"task": None, "pid": orphan.process.pid, "command": orphan.command})
        if run.unread is not None:
            raise run.unread
        if run.is_dead():
            run.remove()
            self.result["removed"].append(run.id)

    def keep(self, written: List[Written], cluster: str) -> None:
        """Of other clusters their own `down` tells, or `gc`."""
        self.result["kept"] += [one for one in written if one["cluster"] in (cluster, None)]

    def told(self) -> DownResult:
        survivors = self.result["survivors"]
        self.result["omitted"] += max(0, len(survivors) - MOST_PROCESSES)
        del survivors[MOST_PROCESSES:]
        del self.result["stopped"][MOST_TASKS:], self.result["already"][MOST_TASKS:]
        self.result["killed"] = {task: s for task, s in self.result["killed"].items() if task in self.result["stopped"]}
        del self.result["removed"][MOST_RUNS:], self.result["kept"][MOST_CLUSTERS:]
        return self.result


def _to_remove(talk: Conversation, request: DownRequest, damaged: List[str]) -> List[runs.Run]:
    """But for those in the directories `damaged`."""
    cluster, host, named = request["cluster"], request["host"], request["run"]
    if named is not None:
        if paths.run_directory(talk.root, named, host) in damaged:
            return []
        found = runs.find(talk, cluster, host, named)
        return [found] if found is not None else []
    here = [run for run in runs.every(talk, cluster) if run.spec["host"] == host]
    return [run for run in here if run.files.directory not in damaged]
