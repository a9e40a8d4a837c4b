"""stop, restart and down: they change the intent, wait for the supervisor, and look for themselves."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from ..bundles import store
from ..host import locks, paths
from ..host.errors import Refused
from ..records.answers import MOST_FILES, MOST_PROCESSES, MOST_RUNS
from ..records.reasons import because, fact
from ..records.run_state import Holder
from ..records.words import MOST_TASKS
from ..run import intents, policy
from ..survival import reboot
from . import coordinated, damaged_runs, orphans, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..protocol.conversation import Conversation
    from ..records.answers import DownResult, RestartResult, StopResult, Survivor
    from ..records.requests import DownRequest, RestartRequest, StopRequest
    from ..records.run_state import How, IntentFile, State

END_LIMIT_S = 15.0
"""How long a stop waits after SIGKILL before it tells what is left."""

RESTART_LIMIT_S = 60.0


class ClusterLock:
    """Only one controller at a time works on a cluster's run on a host. The file says who."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def hold_cluster(talk: Conversation, cluster: str, host: str, by: str) -> ClusterLock:
    """Refuses when another controller holds it, with who and since when. A holder that has died holds nothing."""
    directory = paths.cluster_directory(talk.root, cluster, host)
    path = os.path.join(directory, "lock")
    descriptor = try_cluster_lock(directory)
    if descriptor is None:
        raise Refused("locked", "another dtctl is at work on %s" % cluster, _holder(path))
    holder: Holder = {"by": by, "since": time.time()}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    return ClusterLock(descriptor)


def try_cluster_lock(directory: str) -> Optional[int]:
    """The lock of a cluster's directory, which is made if need be; None when another controller has it."""
    while True:
        paths.make_directory(directory)
        with suppress(FileNotFoundError):  # `gc` has taken the directory for that of a cluster that is no more
            return locks.hold(os.path.join(directory, "lock"), exclusive=True)


def _holder(path: str) -> str:
    try:
        holder = paths.read_record(path, Holder)
    except paths.Damaged:
        holder = None
    if holder is None:
        return "it has begun just now"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(holder["since"]))
    return "%s, since %s" % (holder["by"], when)


def stop(talk: Conversation, request: StopRequest) -> StopResult:
    if request["whole"]:
        return coordinated.stop(talk, request)
    run = runs.need(talk, request)
    how: How = {"by": request["by"], "grace_s": request["grace_s"], **because(request["why"] or [fact("stopped")])}
    return stop_tasks(run, run.tasks(request["tasks"]), how, request["everything"])


def stop_run(run: runs.Run, how: How) -> StopResult:
    """Ends what this host has of a run that ends everywhere."""
    return stop_tasks(run, run.tasks(None), how, everything=True)


def stop_tasks(run: runs.Run, tasks: List[str], how: How, everything: bool) -> StopResult:
    """Returns when nothing is left of the tasks, or when it is clear that something stays.

    `everything`: the run is to end, on other hosts as well, which is left as a word for its coordinator.
    """
    before = run.state()["tasks"]
    to_stop = [task for task in tasks if before[task]["state"] not in policy.FINAL]

    def ask(intent: IntentFile) -> None:
        for task in to_stop:
            intents.change(intent["tasks"][task], want="stop", **how)
        if everything:
            intent["stop_run"] = how

    if to_stop or (everything and not run.finished()):
        serial = run.change(ask)

        def ended(state: State) -> bool:
            states = [state["tasks"][task]["state"] for task in to_stop]
            return state["intent_serial"] >= serial and all(name in policy.FINAL for name in states)

        grace = run.spec["grace_s"] if how["grace_s"] is None else how["grace_s"]
        run.until(ended, grace + END_LIMIT_S)
    after = run.state()["tasks"]
    stopped = [task for task in to_stop if after[task]["state"] == "stopped"]
    already = [task for task in tasks if task not in to_stop or after[task]["state"] in ("succeeded", "failed")]
    return stopped_result(run.id, stopped, already, run.survivors(tasks))


