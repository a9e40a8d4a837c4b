"""Restarts agents without a controller: by a keeper whose agent has ended, after a reboot, or by their guard.

Guard and supervisor are two processes of a run, each of which detects when the other was killed, and replaces it. Two
pipes connect them, into which nothing is ever written: when one is closed, the process at its other end has ended. They
share the descriptor of `agent.lock`, so that it is free only when both have ended; and the guard also has `wake` open,
so that a session finds a reader even while a supervisor is being replaced.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from contextlib import suppress

from ..host import daemon, paths, programs, wake
from ..host.files import private
from ..run import environment
from ..run.runfiles import RunFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, List, Optional, Sequence, Tuple


_RETIRED = "retired"


def command(directory: str) -> List[str]:
    """Starts the agent of a run directory. It ends at once when there is one."""
    return [sys.executable or "python3", "-IS", programs.directory(), "supervise", directory]


def open_log(files: RunFiles) -> int:
    return private(files.agent_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def retire(files: RunFiles) -> None:
    """Marks the run: an agent that is killed from now on gets no successor until a session requests one."""
    with suppress(FileNotFoundError):
        paths.write_text(files.path(_RETIRED), "")
        wake.ring(files.wake_path)


def is_retired(files: RunFiles) -> bool:
    return os.path.exists(files.path(_RETIRED))


def take_up(files: RunFiles) -> None:
    """Undoes `retire`, for an agent that was started after all."""
    with suppress(FileNotFoundError):
        os.unlink(files.path(_RETIRED))


def is_orphaned(files: RunFiles) -> bool:
    """Whether a run has work here, and no agent."""
    try:
        return not wake.is_read(files.wake_path) and not is_over(files)
    except OSError:
        return False  # removed


def is_over(files: RunFiles) -> bool:
    """Whether a run has no work left here, unless a session requests some. Raises RunRemoved."""
    try:
        return is_retired(files) or files.state()["finished"]
    except paths.Damaged:
        return False  # an agent writes it again


def every(root: str, host: Optional[str] = None) -> Iterator[RunFiles]:
    """The run directories below the root, valid or not; those being made or removed have another name.

    `host`: only those of this host of the inventory; others may share its home directory.
    """
    runs = os.path.join(root, "runs")
    for run in filter(paths.is_component, paths.entries(runs)):
        for name in filter(paths.is_component, paths.entries(os.path.join(runs, run))):
            if host in (None, name):
                yield RunFiles(os.path.join(runs, run, name))


def comes_back(files: RunFiles) -> bool:
    """Whether a reboot of this machine must restart the run here. Raises RunRemoved, Damaged."""
    return files.is_of_this_machine() and files.spec()["recovery"]["reboot"] == "auto"


def revive_all(root: str) -> None:
    """Starts an agent for every live run that must restart; called after a reboot, and each minute."""
    for files in every(root):
        with suppress(OSError, paths.Damaged):  # incomplete, or being removed, or without a readable spec
            if comes_back(files) and is_orphaned(files):
                start(files)


def start(files: RunFiles) -> None:
    """Starts an agent and does not wait for it."""
    daemon.detached(lambda: _become_agent(files, open_log(files), ()))


def start_child(files: RunFiles, prefix: Sequence[str], supervise: Callable[[str], None]) -> int:
    """The pid of a new agent, for a session: its child until it ends, which need not read the program again."""
    log = open_log(files)

    def work() -> None:
        os.setsid()
        _become_agent(files, log, prefix, supervise)

    try:
        return daemon.fork(work)
    finally:
        os.close(log)


def _become_agent(
    files: RunFiles, log: int, prefix: Sequence[str], supervise: Optional[Callable[[str], None]] = None
) -> None:
    """Execs, unless this process can continue as the agent, by `supervise`."""
    os.chdir("/")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    daemon.close_descriptors(but=programs.held())
    argv, variables = command(files.directory), environment.encoded(environment.base())
    # /proc would continue to show it, and a process that has one counts as a trainer
    own_key = b"DTCTL_KEY" in os.environb
    if supervise is None or prefix or own_key or not daemon.take_command_line(argv):
        daemon.restore_signals()
        argv = [*prefix, *argv]
        os.execvpe(argv[0], argv, variables)
    os.environb.clear()
    os.environb.update(variables)
    gc.set_threshold(700)  # as Python begins: an agent lives longer than the session that it is forked from
    gc.freeze()  # what has a descriptor that is closed here must never be finalized, or it would close another's
    supervise(files.directory)


FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 10.0
HEALTHY_S = 60.0
"""After a supervisor has lived this long, the delays start over."""


class Guarded:
    """A run and how its supervisor works. `lock` is the descriptor that both processes hold."""

    def __init__(self, files: RunFiles, lock: int, supervise: Callable[[Bond], None]) -> None:
        self.files = files
        self.lock = lock
        self.supervise = supervise


class Bond:
    """A supervisor's to its guard."""

    def __init__(self, run: Guarded, guard: Tie) -> None:
        self.files = run.files
        self._run = run
        self._bind(guard)

    def renew(self) -> None:
        """Creates a new guard if the old one was killed.

        Called in every loop: it costs one system call while there is a guard.
        """
        if not self._guard.ended():
            return
        self._guard.close()
        ours, guards = _tie()
        guards.pid = os.getpid()
        daemon.detached(lambda: _become_guard(self._run, guards))
        guards.close()
        self._bind(ours)

    def _bind(self, guard: Tie) -> None:
        os.set_blocking(guard.reads, False)
        self._guard = guard


