"""Where a hung trainer hangs, asked for before it is killed: in the attempt's `stack`, and in its log.

What /proc tells; what py-spy tells, where it is installed beside the trainer; and Python's own faulthandler, which
answers SIGABRT with the tracebacks of all threads when PYTHONFAULTHANDLER is set.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from ..dump import spying
from ..host import files, paths, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Optional

    from ..records.run_state import Process

PY_SPY_LIMIT_S = 5.0
ABORT_LIMIT_S = 3.0


class StackDump:
    """In steps that do not wait."""

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
        """True when there is no more to be learnt."""
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
                for thread in paths.entries("/proc/%d/task" % process.pid):
                    file.write(_thread(process.pid, thread))
                file.write("\n")

    def _begin_spying(self) -> Optional[subprocess.Popen[bytes]]:
        program = spying.find(processes.words(self._trainer["pid"]), self._environment)
        if program is None:
            return None
        import subprocess

        line = spying.command(program, self._trainer["pid"])
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


def _thread(pid: int, thread: str) -> str:
    """One line, and the stack in the kernel where we may see it."""
    name = "task/%s/" % thread
    told = {each: processes.proc_text(pid, name + each).strip() for each in ("comm", "wchan", "stack")}
    stack = "".join("    %s\n" % line for line in told["stack"].splitlines())
    return "  thread %s (%s) waits in %s\n%s" % (thread, told["comm"], told["wchan"] or "?", stack)