def stopped_result(run: str, stopped: List[str], already: List[str], survivors: List[Survivor]) -> StopResult:
    """Of one host alone."""
    return {
        "run": run,
        "stopped": stopped,
        "already": already,
        "survivors": survivors[:MOST_PROCESSES],
        "omitted": max(0, len(survivors) - MOST_PROCESSES),
        "unreached": [],
        "coordination": None,
        "inventory": None,
    }


def restart(talk: Conversation, request: RestartRequest) -> RestartResult:
    if request["whole"]:
        return coordinated.restart(talk, request)
    run = runs.need(talk, request)
    tasks, by = run.tasks(request["tasks"]), request["by"]
    wanted: Dict[str, int] = {}

    def ask(intent: IntentFile) -> None:
        for task in tasks:
            entry = intent["tasks"][task]
            generation = wanted[task] = entry["generation"] + 1
            again = {"want": "run", "generation": generation, "restarts": 0}
            intents.change(entry, **again, grace_s=None, by=by, **because([fact("restart")]))

    def begun(state: State) -> bool:
        entries = [(state["tasks"][task], wanted[task]) for task in tasks]
        return all(
            entry["generation"] >= generation and entry["state"] not in ("pending", "starting")
            for entry, generation in entries
        )

    run.change(ask)
    state = run.until(begun, run.spec["grace_s"] + RESTART_LIMIT_S)
    if state is None:
        raise Refused("internal", "the tasks do not start again", paths.tail(run.files.agent_log))
    entries = {task: state["tasks"][task] for task in tasks}
    return {"run": run.id, "tasks": entries, "unreached": [], "coordination": None, "inventory": None}


def down(talk: Conversation, request: DownRequest) -> DownResult:
    """Stops the named run, or all of the cluster on this host, and removes its files and the bundles that no run uses.

    A run of which something survives keeps its files.
    """
    how: How = {
        "by": request["by"],
        "grace_s": request["grace_s"],
        **because([fact("taken_down", by=request["by"])]),
    }
    lock = hold_cluster(talk, request["cluster"], request["host"], request["by"])
    try:
        damaged = damaged_runs.of_cluster(talk, request["cluster"], request["host"], request["run"])
        removal = _Removal()
        for run in _to_remove(talk, request, [run.directory for run in damaged]):
            removal.remove(run, how)
        for each in damaged:
            removal.remove_damaged(each, how)
        reboot.withdraw(talk.root)
        with talk.at("bundles"):
            removal.result["kept"] = store.prune(talk.root, runs.used_bundles(talk))[:MOST_FILES]
        return removal.told()
    finally:
        lock.release()


class _Removal:
    """What `down` has done so far."""

    def __init__(self) -> None:
        self.result: DownResult = {
            "stopped": [],
            "already": [],
            "survivors": [],
            "omitted": 0,
            "removed": [],
            "kept": [],
        }

    def remove(self, run: runs.Run, how: How) -> None:
        ended = stop_run(run, how)
        self.result["stopped"] += ended["stopped"]
        self.result["already"] += ended["already"]
        self.result["survivors"] += ended["survivors"]
        self.result["omitted"] += ended["omitted"]
        if not ended["survivors"]:
            run.remove()
            self.result["removed"].append(run.id)

    def remove_damaged(self, run: damaged_runs.DamagedRun, how: How) -> None:
        """One that no agent can be asked to stop."""
        left = run.end(orphans.GRACE_S if how["grace_s"] is None else how["grace_s"])
        for orphan in left:
            self.result["survivors"].append({"task": None, "pid": orphan.process.pid, "command": orphan.command})
        if run.is_dead():
            run.remove()
            self.result["removed"].append(run.id)

    def told(self) -> DownResult:
        survivors = self.result["survivors"]
        self.result["omitted"] += max(0, len(survivors) - MOST_PROCESSES)
        del survivors[MOST_PROCESSES:]
        del self.result["stopped"][MOST_TASKS:], self.result["already"][MOST_TASKS:]
        del self.result["removed"][MOST_RUNS:]
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