class Tie:
    """One end: `reads` ends when the process `pid` does, and that process's `reads` ends when `holds` is closed."""

    def __init__(self, reads: int, holds: int, pid: int = 0) -> None:
        self.reads = reads
        self.holds = holds
        self.pid = pid

    def ended(self) -> bool:
        """Needs `reads` not to block."""
        try:
            return not os.read(self.reads, 1)
        except BlockingIOError:
            return False

    def wait(self) -> None:
        """Waits until the other process has ended."""
        os.read(self.reads, 1)
        self.close()
        with suppress(ChildProcessError):  # it is older than this guard
            os.waitpid(self.pid, 0)

    def close(self) -> None:
        os.close(self.reads)
        os.close(self.holds)


def _tie() -> Tuple[Tie, Tie]:
    first_reads, first_writes = os.pipe()
    second_reads, second_writes = os.pipe()
    return Tie(first_reads, second_writes), Tie(second_reads, first_writes)


def watch(run: Guarded, supervisor: Optional[Tie]) -> None:
    """The life of a guard: starts a supervisor when there is none, and again when it was killed, until it is over."""
    daemon.rename("dtctl-guard")
    listening = wake.listen(run.files.wake_path)
    delay = FIRST_DELAY_S
    while True:
        began = time.monotonic()
        supervisor = supervisor or _start(run, listening)
        supervisor.wait()
        if _is_over(run.files, supervisor.pid):
            break
        supervisor = None
        if time.monotonic() - began > HEALTHY_S:
            delay = FIRST_DELAY_S
        _pause(listening, delay)
        delay = min(2 * delay, LONGEST_DELAY_S)
    os.close(listening)


def _pause(listening: int, delay_s: float) -> None:
    """Waits, but not longer than until a session wakes the supervisor, which reads the files when it starts."""
    if select.select([listening], [], [], delay_s)[0]:
        os.read(listening, 65536)


def _become_guard(run: Guarded, supervisor: Tie) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # that of a supervisor ends its tasks
    daemon.close_descriptors(but=[run.lock, supervisor.reads, supervisor.holds, *programs.held()])
    gc.freeze()  # as for a new agent
    watch(run, supervisor)


def _start(run: Guarded, listening: int) -> Tie:
    supervisors, guards = _tie()

    def work() -> None:
        guards.close()
        os.close(listening)
        daemon.rename("dtctl-agent")
        run.supervise(Bond(run, supervisors))

    pid = daemon.fork(work)
    supervisors.close()
    guards.pid = pid
    return guards


def _is_over(files: RunFiles, supervisor: int) -> bool:
    """Whether the supervisor with this pid had no work left or was retired, or the run was removed."""
    if is_retired(files):
        return True
    try:
        state = files.state()
    except FileNotFoundError:
        return True
    except (OSError, paths.Damaged):
        return False
    return state["finished"] and state["agent"] is not None and state["agent"]["pid"] == supervisor
