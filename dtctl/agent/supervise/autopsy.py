"""Finds out why an attempt ended: the end of its log, possible causes on the host, and where it hung.

A hung trainer is asked before it is killed. Into the attempt's `stack` go what /proc shows and what py-spy shows, where
it is installed beside the trainer; Python's own faulthandler answers SIGABRT in the log with the tracebacks of all
threads when PYTHONFAULTHANDLER is set.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress

from ..dump import kernel_threads
from ..host import files, limits, machine, paths, ports, processes
from ..logs.lines import end_of, last_lines
from ..records.reasons import Fact, fact
from ..records.run_state import Ending, Start
from ..records.values import brief
from ..records.vitals import MOST_THREADS
from ..run import policy
from ..run.cause import (
    CANNOT_LOAD,
    OWN,
    cause_of_end,
    ends_in_exception,
    kind_of_error,
    loses_status,
    names_taken_port,
    script_of,
    taken_port,
)
from ..run.traceback import LIBRARY
from ..vitals.machine_load import full_disks

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import List, Optional, Tuple, Type, TypeVar

    from ..host.secrets import Masks
    from ..records.run_state import Entry, Evidence, Exit, Left, Process, ProcessLimit
    from ..records.spec import RecoverySpec
    from ..records.vitals import Frame
    from .attempt import Attempt

    R = TypeVar("R")


_MOST_NAMED = 3
_LONGEST_COMMAND = 200
_LONGEST_FRAME = 200
"""Processes, and characters of their commands and of a frame, that a reason names; state.json has them all."""


_PY_SPY = r'Thread \S+ \([^)\n]*\): "MainThread"\n((?:\s+[^\n]+ \([^()\n]+:\d+\)\n?)+)'
_PY_SPY_FRAME = r"\s+(?P<function>[^\n]+) \((?P<file>[^()\n]+):(?P<line>\d+)\)"
_KERNEL = r"  thread \d+ \([^\n]*\) waits in ((?!0\n|\?)\S+)"
"""The main thread as py-spy prints it, and where the first one waits, by the kernel."""

_STACK_BYTES = 1 << 16


def hung_in(directory: str, log: str) -> str:
    """Where a hung trainer was, by the stacks written before it was killed; "" if unknown. `log`: its log's end.

    Of its main thread the innermost frame of the user's own code, and what that calls; without such a frame the
    innermost of all.
    """
    from ..dump import stacks  # not before: few tasks hang

    text = paths.tail(os.path.join(directory, "stack"), _STACK_BYTES)
    spied = re.search(_PY_SPY, text)
    if spied is not None:
        frames = [
            stacks.frame(one.group("function"), one.group("file"), int(one.group("line")))
            for one in re.finditer(_PY_SPY_FRAME, spied.group(1))
        ]
        return _where(frames)
    written = [one["frames"] for one in sorted(stacks.read(log), key=lambda one: not one["main"]) if one["frames"]]
    if written:
        own = next((frames for frames in written if any(map(_is_users, frames))), written[0])
        return _where(own)
    waits = re.search(_KERNEL, text)
    return "%s (the kernel)" % waits.group(1)[:_LONGEST_FRAME] if waits is not None else ""


def _where(frames: List[Frame]) -> str:
    """The position as text, such as `read_batch (input.py:12), in get (queue.py:171)`. The innermost frame is the
    first.
    """
    own = next((one for one in frames if _is_users(one)), frames[0])
    shown = [own] if own is frames[0] else [own, frames[0]]
    return ", in ".join(map(_frame, shown))[:_LONGEST_FRAME]


def _is_users(one: Frame) -> bool:
    """Whether a frame is of the user's code: py-spy may cut the names of files to what follows their package's path."""
    file = one["file"]
    is_short = not os.path.isabs(file) and os.path.exists(os.path.join(os.path.dirname(os.__file__), file))
    return not is_short and re.search(LIBRARY, file) is None


def _frame(one: Frame) -> str:
    return " ".join(("%s (%s:%s)" % (one["function"], os.path.basename(one["file"]), one["line"])).split())


def exit_of(directory: str, recovery: RecoverySpec, masks: Masks, cwd: str) -> Optional[Exit]:
    """The exit by the files of an attempt that has ended; None if that was not recorded. `cwd`: where it started."""
    ending = read_of_attempt(directory, "exit.json", Ending)
    if ending is None:
        return None
    ending = own_status(read_of_attempt(directory, "start.json", Start), directory, ending, masks, cwd)
    verdict, log = examine(directory, ending, recovery, masks)
    return policy.exit_record(ending, verdict, last_lines(log))


def read_of_attempt(directory: str, name: str, kind: Type[R]) -> Optional[R]:
    """A record of an attempt; None when there is none, or it is damaged."""
    try:
        return paths.read_record(os.path.join(directory, name), kind)
    except (OSError, paths.Damaged):
        return None


def own_status(start: Optional[Start], directory: str, ending: Ending, masks: Masks, cwd: str) -> Ending:
    """The ending with the program's own status: that of Python after an exception, where a pipe has lost it.

    `cwd`: where it started.
    """
    if ending["code"] != 0 or start is None:
        return ending
    argv = list(start["argv"])
    if not loses_status(argv, _script(argv, cwd)):
        return ending
    if not ends_in_exception(end_of(os.path.join(directory, "log"), masks)):
        return ending
    return {**ending, "code": 1, "why": [fact("lost_in_pipe")]}


_SCRIPT_BYTES = 1 << 16


def _script(argv: List[str], cwd: str) -> str:
    """The text of the script that a command runs; empty if it is none, or cannot be read."""
    path = script_of(argv)
    if not path:
        return ""
    try:
        return files.read(os.path.join(cwd, path), _SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:  # a program, or it was removed: then its status is what the system says
        return ""


def examine(directory: str, ending: Ending, recovery: RecoverySpec, masks: Masks) -> Tuple[policy.Verdict, str]:
    """The verdict on an attempt without live processes, and the end of its log with secrets masked."""
    log = end_of(os.path.join(directory, "log"), masks)
    return policy.verdict(ending, cause_of_end(log, ending["code"]), recovery), log


def full_verdict(
    attempt: Attempt, ending: Ending, entry: Entry, port: Optional[int], recovery: RecoverySpec, masks: Masks
) -> Tuple[policy.Verdict, str]:
    """The same with facts from the host. `entry`: as it was when the attempt ended. `port`: the task's own.

    Where its log names the port that it found taken, that one is meant.
    """
    verdict, log = examine(attempt.directory, ending, recovery, masks)
    if entry["state"] == "stalled":
        verdict = policy.Verdict(True)
        verdict.evidence["hung_in"] = hung_in(attempt.directory, log)
    if ending["code"] != 0 and not entry["asked"]:
        named = taken_port(log) if names_taken_port(verdict.cause) else None
        note_beside(verdict.evidence, attempt, ending, named or (port if _may_be_of_port(verdict.cause) else None))
        verdict.evidence["limits"] = _met(ending, verdict.cause, verdict.evidence["oom_kills"])
        verdict.evidence["full_disks"] = full_disks(verdict.cause, attempt.directory)
    of_status = ending["why"] if ending["fault"] is None else []
    verdict.beside = [*_shown(verdict.evidence), *of_status, *left_behind(attempt.left_behind)]
    verdict.killed_after_s = (attempt.killed_after_s or None) if entry["asked"] else None
    return verdict, log


def _may_be_of_port(cause: str) -> bool:
    """Whether a taken port may have led to this cause: to no error of the program itself that names none."""
    return names_taken_port(cause) or not cause or kind_of_error(cause) not in (OWN, CANNOT_LOAD)


def _shown(found: Evidence) -> List[Fact]:
    """The evidence as people read it."""
    port, full = found["port"], {False: "disk_full", True: "own_disk_full"}
    return [
        *([fact("hung_in", text=found["hung_in"])] if found["hung_in"] else []),
        *([fact("port_held", port=port["port"], text=port["holder"])] if port is not None else []),
        *([fact("out_of_memory", count=found["oom_kills"])] if found["oom_kills"] else []),
        *(fact("limit", what="ulimit %s" % limit["option"], text=limit["text"]) for limit in found["limits"]),
        *(fact(full[full_disk["own"]], what=full_disk["path"]) for full_disk in found["full_disks"]),
    ]


def _met(ending: Ending, cause: str, oom_kills: int) -> List[ProcessLimit]:
    """The limits that may have ended it; a shell reports the signal of its program as 128 and more.

    Where the kernel has killed for want of memory, SIGKILL is no sign of a limit of CPU time.
    """
    code = ending["code"]
    number = ending["signal"] or (code - 128 if code is not None and code > 128 else None)
    return limits.met(ending["limits"], cause, number, None if oom_kills else ending["cpu_s"])


def note_beside(found: Evidence, attempt: Attempt, ending: Ending, port: Optional[int]) -> None:
    """Notes other possible causes of an unrequested exit: another process on the port, a host without memory."""
    if port is not None and ports.listening(port):  # no process of the attempt is left that could
        found["port"] = {"port": port, "holder": brief(ports.holder(port))}
    if ending["signal"] == signal.SIGKILL:
        found["oom_kills"] = max(0, machine.oom_kills() - attempt.oom_kills_before)


def left_behind(left: List[Left]) -> List[Fact]:
    """Processes that a trainer left, as one does that moves into the background."""
    if not left:
        return []
    named = ["pid %d, %s" % (each["pid"], each["command"][:_LONGEST_COMMAND]) for each in left[:_MOST_NAMED]]
    more = ["and %d more" % (len(left) - _MOST_NAMED)] if len(left) > _MOST_NAMED else []
    return [fact("and"), fact("left_behind", count=len(left), text="; ".join([*named, *more]))]


PY_SPY_LIMIT_S = 5.0
ABORT_LIMIT_S = 3.0


class StackDump:
    """Writes the stacks of a hung trainer, in steps that do not block."""

    def __init__(self, directory: str, trainer: Process, key: str, now: float) -> None:
        self._path = os.path.join(directory, "stack")
        self._trainer = trainer
        self._key = key
        self._environment = processes.environment(trainer["pid"])
        self._until = now + PY_SPY_LIMIT_S
        self._aborted = False
        self._write_facts()
        self._spy: Optional[subprocess.Popen[bytes]] = self._begin_spying()

    def step(self, now: float) -> bool:
        """Returns True when all stacks are written."""
        if self._spy is not None:
            if self._spy.poll() is None and now < self._until:
                return False
            self.close()
        if not self._aborted:
            self._aborted = True
            if not self._environment.get("PYTHONFAULTHANDLER"):
                return True
            self._until = now + ABORT_LIMIT_S
            self._abort()
        return now >= self._until

    def close(self) -> None:
        """Ends the processes that it has started."""
        if self._spy is not None:
            self._spy.kill()
            self._spy.poll()
            self._spy = None

    def _write_facts(self) -> None:
        with suppress(OSError), open(self._path, "w", encoding="utf-8", opener=files.private) as file:
            for process in processes.tree(self._trainer, [self._key]):
                file.write("process %d: %s" % (process.pid, processes.proc_text(process.pid, "status")))
                for one in kernel_threads(process.pid, MOST_THREADS)[0]:
                    file.write("  thread %d (%s) waits in %s\n" % (one["tid"], one["name"], one["wchan"] or "?"))
                    file.writelines("    %s\n" % line for line in one["kernel"])
                file.write("\n")

    def _begin_spying(self) -> Optional[subprocess.Popen[bytes]]:
        from ..dump.stacks import find_py_spy, py_spy_command  # not before: few tasks hang

        program = find_py_spy(processes.argv(self._trainer["pid"]), self._environment)
        if program is None:
            return None
        import subprocess

        line = py_spy_command(program, self._trainer["pid"], "--full-filenames")
        try:
            with open(self._path, "ab", opener=files.private) as file:
                return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        except OSError:
            return None

    def _abort(self) -> None:
        import resource

        tree = processes.tree(self._trainer, [self._key])
        for process in tree:
            with suppress(OSError, ValueError):  # it has ended, or is not ours to limit: its core is its user's affair
                resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
        processes.send_signal(tree, signal.SIGABRT)
        processes.send_signal(tree, signal.SIGCONT)  # a stopped one does nothing else before it sees the other
