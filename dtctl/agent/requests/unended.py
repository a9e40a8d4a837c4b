"""Hosts that gave no answer when a run ended: what this host knows of them, and how it waits for them after `down`."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ..coordinate.view import awaited_hosts, is_of
from ..host import paths
from ..records.kinds import made
from ..records.spec import LEASED_S, held_within_s, hold_s, hosts_of, voters_of
from ..records.whole_run import Awaited, RunView
from ..run import intents
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, List, Optional

    from ..conversation import Conversation
    from ..records.answers import LeftOpen

_KEPT = {
    *("spec.json", "intent.json", "state.json", "moved.json", "machine", "environ.json"),
    *("ballot.json", "ballot.slots"),
    *("secrets.json", "link.key", "link.crt", "link.ca", "link.port_token", "link.knock"),
    *("wake", "agent.lock", "intent.lock", "agent.log", "awaited.json"),
}
"""Files that are kept, by which the run's agents identify each other and sessions find the run.

`link.knock` is the port token of a run of an older version.
"""


def awaited(run: runs.Run, now: float) -> Optional[Awaited]:
    """What this host has to wait for in a run that has ended here; None if nothing. `now`: epoch seconds.

    A host that was sent the end of the run waits for nobody: its coordinator does, and has named those that are away.
    """
    known = None
    with suppress(paths.Damaged):
        known = run.files.awaited()
    if known is None and not run.finished():
        known = made(Awaited, since=_ended(run, now), hosts=_unheard(run))
    return known if known is not None and known["hosts"] and now - known["since"] < intents.AWAIT_S else None


def _ended(run: runs.Run, now: float) -> float:
    return max((task["since"] or 0.0 for task in run.state()["tasks"].values()), default=now) or now


def _unheard(run: runs.Run) -> List[str]:
    """Hosts that did not confirm the end, by the coordinator's file if it is here; otherwise every other host may be
    away.
    """
    original = run.files.original()
    with suppress(paths.Damaged):
        view = paths.read_record(run.files.path("cluster.json"), RunView)
        if view is not None and is_of(view, original):
            return awaited_hosts(original, view)
    return [host for host in hosts_of(original) if host != run.spec["host"] and host not in run.spec["absent"]]


def is_over_everywhere(run: runs.Run) -> bool:
    """Whether this host has coordinated the run, and heard of its end from every other."""
    original = run.files.original()
    with suppress(paths.Damaged):
        view = paths.read_record(run.files.path("cluster.json"), RunView)
        return view is not None and is_of(view, original) and not awaited_hosts(original, view)
    return False


def left(run: runs.Run, known: Awaited, reached: Collection[str]) -> List[str]:
    """Those of them that this command does not reach either."""
    return [host for host in known["hosts"] if host not in reached and host != run.spec["host"]]


def waits_for(run: runs.Run, hosts: List[str]) -> List[str]:
    """Those of them that this host can tell of the end when they return: it votes, or coordinates without voters.

    A coordinator without voters asks nobody: every host waits for it, and it waits for the others then.
    """
    own, coordinator = run.spec["host"], run.spec["coordinator"]["host"]
    voters = [voter["host"] for voter in voters_of(run.spec)]
    if own in (voters or [coordinator]):
        return hosts
    return [] if voters else [host for host in hosts if host == coordinator]


def left_open(talk: Conversation, cluster: str, host: str, now: float) -> Optional[LeftOpen]:
    """The last run of the cluster here, if it has ended and tasks of it may still act on other hosts."""
    every = runs.every(talk, cluster, host)
    run = every[-1] if every else None
    if run is None or run.live():
        return None
    known = awaited(run, now)
    if known is None:
        return None
    limit_s = hold_s(run.spec)
    wait_s = None if limit_s is None else max(0.0, LEASED_S + held_within_s(limit_s) - max(0.0, now - known["since"]))
    return {"run": run.id, "hosts": known["hosts"], "wait_s": wait_s} if wait_s != 0.0 else None


def keep(run: runs.Run, known: Awaited, hosts: List[str]) -> None:
    """Removes what a run has left, but for an agent that waits for these hosts."""
    from ..bundles.tree import remove_tree

    files = run.files
    run.keep_left_out()
    run.end_supervisor(runs.REMOVAL_LIMIT_S)
    for name in set(os.listdir(files.directory)) - _KEPT:
        path = files.path(name)
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            os.unlink(path)
    for name in ("secrets.json", "environ.json"):
        paths.write_json(files.path(name), {})
    files.write_awaited(made(Awaited, since=known["since"], hosts=hosts, is_removed=True))
    state = run.state()
    state["finished"] = False
    paths.write_json(files.state_path, state)
    if runs.current(files.root, run.spec["cluster"], run.spec["host"])[0] == run.id:
        runs.set_current(files.root, run.spec["cluster"], run.spec["host"], None)
    run.supervise()


def note_taken_over(run: runs.Run) -> None:
    """The agent of a newer run waits in place of this one's, for as long as this one's files are here."""
    known = awaited(run, time.time())
    if known is not None:
        run.files.write_awaited(known)
