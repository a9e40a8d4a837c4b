"""Writes again what is damaged or missing of a run's files."""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import files as opened
from ..host import paths
from ..host.secrets import Masks
from ..records.kinds import made
from ..records.reasons import explain, why_of
from ..records.run_state import HISTORY, Ending, Entry, IntentFile, Intents, Past, Start, State
from ..records.whole_run import Event
from ..run import environment, policy
from ..run.runfiles import CREDENTIAL_FILES, MOVED, RunFiles, first_state
from .autopsy import exit_of, read_of_attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional, Type, TypeVar

    from ..records.spec import Spec, TaskSpec

    R = TypeVar("R")

LASTING = ("spec.json", MOVED, "secrets.json", "environ.json", "machine", "hooks.json", *CREDENTIAL_FILES.values())

_LIVE = ("starting", "running", "stalled")
_UNASKED = ("backoff", "failed", "succeeded")


def state(files: RunFiles, spec: Spec, wall: float, report: Callable[[str], None]) -> State:
    """Reads state.json. A damaged one is put aside, `report` is called, and the state is rebuilt from the events."""
    try:
        found = files.state()
        if (found["run"], found["host"], {*found["tasks"]}) == (
            spec["run"],
            spec["host"],
            {task["id"] for task in spec["tasks"]},
        ):
            return found
        damage = "%s is damaged: it is about other tasks" % files.state_path
    except paths.Damaged as wrong:
        damage = str(wrong)
    rebuilt = _from_events(files, spec, wall)
    report("%s; %s" % (damage, files.replace_damaged(files.state_path, rebuilt)))
    return rebuilt


class LastingFiles:
    """Files of a run that do not change after its start, as its agent has found them."""

    def __init__(self, directory: str) -> None:
        self._found: Dict[str, bytes] = {}
        for path in [os.path.join(directory, name) for name in LASTING]:
            with suppress(OSError):  # not every run has all of them
                self._found[path] = opened.read(path, paths.MOST_BYTES)

    def restore(self) -> Optional[str]:
        """Writes again one that is missing, or has another size; what was done. Raises OSError."""
        for path, content in self._found.items():
            if size_bytes(path) != len(content):
                paths.write_text(path, content.decode("utf-8"))
                return "%s was damaged or missing; it was written again" % path
        return None


def size_bytes(path: str) -> int:
    """0 when it is gone."""
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def intents(state: State) -> IntentFile:
    """Intents that leave the tasks as they are. Any order of the coordinator overrides them."""
    tasks = {
        task: {
            "want": "hold" if entry["state"] == "pending" else "run",
            "generation": entry["generation"],
            "version": 0,
            "restarts": entry["restarts"],
        }
        for task, entry in state["tasks"].items()
    }
    return made(IntentFile, serial=state["intent_serial"], tasks=tasks)


def _from_events(files: RunFiles, spec: Spec, wall: float) -> State:
    """Rebuilt from the events; the processes themselves are found by the attempts' directories."""
    rebuilt = first_state(spec, wall)
    for event in files.events.records(Event):
        if event is not None and event["task"] in rebuilt["tasks"] and event["from"] != event["to"]:
            _follow(files, rebuilt["tasks"][event["task"]], event)
    wanted, masks = _wanted(files), Masks(files.secrets().values())
    for task in spec["tasks"]:
        entry, intent = rebuilt["tasks"][task["id"]], wanted.get(task["id"])
        entry["restarts"] = min(entry["restarts"], spec["recovery"]["max_restarts"])
        if intent is not None:
            entry["generation"] = intent["generation"]
            entry["restarts"] = entry["restarts"] if task["own"] else intent["restarts"]
        _complete(files, spec, task, entry, masks, wall)
    return rebuilt


def _wanted(files: RunFiles) -> Intents:
    try:
        return files.intent()["tasks"]
    except paths.Damaged:
        return {}


def _follow(files: RunFiles, entry: Entry, event: Event) -> None:
    """Takes the entry over a transition."""
    before, after = event["from"], event["to"]
    if before in _LIVE and (after not in _LIVE or event["attempt"] > entry["attempt"]):
        entry["history"] = [*entry["history"], event["end"] or _past(files, entry, event)][-HISTORY:]
    entry["restarts"] += after == "backoff" and not policy.was_early(entry)
    entry.update({"state": after, "attempt": event["attempt"], "since": event["time"]})
    explain(entry, why_of(event))


def _past(files: RunFiles, entry: Entry, event: Event) -> Past:
    """The history entry of an attempt whose end was not recorded, before this event."""
    start = _read(files, event["task"], entry["attempt"], "start.json", Start)
    ending = _read(files, event["task"], entry["attempt"], "exit.json", Ending)
    return made(
        Past,
        attempt=entry["attempt"],
        started=start["started"] if start is not None else entry["since"] or event["time"],
        ended=event["time"],
        asked=event["to"] not in _UNASKED,
        code=ending["code"] if ending is not None else None,
        signal=ending["signal"] if ending is not None else None,
        hung=event["from"] == "stalled",
    )


def _complete(files: RunFiles, spec: Spec, task: TaskSpec, entry: Entry, masks: Masks, wall: float) -> None:
    """Completes an entry with the fields that follow from its rebuilt state."""
    if entry["state"] in _LIVE:
        entry["state"] = "starting"  # its start, and its end if it has ended, are read like those of a new attempt
        return
    if entry["state"] == "backoff" and task["own"] and not policy.was_early(entry):
        entry["next_start"] = wall
    if entry["state"] == "failed":
        entry["failed_attempt"] = policy.failed_attempt(entry)
    if entry["state"] != "pending":
        number = entry["failed_attempt"] or entry["attempt"]
        directory = paths.attempt_directory(files.directory, task["id"], number)
        cwd = environment.task_directory(files.root, spec, task)
        entry["exit"] = exit_of(directory, spec["recovery"], masks, cwd) or entry["exit"]


def _read(files: RunFiles, task: str, attempt: int, name: str, kind: Type[R]) -> Optional[R]:
    return read_of_attempt(paths.attempt_directory(files.directory, task, attempt), name, kind)
