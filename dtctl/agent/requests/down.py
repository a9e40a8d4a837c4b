"""down: stops and removes a cluster's runs on a host; and selects old runs to remove."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ..bundles import store, working
from ..host import locks, paths
from ..host.errors import Refused
from ..records.kinds import made
from ..records.reasons import because, fact
from ..records.run_state import How
from ..records.values import MOST_PROCESSES, MOST_RUNS, MOST_TASKS, READ_ONLY
from ..survival import reboot
from . import cluster_lock, damaged_runs, forkserver, orphans, runs, stop, unended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, Iterable, List, Optional, Tuple

    from ..conversation import Conversation
    from ..records.answers import DownResult, Written
    from ..records.reasons import Fact
    from ..records.requests import DownRequest
    from ..records.spec import Spec

    Part = Tuple[str, str]
    Standing = Tuple[Spec, Optional[float], bool]
    """A run on this host: when it ended (None: it is live), and whether it is the cluster's current one."""


def down(talk: Conversation, request: DownRequest) -> DownResult:
    """Stops the named run, or all of the cluster on this host, and removes its files and the bundles that no run uses.

    A run of which something survives keeps its files.
    """
    how = made(How, by=request["by"], grace_s=request["grace_s"], **because([fact("taken_down", by=request["by"])]))
    lock = cluster_lock.hold(talk, request, request["by"])
    try:
        whole, damaged = damaged_runs.of_cluster(talk, request["cluster"], request["host"], request["run"])
        if request["run"] is not None and not (whole or damaged):
            whole = [runs.need(talk, request)]
        removal = _Removal(talk, request["reached"])
        for run in whole:
            try:
                removal.remove(run, how)
            except FileNotFoundError:  # its agent has just heard of the end from another host that waits
                removal.result["removed"].append(run.id)
        for each in sorted(damaged, key=lambda run: run.unread is not None):
            removal.remove_damaged(each, how)
        reboot.withdraw(talk.root)
        forkserver.end(talk.root)
        with talk.at("bundles"):
            store.prune(talk.root, runs.used_bundles(talk))
        with talk.at("working directory"):
            written = clear_working_directory(talk, request["cluster"])[1]
            removal.result["kept"] += [written] if written is not None else []
        return removal.summary()
    finally:
        lock.release()


class _Removal:
    """The progress of `down`."""

    def __init__(self, talk: Conversation, reached: Optional[List[str]]) -> None:
        self._talk = talk
        self._reached = reached
        self.result: DownResult = {
            "stopped": [],
            "killed": {},
            "already": [],
            "survivors": [],
            "omitted": 0,
            "removed": [],
            "kept": [],
            "awaits": {},
            "waits": [],
            "over": [],
        }

    def remove(self, run: runs.Run, how: How) -> None:
        if READ_ONLY in os.environ:  # nothing of it runs
            run.remove()
            self.result["removed"].append(run.id)
            return
        before = run.files.awaited()
        if before is not None and before["is_removed"]:
            self._remove_or_wait(run)
            return
        ended = stop.stop_run(run, how, self._talk)
        self.result["stopped"] += ended["stopped"]
        self.result["killed"].update(ended["killed"])
        self.result["already"] += ended["already"]
        self.result["survivors"] += ended["survivors"]
        self.result["omitted"] += ended["omitted"]
        if not ended["survivors"]:
            self._remove_or_wait(run)

    def _remove_or_wait(self, run: runs.Run) -> None:
        """Waits on for hosts that gave no answer when the run ended, if this command does not reach them either."""
        run.ends_within(runs.REMOVAL_LIMIT_S)
        if unended.is_over_everywhere(run):
            self.result["over"].append(run.id)
        known = unended.awaited(run, time.time()) if self._reached is not None else None
        hosts = unended.left(run, known, self._reached or ()) if known is not None else []
        if known is not None and hosts:
            self.result["awaits"][run.id] = hosts
        waits_for = unended.waits_for(run, hosts)
        if known is not None and waits_for:
            unended.keep(run, known, waits_for)
            self.result["waits"].append(run.id)
        else:
            run.remove()
        self.result["removed"].append(run.id)

    def remove_damaged(self, run: damaged_runs.DamagedRun, how: How) -> None:
        """Stops and removes a run without an agent. Raises OSError if its files may be intact; then they stay."""
        left = run.end(orphans.GRACE_S if how["grace_s"] is None else how["grace_s"])
        for orphan in left:
            self.result["survivors"].append({"task": None, "pid": orphan.process.pid, "command": orphan.command})
        if run.unread is not None:
            raise run.unread
        if run.is_dead():
            run.remove()
            self.result["removed"].append(run.id)

    def summary(self) -> DownResult:
        survivors = self.result["survivors"]
        self.result["omitted"] += max(0, len(survivors) - MOST_PROCESSES)
        del survivors[MOST_PROCESSES:]
        del self.result["stopped"][MOST_TASKS:], self.result["already"][MOST_TASKS:]
        self.result["killed"] = {task: s for task, s in self.result["killed"].items() if task in self.result["stopped"]}
        del self.result["removed"][MOST_RUNS:]
        return self.result


