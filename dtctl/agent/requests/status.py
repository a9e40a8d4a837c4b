"""status, watch and runs: what is known, from the files and from /proc."""

from __future__ import annotations

import os
import time

from ..host import paths, processes
from ..records.kinds import made
from ..records.reasons import explain, fact
from ..records.spec import coordinates, inventory_of
from ..records.values import MOST_DAMAGED, MOST_RUNS, brief
from ..records.whole_run import Condition, RunView
from . import damaged_runs, run_handles, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..conversation import Conversation
    from ..records.answers import KnownRun, RunResult, RunsResult, States, StatusResult
    from ..records.checkpoints import Reports
    from ..records.requests import RunsRequest, StatusRequest, WatchRequest
    from ..records.run_state import Entry, Intents, State


UNCHANGED_S = 3.0
"""Age in seconds from which the room for a file is tested."""


def status(talk: Conversation, request: StatusRequest) -> StatusResult:
    run = runs.find(talk, request["cluster"], request["host"], request["run"])
    if run is None:
        from ..records import answers  # which imports many others that a status does without

        problem = runs.current(talk.root, request["cluster"], request["host"])[1]
        found = _of_no_run(talk, request["dirs"])
        why = brief(problem) or None
        return made(answers.StatusResult, run=None, time=time.time(), problem=why, checkpoints=found)
    run.keep_supervised()
    handle = run_handles.reached(talk, run)
    return {
        "run": run.id,
        "time": time.time(),
        "problem": None,
        "agent_alive": run.supervised(),
        "inventory": inventory_of(run.spec),
        "state": _state(run),
        "intents": _intents(run),
        "coordination": handle.view,
        "away": handle.away.fields() if handle.away else None,
        "checkpoints": _checkpoints(talk, run, guess=request["guess"]),
    }


def _state(run: runs.Run) -> State:
    """The state of this host's tasks; what has ended since the disk became full is in no file, and is marked so."""
    state = run.state()
    running = [task for task, entry in state["tasks"].items() if entry["state"] == "running" and _has_gone(entry)]
    gone = [task for task in running if not run.survivors([task])]
    if not gone or not _is_kept_from_writing(run.files.state_path):
        return state
    for task in gone:
        state["tasks"][task].update({"pid": None, "start_time": None, "unwritten": True})
        explain(state["tasks"][task], [fact("exit_unwritten", host=run.spec["host"])])
    return state


def _has_gone(entry: Entry) -> bool:
    """Whether the task's process, as the agent has recorded it, is not there any more."""
    pid, start_time = entry["pid"], entry["start_time"]
    return pid is not None and (start_time is None or processes.living(pid, start_time) is None)


def _is_kept_from_writing(path: str) -> bool:
    """Whether the file has not changed for `UNCHANGED_S`, and the disk has no room to write it again."""
    try:
        age_s = abs(time.time() - os.stat(path).st_mtime)
    except OSError:
        return False
    return age_s > UNCHANGED_S and not paths.has_room(path)


def _intents(run: runs.Run) -> Intents:
    """The intents; none if an ended run has lost them: a supervisor would have repaired the file."""
    try:
        return run.intent()["tasks"]
    except paths.Damaged:
        return {}


def _checkpoints(talk: Conversation, run: runs.Run, *, guess: bool) -> Reports:
    if not (guess or run.spec["checkpoint_dirs"]):
        return []
    from ..checkpoints import directories

    with talk.at("checkpoints"):
        return directories.report(run.places())


def _of_no_run(talk: Conversation, dirs: List[str]) -> Reports:
    """What the directories hold from which the first run would continue."""
    if not dirs:
        return []
    from ..checkpoints import reading
    from ..run import environment

    with talk.at("checkpoints"):
        return reading.report(environment.Marks(None).expand(dirs))


def watch(talk: Conversation, request: WatchRequest) -> RunResult:
    """Sends on each change this host's state, and the coordinator's view of the run.

    Ends when no more changes are expected, as far as this host knows, or when the time is over.
    """
    run = runs.need(talk, request)
    whole = run_handles.WholeRun(talk, run) if coordinates(run.spec) else None
    run.keep_supervised()
    sent = (0, 0)

    def refresh(state: State) -> bool:
        nonlocal sent
        view = whole.peek() if whole is not None else None
        serials = (state["serial"], view["serial"] if view is not None else sent[1])
        if serials != sent:
            sent = serials
            states: States = {"run": run.id, "state": state, "coordination": view}
            talk.send("states", states)
        return view is not None and run_handles.is_over(view, time.time()) if whole is not None else state["finished"]

    run.until(refresh, float("inf") if request["for_s"] is None else request["for_s"])
    return {"run": run.id}


def list_runs(talk: Conversation, request: RunsRequest) -> RunsResult:
    from . import orphans  # scans all processes

    cluster = request["cluster"]
    known = [each for run in runs.every(talk, cluster) for each in [_known(run)] if each is not None]
    damaged = [run.record() for run in damaged_runs.all_of(talk) if cluster in (None, run.cluster)]
    left_out = max(0, len(known) - MOST_RUNS) + max(0, len(damaged) - MOST_DAMAGED)
    return {
        "runs": known[-MOST_RUNS:],
        "omitted": left_out,
        "damaged": damaged[:MOST_DAMAGED],
        "foreign": orphans.of_other_accounts()[:MOST_DAMAGED] if cluster is None else [],
        "foreign_hidden": cluster is None and not processes.sees_others(),
    }


def _known(run: runs.Run) -> Optional[KnownRun]:
    """The run as this host knows it; None if it is being removed, is damaged, or cannot be read."""
    try:
        state = run.state()
    except (OSError, paths.Damaged):
        return None
    revision = run.spec["revision"]
    return {
        "run": run.id,
        "cluster": run.spec["cluster"],
        "host": run.spec["host"],
        "created": run.spec["created"],
        "live": not state["finished"],
        "tasks": {task: entry["state"] for task, entry in state["tasks"].items()},
        "condition": _condition(run),
        "by": run.spec["controller"],
        "commit": revision["commit"] if revision else "",
    }


def _condition(run: runs.Run) -> Optional[Condition]:
    """The condition in the file: a coordinator is neither awaited nor restarted."""
    if not coordinates(run.spec):
        return None
    try:
        view = paths.read_record(run.files.path("cluster.json"), RunView)
    except paths.Damaged:
        return None
    return view["condition"] if view is not None else None
