"""stop, restart and down: they change the intent, wait for the supervisor, and look for themselves."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from . import bundles, file_locks, intents, paths, policy, reboot, runs, whole_run
from .conversation import field
from .errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

    from .conversation import Conversation

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


def hold_cluster(talk: Conversation, request: Mapping[str, Any], by: str) -> ClusterLock:
    """Refuses when another controller holds it, with who and since when. A holder that has died holds nothing."""
    cluster = field(request, "cluster", str)
    directory = paths.cluster_directory(talk.root, cluster, field(request, "host", str))
    path = os.path.join(directory, "lock")
    descriptor = try_cluster_lock(directory)
    if descriptor is None:
        raise Refused("locked", "another dtctl is at work on %s" % cluster, _holder(path))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"by": by, "since": time.time()}).encode(), 0)
    return ClusterLock(descriptor)


def try_cluster_lock(directory: str) -> Optional[int]:
    """The lock of a cluster's directory, which is made if need be; None when another controller has it."""
    while True:
        paths.make_directory(directory)
        with suppress(FileNotFoundError):  # `gc` has taken the directory for that of a cluster that is no more
            return file_locks.hold(os.path.join(directory, "lock"), exclusive=True)


def _holder(path: str) -> str:
    try:
        holder = json.loads(paths.read_text(path) or "{}")
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(holder["since"]))
        return "%s, since %s" % (holder["by"], when)
    except (ValueError, KeyError):
        return "it has begun just now"


def stop(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    if request.get("whole"):
        return whole_run.stop(talk, request)
    run = runs.need(talk, request)
    grace_s = field(request, "grace_s", int, float, type(None))
    reason = field(request, "reason", str, type(None)) or "stopped"
    how = {"reason": reason, "by": str(request.get("by") or ""), "grace_s": grace_s}
    return stop_tasks(talk, run, run.tasks(request), how, bool(request.get("everything")))


def stop_run(talk: Conversation, run: runs.Run, how: Mapping[str, Any]) -> Dict[str, Any]:
    """Ends what this host has of a run that ends everywhere."""
    return stop_tasks(talk, run, run.tasks({"tasks": None}), how, everything=True)


def stop_tasks(
    talk: Conversation, run: runs.Run, tasks: List[str], how: Mapping[str, Any], everything: bool
) -> Dict[str, Any]:
    """Returns when nothing is left of the tasks, or when it is clear that something stays.

    `how`: reason, by and grace_s. `everything`: the run is to end, on other hosts as well, which is left as a word for
    its coordinator.
    """
    before = run.state()["tasks"]
    to_stop = [task for task in tasks if before[task]["state"] not in policy.FINAL]

    def ask(intent: Dict[str, Any]) -> None:
        for task in to_stop:
            intents.change(intent["tasks"][task], want="stop", **how)
        if everything:
            intent["stop_run"] = dict(how)

    if to_stop or (everything and not run.finished()):
        serial = run.change(ask)

        def ended(state: Mapping[str, Any]) -> bool:
            states = [state["tasks"][task]["state"] for task in to_stop]
            return state["intent_serial"] >= serial and all(name in policy.FINAL for name in states)

        grace = run.spec["grace_s"] if how["grace_s"] is None else how["grace_s"]
        run.until(ended, grace + END_LIMIT_S)
    after = run.state()["tasks"]
    stopped = [task for task in to_stop if after[task]["state"] == "stopped"]
    already = [task for task in tasks if task not in to_stop or after[task]["state"] in ("succeeded", "failed")]
    return {"run": run.id, "stopped": stopped, "already": already, "survivors": run.survivors(tasks)}


def restart(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    if request.get("whole"):
        return whole_run.restart(talk, request)
    run = runs.need(talk, request)
    tasks, by = run.tasks(request), str(request.get("by") or "")
    wanted: Dict[str, int] = {}

    def ask(intent: Dict[str, Any]) -> None:
        for task in tasks:
            entry = intent["tasks"][task]
            again = {"want": "run", "generation": entry["generation"] + 1, "restarts": 0}
            intents.change(entry, **again, grace_s=None, reason="restart", by=by)
            wanted[task] = entry["generation"]

    def begun(state: Mapping[str, Any]) -> bool:
        entries = [(state["tasks"][task], wanted[task]) for task in tasks]
        return all(
            entry["generation"] >= generation and entry["state"] not in ("pending", "starting")
            for entry, generation in entries
        )

    run.change(ask)
    state = run.until(begun, run.spec["grace_s"] + RESTART_LIMIT_S)
    if state is None:
        raise Refused("internal", "the tasks do not start again", paths.tail(run.files.agent_log))
    return {"run": run.id, "tasks": {task: state["tasks"][task] for task in tasks}}


def down(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Stops the named run, or all of the cluster on this host, and removes its files and the bundles that no run uses.

    A run of which something survives keeps its files.
    """
    by = str(request.get("by") or "")
    how = {"reason": "down", "by": by, "grace_s": field(request, "grace_s", int, float, type(None))}
    lock = hold_cluster(talk, request, by)
    try:
        result: Dict[str, Any] = {"stopped": [], "already": [], "survivors": [], "removed": []}
        for run in _to_remove(talk, request):
            ended = stop_run(talk, run, how)
            for name in ("stopped", "already", "survivors"):
                result[name] += ended[name]
            if not ended["survivors"]:
                run.remove()
                result["removed"].append(run.id)
        reboot.withdraw(talk.root)
        return dict(result, kept=bundles.prune(talk.root, runs.used_bundles(talk)))
    finally:
        lock.release()


def _to_remove(talk: Conversation, request: Mapping[str, Any]) -> List[runs.Run]:
    named = runs.find(talk, request)
    if request.get("run") is not None:
        return [named] if named is not None else []
    return [run for run in runs.every(talk, request["cluster"]) if run.spec["host"] == request["host"]]
