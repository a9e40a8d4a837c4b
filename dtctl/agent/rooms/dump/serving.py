"""dump: the stacks of live trainers, to a controller.

The handler of faulthandler was installed by dump/site/sitecustomize.py, and may no longer work: a trainer can set
another one, block the signal or close the file. A process gets the signal only if it was just observed to handle it:
otherwise the signal would end it (docs/agent.md, "dump").
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress

from ...dump import FILE, SIGNAL, Signals, descriptors_of, kernel_threads
from ...dump.stacks import find_py_spy, frame, py_spy_command, read
from ...host import files, locks, paths, processes
from ...host.secrets import Masks
from ...records import kinds
from ...records.values import MOST_PROCESSES
from ...records.vitals import LONGEST_NAME, MOST_FRAMES, MOST_STACKS, MOST_THREADS, Stack
from ...requests import runs
from .records import Dump, DumpRequest, Missing, ProcessDump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

    from ...conversation import Conversation
    from ...records.answers import RunResult
    from ...records.run_state import Entry
    from ...run.runfiles import RunFiles
    from .records import DumpRequest


def dump(talk: Conversation, request: DumpRequest) -> RunResult:
    run = runs.need(talk, request)
    state = run.state()["tasks"]
    serve(
        run.files, {task: state[task] for task in run.tasks(request["tasks"])}, lambda record: talk.send("dump", record)
    )
    return {"run": run.id}


MOST_FRAMES_IN_ALL = 4000


MOST_THREADS_IN_ALL = 1500
"""The most threads of one task, which is sent in one frame of the protocol."""


class Room:
    """The number of frames and threads of a task that may still be reported."""

    def __init__(self) -> None:
        self._left = MOST_FRAMES_IN_ALL
        self.threads = MOST_THREADS_IN_ALL

    def take(self, stacks: List[Stack]) -> Tuple[List[Stack], int]:
        """The stacks for which there is room, with the innermost frames of each; and the number of omitted stacks."""
        kept: List[Stack] = []
        for stack in stacks[:MOST_STACKS]:
            most = min(MOST_FRAMES, self._left)
            if most <= 0:
                break
            frames = stack["frames"][:most]
            omitted = stack["omitted"] + len(stack["frames"]) - len(frames)
            kept.append({**stack, "frames": frames, "omitted": omitted})
            self._left -= max(1, len(frames))
        return kept, len(stacks) - len(kept)


LIMIT_S = 5.0


_YOUNG_S = 1.0
"""One that has begun just now may be about to run another program, which has no handler."""


_LOOK_S = 0.02


_MOST_BYTES = 8 << 20


class Stacks:
    """The file of an attempt that the handlers of its processes write to."""

    def __init__(self, attempt: str) -> None:
        self.path = os.path.join(attempt, FILE)

    def read(self, process: processes.Process, masks: Masks) -> Tuple[List[Stack], Optional[Missing]]:
        """The stacks of one process, or why there are none."""
        missing = self._why_not(process)
        if missing is not None:
            return [], missing
        try:
            opened = files.descriptor(self.path, os.O_RDWR)
        except OSError:
            return [], "closed"
        try:
            os.ftruncate(opened, 0)
            before = Signals(process.pid, SIGNAL).blocked_by
            processes.send_signal([process], SIGNAL)
            missing = _wait(process, opened, before)
            text = masks.hide(files.read_at(opened, 0, min(os.fstat(opened).st_size, _MOST_BYTES)))
            os.ftruncate(opened, 0)
        finally:
            os.close(opened)
        stacks = read(text.decode("utf-8", "replace"))
        return stacks, None if stacks else missing or "no_answer"

    def is_open_in(self, pid: int) -> bool:
        return bool(descriptors_of(pid, self.path))

    def _why_not(self, process: processes.Process) -> Optional[Missing]:
        signals = Signals(process.pid, SIGNAL)
        if not signals.state:
            return "ended"
        is_open = self.is_open_in(process.pid)
        if not is_open:
            return "closed" if signals.is_caught else "no_handler"
        if not signals.is_caught:
            return "replaced"
        if signals.is_blocked:
            return "blocked"
        if signals.state in "Tt":
            return "stopped"
        return "young" if process.age_s < _YOUNG_S else None


def _wait(process: processes.Process, opened: int, before: Set[str]) -> Optional[Missing]:
    """Waits until the handler has written everything: until then a thread blocks the signal that did not `before`."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        signals = Signals(process.pid, SIGNAL)
        if not signals.state or signals.state == "Z":
            return "ended"
        if os.fstat(opened).st_size and not signals.is_pending and signals.blocked_by <= before:
            return None
        time.sleep(_LOOK_S)
    return "not_delivered" if Signals(process.pid, SIGNAL).is_pending else "no_answer"