def expired(standings: Iterable[Standing], now: float, over: bool = False) -> Dict[Part, Fact]:
    """The runs to remove, and why. The newest run of a cluster sets how many are kept; `over`: none of them."""
    found: Dict[Part, Fact] = {}
    seen: Dict[Part, int] = {}
    keep: Dict[Part, int] = {}
    for spec, ended, is_current in sorted(standings, key=lambda each: each[0]["created"], reverse=True):
        part, place = (spec["run"], spec["host"]), (spec["cluster"], spec["host"])
        kept = keep.setdefault(place, spec["keep"])
        if ended is None:
            continue
        older_than = seen[place] = seen.get(place, 0) + 1
        if over:
            found[part] = fact("cluster_removed")
        elif spec["ttl_s"] is not None and now - ended > spec["ttl_s"]:
            found[part] = fact("past_ttl")
        elif older_than > kept and not is_current:
            found[part] = fact("newer_runs", count=older_than - 1)
    return found


def expired_here(
    talk: Conversation, cluster: Optional[str], now: float, over: bool = False, host: Optional[str] = None
) -> List[Tuple[runs.Run, Fact]]:
    """Old runs of a cluster, or of all, that were begun on this machine. `host`: as in runs.every."""
    found = {}
    standings = []
    for run in runs.every(talk, cluster, host):
        with suppress(OSError, paths.Damaged):  # being removed; and of those that are damaged: damaged_runs.py
            if run.files.is_of_this_machine():
                standings.append(_standing(talk, run))
                found[(run.id, run.spec["host"])] = run
    return [(found[key], why) for key, why in expired(standings, now, over).items()]


def _standing(talk: Conversation, run: runs.Run) -> Standing:
    state = run.state()
    over = state["finished"] and not run.supervised() and unended.awaited(run, time.time()) is None
    ended = max((task["since"] or 0.0 for task in state["tasks"].values()), default=0.0)
    current = runs.current(talk.root, run.spec["cluster"], run.spec["host"])[0]
    return run.spec, ended if over else None, run.id == current


def remove(run: runs.Run) -> bool:
    """Removes a run unless it is live again. The caller must hold the cluster's lock."""
    with suppress(FileNotFoundError), locks.alone(run.files.lock_path) as alone:
        # no agent starts while it is held, and then the run is removed
        if alone and run.state()["finished"] and not run.supervised() and not unended.awaited(run, time.time()):
            run.remove()
            return True
    return False


def prune(talk: Conversation, kept: runs.Run) -> List[str]:
    """Removes runs beyond the limit of the run that was just kept, and their bundles; returns the ids of the runs."""
    removed: List[str] = []
    if len(list(runs.run_directories(talk.root, kept.spec["host"]))) < 2:
        return removed
    with suppress(OSError, Refused):  # `gc` will report it
        for run, _ in expired_here(talk, kept.spec["cluster"], time.time(), host=kept.spec["host"]):
            if run.id != kept.id and remove(run):
                removed.append(run.id)
        if removed:
            store.prune(talk.root, runs.used_bundles(talk))
    return removed


def clear_working_directory(
    talk: Conversation, cluster: str, without: Container[str] = (), dry_run: bool = False
) -> Tuple[int, Optional[Written]]:
    """Removes the code from a cluster's working directory when it has no run here any more, of any host.

    Returns the freed bytes, and the files of trainers, which stay. Runs in the directories `without` do not count.
    """
    for directory in runs.run_directories(talk.root):
        if directory not in without and _may_be_of(talk, directory, cluster):
            return 0, None
    return working.clear(talk.root, cluster, dry_run)


def _may_be_of(talk: Conversation, directory: str, cluster: str) -> bool:
    """Whether a run may belong to the cluster; the cluster of a damaged run may be unknown."""
    try:
        return runs.Run(talk, directory).spec["cluster"] == cluster
    except FileNotFoundError:  # removed just now
        return False
    except (OSError, paths.Damaged):
        return damaged_runs.cluster_of(talk.root, directory) in (cluster, None)
