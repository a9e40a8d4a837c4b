"""Answers `dump`: the stacks of live trainers, which continue unharmed (docs/agent.md, "dump")."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ..host import locks, paths, processes
from ..host.secrets import Masks
from ..records.vitals import MOST_PROCESSES, MOST_THREADS, Dump, Missing, ProcessDump, Stack
from . import kernel_threads
from .stacks import Room, Stacks, ask_py_spy, find_py_spy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from ..records.run_state import Entry
    from ..run.runfiles import RunFiles

LIMIT_S = 60.0
"""For all tasks of a host; those that come later are reported without stacks."""
TURN_S = 10.0
"""How long another who asks for the same task's stacks is waited for."""


def serve(files: RunFiles, tasks: Dict[str, Entry], send: Callable[[Dump], None]) -> None:
    """Reports each of these tasks, one after the other; `tasks` holds their entries of state.json."""
    masks = Masks(files.secrets().values())
    until = time.monotonic() + LIMIT_S
    for task, entry in tasks.items():
        send(_dump(files.directory, task, entry, masks, until))


def _dump(run_dir: str, task: str, entry: Entry, masks: Masks, until: float) -> Dump:
    attempt = paths.attempt_directory(run_dir, task, entry["attempt"])
    found = processes.of_attempt(attempt) if entry["attempt"] else []
    found.sort(key=lambda process: (process.pid != entry["pid"], process.pid))  # the trainer first
    answer: List[ProcessDump] = []
    if found:
        turn = None
        with suppress(OSError):  # on a disk that is full they may be the answers to another session
            turn = locks.await_lock(os.path.join(attempt, "stacks.lock"), exclusive=True, patience_s=TURN_S)
        with locks.closing(turn):
            asked = _Asked(Stacks(attempt), masks, until)
            answer = [asked.describe(process) for process in found[:MOST_PROCESSES]]
    return {
        "task": task,
        "attempt": entry["attempt"],
        "state": entry["state"],
        "processes": answer,
        "omitted": max(0, len(found) - MOST_PROCESSES),
    }


class _Asked:
    """The processes of one task, asked one after the other."""

    def __init__(self, stacks: Stacks, masks: Masks, until: float) -> None:
        self._stacks = stacks
        self._masks = masks
        self._until = until
        self._room = Room()

    def describe(self, process: processes.Process) -> ProcessDump:
        pid = process.pid
        text = ""
        stacks: List[Stack] = []
        missing: Optional[Missing] = None
        way: Optional[str] = None
        most = min(MOST_THREADS, self._room.threads)
        kernel, kernel_omitted = kernel_threads(pid, most)  # before it is asked, which wakes it
        self._room.threads -= len(kernel)
        if time.monotonic() > self._until:
            missing = "no_time"
        elif not self._is_python(pid):
            missing = "not_python"
        else:
            way, stacks, missing, text = self._ask(process)
        kept, omitted = self._room.take(sorted(stacks, key=lambda stack: not stack["main"]))
        return {
            "pid": pid,
            "command": self._masks.hide_text(processes.command(pid))[: processes.LONGEST_COMMAND],
            "way": way,  # type: ignore[typeddict-item]
            "stacks": kept,
            "stacks_omitted": omitted,
            "missing": missing,
            "said": text,
            "threads": kernel,
            "threads_omitted": kernel_omitted,
        }

    def _ask(self, process: processes.Process) -> Tuple[Optional[str], List[Stack], Optional[Missing], str]:
        variables = processes.environment(process.pid)
        program = find_py_spy(processes.argv(process.pid), variables)
        text = ""
        if program is not None:
            stacks, text = ask_py_spy(program, process.pid, self._masks)
            if stacks:
                return "py-spy", stacks, None, ""
        stacks, hindrance = self._stacks.ask(process, self._masks)
        if hindrance == "no_handler" and not variables.get("PYTHONFAULTHANDLER"):
            hindrance = "off"
        return ("faulthandler" if stacks else None), stacks, hindrance, text

    def _is_python(self, pid: int) -> bool:
        """It runs Python's own program, or one that has loaded Python and answers."""
        try:
            if "python" in os.path.basename(os.readlink("/proc/%d/exe" % pid)):
                return True
        except OSError:
            return False
        return self._stacks.is_open_in(pid)