def ask_py_spy(program: str, pid: int, masks: Masks) -> Tuple[List[Stack], str]:
    """The stacks of one process; without any, what py-spy has printed."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            command = py_spy_command(program, pid, "--json")
            spy = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd="/", timeout=LIMIT_S, check=False
            )
        except OSError as error:
            return [], "%s: %s" % (program, error.strerror)
        except subprocess.TimeoutExpired:
            return [], "%s has not answered within %g s" % (program, LIMIT_S)
        text, errors = (masks.hide(_read_file(file)).decode("utf-8", "replace") for file in (out, err))
    if spy.returncode == 0:
        try:
            return _stacks(kinds.parse_json(text), pid), ""
        except (ValueError, TypeError, KeyError, AttributeError):
            errors = "%s printed no list of stacks" % program
    return [], errors.strip().split("\n")[0][:LONGEST_NAME] or "%s ended with exit code %d" % (program, spy.returncode)


def _read_file(file: Any) -> bytes:
    file.seek(0)
    data: bytes = file.read(_MOST_BYTES)
    return data


def _stacks(answer: Any, pid: int) -> List[Stack]:
    """Raises what a text of another form makes of it."""
    found = [_stack(one) for one in answer if one.get("pid", pid) == pid]
    if not found:
        raise ValueError
    return found


def _stack(answer: Dict[str, Any]) -> Stack:
    tid = answer.get("os_thread_id")
    return {
        "thread": "0x%x" % int(answer["thread_id"]),
        "name": str(answer.get("thread_name") or "")[:LONGEST_NAME],
        "tid": int(tid) if tid else None,
        "main": answer.get("thread_name") == "MainThread",
        "active": bool(answer.get("active")),
        "gil": bool(answer.get("owns_gil")),
        "frames": [frame(one["name"], one["filename"], one.get("line")) for one in answer["frames"]],
        "omitted": 0,
    }


ALL_LIMIT_S = 60.0
"""The time limit for all tasks of a host; later ones are reported without stacks."""


TURN_S = 10.0
"""How long to wait for another request for the same task's stacks."""


@contextmanager
def turn_at(attempt: str) -> Iterator[None]:
    """While it lasts, no other session triggers the handlers of this attempt: they write to the same file."""
    turn = None
    with suppress(OSError):  # on a disk that is full they may be the answers to another session
        turn = locks.await_lock(os.path.join(attempt, "stacks.lock"), exclusive=True, patience_s=TURN_S)
    with locks.closing(turn):
        yield


def serve(files: RunFiles, tasks: Dict[str, Entry], send: Callable[[Dump], None]) -> None:
    """Reports each of these tasks, one after the other; `tasks` contains their entries of state.json."""
    masks = Masks(files.secrets().values())
    until = time.monotonic() + ALL_LIMIT_S
    for task, entry in tasks.items():
        send(_dump(files.directory, task, entry, masks, until))


def _dump(run_dir: str, task: str, entry: Entry, masks: Masks, until: float) -> Dump:
    attempt = paths.attempt_directory(run_dir, task, entry["attempt"])
    found = processes.of_attempt(attempt) if entry["attempt"] else []
    found.sort(key=lambda process: (process.pid != entry["pid"], process.pid))  # the trainer first
    answer: List[ProcessDump] = []
    if found:
        with turn_at(attempt):
            asked = _Asked(Stacks(attempt), masks, until)
            answer = [asked.dump(process) for process in found[:MOST_PROCESSES]]
    return {
        "task": task,
        "attempt": entry["attempt"],
        "state": entry["state"],
        "processes": answer,
        "omitted": max(0, len(found) - MOST_PROCESSES),
    }


class _Asked:
    """The processes of one task, which are dumped one after the other."""

    def __init__(self, stacks: Stacks, masks: Masks, until: float) -> None:
        self._stacks = stacks
        self._masks = masks
        self._until = until
        self._room = Room()

    def dump(self, process: processes.Process) -> ProcessDump:
        pid = process.pid
        text = ""
        stacks: List[Stack] = []
        missing: Optional[Missing] = None
        way = ""
        most = min(MOST_THREADS, self._room.threads)
        kernel, kernel_omitted = kernel_threads(pid, most)  # before the signal, which wakes it
        self._room.threads -= len(kernel)
        if time.monotonic() > self._until:
            missing = "no_time"
        elif not is_python(self._stacks, pid):
            missing = "not_python"
        else:
            way, stacks, missing, text = ask(self._stacks, process, self._masks)
        kept, omitted = self._room.take(sorted(stacks, key=lambda stack: not stack["main"]))
        return {
            "pid": pid,
            "command": self._masks.hide_text(processes.command(pid))[: processes.LONGEST_COMMAND],
            "way": way or None,  # type: ignore[typeddict-item]
            "stacks": kept,
            "stacks_omitted": omitted,
            "missing": missing,
            "said": text,
            "threads": kernel,
            "threads_omitted": kernel_omitted,
        }


def ask(stacks: Stacks, process: processes.Process, masks: Masks) -> Tuple[str, List[Stack], Optional[Missing], str]:
    """How the stacks of one process were read, "" if not; the stacks; why there are none; what py-spy has printed."""
    variables = processes.environment(process.pid)
    program = find_py_spy(processes.argv(process.pid), variables)
    text = ""
    if program is not None:
        found, text = ask_py_spy(program, process.pid, masks)
        if found:
            return "py-spy", found, None, ""
    found, hindrance = stacks.read(process, masks)
    if hindrance == "no_handler" and not variables.get("PYTHONFAULTHANDLER"):
        hindrance = "off"
    return ("faulthandler" if found else ""), found, hindrance, text


def is_python(stacks: Stacks, pid: int) -> bool:
    """Whether it runs Python's own program, or one that has loaded Python and installed the handler."""
    try:
        if "python" in os.path.basename(os.readlink("/proc/%d/exe" % pid)):
            return True
    except OSError:
        return False
    return stacks.is_open_in(pid)
