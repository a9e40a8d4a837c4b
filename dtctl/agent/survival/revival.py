"""Agents that come back without a controller: by a keeper that finds its agent gone, and after a restart."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from ..host import daemon, fifo, paths, programs
from ..host.files import private
from ..run import environment
from ..run.runfiles import RunFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List

_RETIRED = "retired"


def command(directory: str) -> List[str]:
    """Starts the agent of a run directory. It ends at once when there is one."""
    return [sys.executable or "python3", "-IS", programs.directory(), "supervise", directory]


def open_log(files: RunFiles) -> int:
    return private(files.agent_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def retire(files: RunFiles) -> None:
    """An agent that is killed from now on gets no successor until a session asks for one."""
    with suppress(FileNotFoundError):
        paths.write_text(files.path(_RETIRED), "")
        fifo.ring(files.wake_path)


def is_retired(files: RunFiles) -> bool:
    return os.path.exists(files.path(_RETIRED))


def take_up(files: RunFiles) -> None:
    """Undoes `retire`, for an agent that was started after all."""
    with suppress(FileNotFoundError):
        os.unlink(files.path(_RETIRED))


def is_orphaned(files: RunFiles) -> bool:
    """True for a run that has something to do here, and nobody who does it."""
    try:
        return not fifo.is_read(files.wake_path) and not is_over(files)
    except OSError:
        return False  # removed


def is_over(files: RunFiles) -> bool:
    """True for a run that has nothing to do here any more, unless somebody asks. Raises RunRemoved."""
    try:
        return is_retired(files) or files.state()["finished"]
    except paths.Damaged:
        return False  # an agent writes it anew


def every(root: str) -> Iterator[RunFiles]:
    """The run directories below the root, whatever is in them; those being made or removed have another name."""
    runs = os.path.join(root, "runs")
    for run in filter(paths.is_component, paths.entries(runs)):
        for host in filter(paths.is_component, paths.entries(os.path.join(runs, run))):
            yield RunFiles(os.path.join(runs, run, host))


def comes_back(files: RunFiles) -> bool:
    """Tells whether a restart of this machine is to bring the run back here. Raises RunRemoved, Damaged."""
    return files.is_of_this_machine() and files.spec()["recovery"]["reboot"] == "auto"


def revive_all(root: str) -> None:
    """After a restart of the machine, and each minute: starts an agent for every live run that is to come back."""
    for files in every(root):
        with suppress(OSError, paths.Damaged):  # half made, or being removed; or nothing can be done without its spec
            if comes_back(files) and _is_kept(files) and is_orphaned(files):
                start(files)


def _is_kept(files: RunFiles) -> bool:
    try:
        return files.intent()["session"] is None
    except paths.Damaged:
        return True  # an agent writes it anew, and takes it for kept


def start(files: RunFiles) -> None:
    """Starts an agent and does not wait for it."""
    daemon.detached(lambda: _become_agent(files))


def _become_agent(files: RunFiles) -> None:
    daemon.restore_signals()
    os.chdir("/")
    log = open_log(files)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    words = command(files.directory)
    os.execve(words[0], words, environment.encoded(environment.base()))
