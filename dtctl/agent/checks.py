"""A spec is checked once, before anything is done with it, so that nothing below meets a wrong shape."""

from __future__ import annotations

import re

from . import environment, paths, shapes
from .errors import Refused
from .runfiles import CREDENTIAL_FILES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

_TASK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*:[0-9]+\Z")
_NUMBER = (int, float)

_SPEC = {
    "run": str,
    "cluster": str,
    "host": str,
    "digest": str,
    "created": _NUMBER,
    "controller": str,
    "tasks": list,
    "dirs": list,
    "recovery": dict,
    "grace_s": _NUMBER,
    "checkpoint_dirs": list,
}
_RECOVERY = ("max_restarts", "max_run_restarts", "backoff_min_s", "backoff_max_s", "reset_after_s")
_NUMBER_OR_NULL = (int, float, type(None))
_COORDINATOR = {"host": str, "address": str, "port": int}
_PLACE = {"task": str, "host": str, "role": str, "scope": str, "vital": bool, "decides": bool}
_STAGE = {"name": str, "tasks": list, "after": list}
_TASK_FIELDS = {"id": str, "argv": list, "env": dict, "secrets": list, "code": bool}


def check_spec(spec: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    """Refuses a spec that this agent cannot carry out."""
    if spec.get("version") != 2:
        raise Refused("bad_request", "spec version %r is not one of this agent" % spec.get("version"))
    _check_kinds(spec, _SPEC, "spec")
    for name in ("tasks", "roster", "stages"):
        held = spec.get(name, [])
        if not isinstance(held, list) or not all(isinstance(each, dict) for each in held):
            raise Refused("bad_request", "spec: %s is no list of objects" % name)
    spec = shapes.spec(spec)
    _check_recovery(spec["recovery"])
    _check_run(spec)
    for name in ("cluster", "host"):
        if spec[name] != request.get(name):
            raise Refused("bad_request", "the spec is of %s %r" % (name, spec[name]))
    paths.component(spec["run"], "run")
    for text in [*spec["dirs"], *spec["checkpoint_dirs"], *spec["brought_along"]]:
        _check_text(text, "dirs")
    for task in spec["tasks"]:
        _check_task(task)
    ids = [task["id"] for task in spec["tasks"]]
    if len(set(ids)) != len(ids):
        raise Refused("bad_request", "a task is named twice")


def _check_task(task: Mapping[str, Any]) -> None:
    _check_kinds(task, _TASK_FIELDS, "task")
    if not _TASK.match(task["id"]):
        raise Refused("bad_request", "%r is not a task" % task["id"])
    if not task["argv"]:
        raise Refused("bad_request", "%s has no command" % task["id"])
    for text in task["argv"]:
        _check_text(text, "%s argv" % task["id"])
    check_variables(task["env"], "%s env" % task["id"])
    if not isinstance(task["port"], (int, type(None))):
        raise Refused("bad_request", "%s: port is no number" % task["id"])
    if task["ready"] not in ("started", "listening") or not isinstance(task["own"], bool):
        raise Refused("bad_request", "%s: ready or own is none that this agent knows" % task["id"])


def _check_recovery(recovery: Mapping[str, Any]) -> None:
    _check_kinds(recovery, dict.fromkeys(_RECOVERY, _NUMBER), "recovery")
    _check_kinds(recovery, dict.fromkeys(("stall_s", "host_timeout_s"), _NUMBER_OR_NULL), "recovery")
    for name in ("retry", "permanent"):
        codes = recovery[name]
        if not isinstance(codes, list) or not all(isinstance(code, int) for code in codes):
            raise Refused("bad_request", "recovery: %s is no list of exit codes" % name)


def _check_run(spec: Mapping[str, Any]) -> None:
    """What the tasks of a run share."""
    if spec["coordinator"] is not None:
        _check_kinds(spec, {"coordinator": dict, "lead": str}, "spec")
        _check_kinds(spec["coordinator"], _COORDINATOR, "coordinator")
    _check_kinds(spec, {"brought_along": (list, tuple)}, "spec")
    for place in spec["roster"]:
        _check_kinds(place, _PLACE, "roster")
    for stage in spec["stages"]:
        _check_kinds(stage, _STAGE, "stages")
    _check_kinds(spec, dict.fromkeys(("target_step", "active_deadline_s", "ttl_s"), _NUMBER_OR_NULL), "spec")


def check_credentials(credentials: Optional[Mapping[str, Any]], spec: Mapping[str, Any]) -> None:
    """A run with a coordinator needs what its agents know each other by."""
    if credentials is None:
        if spec.get("coordinator") is not None:
            raise Refused("bad_request", "a run with a coordinator needs credentials")
        return
    for name in CREDENTIAL_FILES:
        if not isinstance(credentials.get(name), str):
            raise Refused("bad_request", "credentials: %s is no text" % name)


def check_variables(variables: Mapping[str, Any], what: str) -> None:
    """Refuses what cannot be an environment."""
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name:
            raise Refused("bad_request", "%s: %r is not the name of a variable" % (what, name))
        _check_text(value, "%s %s" % (what, name))


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise Refused("bad_request", "%s: %r is not text" % (what, text))
    if environment.has_stray_nul(text):
        raise Refused("bad_request", "%s: text with a NUL cannot be given to a program" % what)


def _check_kinds(value: Mapping[str, Any], kinds: Mapping[str, Any], what: str) -> None:
    for name, kind in kinds.items():
        if not isinstance(value.get(name), kind):
            raise Refused("bad_request", "%s: %s is missing, or is of a wrong kind" % (what, name))
