"""What the fields mean that a minimal spec, or a file of an earlier dtctl, does not have."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

_SPEC = {
    "strategy": None,
    "coordinator": None,
    "roster": (),
    "stages": (),
    "needs_checkpoint": False,
    "settle_s": 0.0,
    "fail_fast": True,
    "active_deadline_s": None,
    "ttl_s": None,
    "keep": 10,
    "start_timeout_s": 600.0,
    "target_step": None,
    "brought_along": (),
}
_TASK = {"port": None, "ready": "started", "own": True}
_ROSTER = {"address": None, "role": "other", "scope": "task", "vital": True, "decides": False, "serves": None}
_RECOVERY = {
    "max_run_restarts": 100,
    "allow_scratch": False,
    "retry": (),
    "permanent": (),
    "stall_s": None,
    "host_timeout_s": None,
    "reboot": "auto",
}
_INTENT = {"want": "run", "generation": 1, "version": 1, "restarts": 0, "grace_s": None, "reason": "", "by": ""}
_ENTRY = {
    "state": "pending",
    "attempt": 0,
    "restarts": 0,
    "generation": 1,
    "version": 0,
    "pid": None,
    "start_time": None,
    "since": None,
    "next_start": None,
    "ready": False,
    "step": None,
    "step_time": None,
    "progress": None,
    "longest_gap_s": 0.0,
    "left": (),
    "exit": None,
    "reason": "",
    "asked": False,
    "history": (),
}
_EXIT = {"code": None, "signal": None, "error": None, "ended": None, "retry": True, "tail": ""}


def spec(given: Mapping[str, Any]) -> Dict[str, Any]:
    """spec.json with every field."""
    whole = _completed(_SPEC, given)
    whole["tasks"] = [_completed(_TASK, task) for task in given["tasks"]]
    whole["roster"] = [_completed(_ROSTER, member) for member in whole["roster"]]
    whole["recovery"] = _completed(_RECOVERY, given["recovery"])
    return whole


def intent(given: Mapping[str, Any]) -> Dict[str, Any]:
    """intent.json with every field."""
    tasks = {task: _completed(_INTENT, each) for task, each in given["tasks"].items()}
    return dict(given, tasks=tasks, stop_run=given.get("stop_run"))


def first_intent(want: str) -> Dict[str, Any]:
    """That of a task of a new run."""
    return _completed(_INTENT, {"want": want})


def state(given: Mapping[str, Any]) -> Dict[str, Any]:
    """state.json with every field."""
    return dict(given, tasks={task: entry(each) for task, each in given["tasks"].items()})


def first_state(spec: Mapping[str, Any], wall: float) -> Dict[str, Any]:
    """state.json before any supervisor has seen it."""
    return {
        "version": 1,
        "serial": 1,
        "intent_serial": 0,
        "run": spec["run"],
        "host": spec["host"],
        "agent": None,
        "finished": False,
        "tasks": {task["id"]: _completed(_ENTRY, {"since": wall}) for task in spec["tasks"]},
    }


def entry(given: Mapping[str, Any]) -> Dict[str, Any]:
    """A task's part of state.json with every field; of nothing, that of a task that nobody has heard of."""
    whole = _completed(_ENTRY, given)
    if whole["exit"] is not None:
        whole["exit"] = _completed(_EXIT, whole["exit"])
    return whole


def _completed(usual: Mapping[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    whole = {name: list(value) if isinstance(value, tuple) else value for name, value in usual.items()}
    whole.update(given)
    return whole
