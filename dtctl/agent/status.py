"""status, watch, logs and runs: what is known, from the files and from /proc."""

from __future__ import annotations

import time

from . import environment, policy, runs, whole_run
from .conversation import field
from .runfiles import RunRemoved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

    from .conversation import Conversation


def status(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    from . import checkpoints

    run = runs.find(talk, request)
    if run is None:
        return {"run": None, "spec": None, "state": None, "agent_alive": False, "checkpoints": [], "time": time.time()}
    run.keep_supervised()
    marks = environment.Marks(run.files.code_directory())
    as_a_whole = request.get("whole") and whole_run.coordinates(run)
    return {
        "run": run.id,
        "coordination": whole_run.WholeRun(talk, run).view() if as_a_whole else None,
        "spec": without_environment(run.spec),
        "state": run.state(),
        "agent_alive": run.supervised(),
        "checkpoints": checkpoints.report(marks.words(run.spec["checkpoint_dirs"])),
        "time": time.time(),
    }


def without_environment(spec: Mapping[str, Any]) -> Dict[str, Any]:
    tasks = [{name: value for name, value in task.items() if name != "env"} for task in spec["tasks"]]
    setup = spec.get("setup")
    return dict(spec, tasks=tasks, setup={"text": setup["text"]} if setup else None)


def watch(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Sends the state whenever it has changed; with `until_final` it ends when every task is final."""
    if request.get("whole"):
        return whole_run.watch(talk, request)
    run = runs.need(talk, request)
    sent = field(request, "since_serial", int, type(None)) or 0
    until_final = bool(request.get("until_final"))
    run.keep_supervised()

    def look(state: Mapping[str, Any]) -> bool:
        nonlocal sent
        if state["serial"] > sent:
            sent = state["serial"]
            talk.send("states", run=run.id, state=state)
        return until_final and all(task["state"] in policy.FINAL for task in state["tasks"].values())

    run.until(look, float("inf"))
    return {"run": run.id}


def logs(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    from . import logs as reading

    run = runs.need(talk, request)
    run.tasks(request)

    def state() -> Dict[str, Any]:
        run.keep_supervised()
        return run.state()

    talk.wire.start_listening()
    reading.serve(run.files.directory, dict(request), talk.wire, state, talk.wire.is_gone)
    return {"run": run.id}


def list_runs(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    found = []
    for run in runs.every(talk, field(request, "cluster", str, type(None))):
        try:
            state = run.state()
        except RunRemoved:
            continue
        found.append(
            {
                "run": run.id,
                "cluster": run.spec["cluster"],
                "host": run.spec["host"],
                "created": run.spec["created"],
                "live": not state["finished"],
                "tasks": {task: entry["state"] for task, entry in state["tasks"].items()},
            }
        )
    return {"runs": found}
