"""Which runs that are over have been kept for long enough: `keep` and `ttl_s` of the spec."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ...bundles import store, working
from ...host import locks, paths
from ...host.errors import Refused
from .. import runs
from . import damaged_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, Iterable, List, Optional, Tuple

    from ...protocol.conversation import Conversation
    from ...records.answers import Written
    from ...records.spec import Spec

    Part = Tuple[str, str]  # a run and a host of the inventory: several may be this machine


class Standing:
    """What is known about one run here. `ended` is None while it is live."""

    def __init__(self, spec: Spec, ended: Optional[float], current: bool) -> None:
        self.part: Part = (spec["run"], spec["host"])
        self.place: Tuple[str, str] = (spec["cluster"], spec["host"])
        self.created: float = spec["created"]
        self.ttl_s: Optional[float] = spec["ttl_s"]
        self.keep: int = spec["keep"]
        self.ended = ended
        self.current = current


def expired(standings: Iterable[Standing], now: float, over: bool = False) -> Dict[Part, str]:
    """Which runs to remove, and why. The newest run of a cluster says how many are kept; `over`: none of them."""
    found: Dict[Part, str] = {}
    seen: Dict[Tuple[str, str], int] = {}
    keep: Dict[Tuple[str, str], int] = {}
    for each in sorted(standings, key=lambda each: each.created, reverse=True):
        kept = keep.setdefault(each.place, each.keep)
        if each.ended is None:
            continue
        older_than = seen[each.place] = seen.get(each.place, 0) + 1
        if over:
            found[each.part] = "its cluster was taken down"
        elif each.ttl_s is not None and now - each.ended > each.ttl_s:
            found[each.part] = "it ended longer ago than its ttl"
        elif older_than > kept and not each.current:
            found[each.part] = "newer runs that have ended: %d" % (older_than - 1)
    return found


def expired_here(
    talk: Conversation, cluster: Optional[str], now: float, over: bool = False
) -> List[Tuple[runs.Run, str]]:
    """Old runs of a cluster, or of all; only those that were begun on this machine."""
    found = {}
    standings = []
    for run in runs.every(talk, cluster):
        with suppress(OSError, paths.Damaged):  # being removed; and of those that are damaged: damaged_runs.py
            if run.files.is_of_this_machine():
                standings.append(_standing(talk, run))
                found[(run.id, run.spec["host"])] = run
    return [(found[key], reason) for key, reason in expired(standings, now, over).items()]


def _standing(talk: Conversation, run: runs.Run) -> Standing:
    state = run.state()
    over = state["finished"] and not run.supervised()
    ended = max((task["since"] or 0.0 for task in state["tasks"].values()), default=0.0)
    current = runs.current(talk.root, run.spec["cluster"], run.spec["host"])[0]
    return Standing(run.spec, ended if over else None, run.id == current)


def remove(run: runs.Run) -> bool:
    """Unless it has come to life again. For those who hold the cluster's lock."""
    with suppress(FileNotFoundError):
        lock = locks.hold(run.files.lock_path, exclusive=True, create=False, certain=True)
        if lock is not None:  # until it is released no agent begins, and then there is no run any more
            try:
                over = run.state()["finished"] and not run.supervised()
                if over:
                    run.remove()
                return over
            finally:
                os.close(lock)
    return False


def prune(talk: Conversation, kept: runs.Run) -> List[str]:
    """What the run that has just been kept leaves no room for: removes it, and its bundles; the ids of the runs."""
    removed = []
    with suppress(OSError, Refused):  # what is in the way now will be told by `gc`
        for run, _ in expired_here(talk, kept.spec["cluster"], time.time()):
            if run.spec["host"] == kept.spec["host"] and run.id != kept.id and remove(run):
                removed.append(run.id)
        if removed:
            store.prune(talk.root, runs.used_bundles(talk))
    return removed


def clear_working_directory(
    talk: Conversation, cluster: str, without: Container[str] = (), dry_run: bool = False
) -> Tuple[int, Optional[Written]]:
    """Takes the code out of a cluster's working directory when it has no run here any more, of whatever host.

    Returns the bytes that this sets free, and what trainers have written, which stays. Runs in the directories
    `without` do not count.
    """
    here = [run.files.directory for run in runs.every(talk, cluster)]
    here += [run.directory for run in damaged_runs.every(talk) if run.cluster in (cluster, None)]
    if any(run not in without for run in here):
        return 0, None
    return working.clear(talk.root, cluster, dry_run)
