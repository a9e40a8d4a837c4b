"""Writes again what is damaged or missing of a run's files."""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import files as opened
from ..host import paths
from ..records.kinds import made
from ..records.run_state import IntentFile
from ..run.runfiles import CREDENTIAL_FILES, MOVED, first_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional

    from ..records.run_state import State
    from ..records.spec import Spec
    from ..run.runfiles import RunFiles

LASTING = ("spec.json", MOVED, "secrets.json", "environ.json", "machine", "hooks.json", *CREDENTIAL_FILES.values())


def state(files: RunFiles, spec: Spec, wall: float, report: Callable[[str], None]) -> State:
    """Reads state.json. A damaged one is put aside, `report` is called, and the state is rebuilt."""
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
    rebuilt = _by_attempts(files, spec, wall)
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


def _by_attempts(files: RunFiles, spec: Spec, wall: float) -> State:
    """Each task is at its newest attempt: its start, and its end if it has ended, are found as those of a new one.

    Its restarts, and the attempts before that one, are forgotten.
    """
    rebuilt = first_state(spec, wall)
    for task, entry in rebuilt["tasks"].items():
        entry["attempt"] = paths.last_attempt(files.directory, task)
        entry["state"] = "starting" if entry["attempt"] else "pending"
    with suppress(paths.Damaged):
        for task, intent in files.intent()["tasks"].items():
            if task in rebuilt["tasks"]:  # one that is held may have ended for that
                rebuilt["tasks"][task]["generation"] = max(0, intent["generation"] - (intent["want"] == "hold"))
    return rebuilt
