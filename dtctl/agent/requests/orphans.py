"""Processes of dead runs: identifies and ends them.

A process belongs to a run of this root for certain if it is of this user, has the same root directory as this process,
and was given DTCTL_KEY and DTCTL_RUN_DIR (trainers, and all their child processes) or runs an agent's program of this
root for a run directory of it (guards, supervisors, keepers). The run is dead when its directory is missing, or when it
is finished, has no agent, and can have none as its lock is held here.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from functools import lru_cache

from ..host import locks, paths, processes, wake
from ..records.values import brief
from ..run.runfiles import RunFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

    from ..host.processes import Process
    from ..records.answers import ForeignRun

GRACE_S = 5.0
_MOST_NAMED = 5
YOUNG_S = 60.0
"""An agent's process ends by itself when it detects a dead run; an older one hangs."""


class Orphan:
    """`cluster` is None where the process does not show it; `is_agent`: a guard, supervisor or keeper."""

    def __init__(self, process: Process, directory: str, cluster: Optional[str], is_agent: bool = False) -> None:
        self.process = process
        self.directory = directory
        self.cluster = cluster
        self.is_agent = is_agent
        self.command = processes.command(process.pid)

    @property
    def run(self) -> str:
        return os.path.basename(os.path.dirname(self.directory))


def find(root: str, young_s: float = YOUNG_S) -> List[Orphan]:
    """The processes of dead runs, by pid."""
    return _of_root(root, young_s, lru_cache(maxsize=None)(is_dead))


def of_directory(root: str, directory: str) -> List[Orphan]:
    """All processes of one run, whether it is dead or not."""
    return _of_root(root, 0.0, lambda claimed: claimed == directory)


def of_other_accounts() -> List[ForeignRun]:
    """Live runs of other accounts, by the command lines of their supervisors: nothing else of them is readable."""
    import pwd

    found: Dict[Tuple[str, int], ForeignRun] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        directory = _supervised(processes.argv(int(pid), b"-IS"))
        try:
            uid = os.stat("/proc/" + pid).st_uid
        except OSError:
            continue
        if directory is None or uid == os.geteuid():
            continue
        try:
            account = pwd.getpwuid(uid).pw_name
        except KeyError:
            account = str(uid)
        run = directory.split("/")[-2]
        if paths.is_component(run) and paths.is_component(account):
            found[run, uid] = {"run": run, "account": account}
    return [found[key] for key in sorted(found)]


def _supervised(argv: List[str]) -> Optional[str]:
    """The run directory in a supervisor's command line."""
    if len(argv) < 5 or argv[3] != "supervise" or argv[4].count("/") < 2:
        return None
    return argv[4]


def without_files(root: str) -> Iterator[Tuple[str, Optional[str], str]]:
    """Runs without a directory whose processes still run: the directory, the cluster, the problem."""
    found: Dict[str, List[Orphan]] = {}
    for orphan in _of_root(root, YOUNG_S, lambda directory: not os.path.lexists(directory)):
        found.setdefault(orphan.directory, []).append(orphan)
    for directory, left in found.items():
        cluster = next((each.cluster for each in left if each.cluster is not None), None)
        named = "; ".join("%d %s" % (each.process.pid, each.command) for each in left[:_MOST_NAMED])
        more = " and %d more" % (len(left) - _MOST_NAMED) if len(left) > _MOST_NAMED else ""
        problem = "%s is gone, and processes of the run still run: %s%s" % (directory, named, more)
        yield directory, cluster, brief(problem)


def _of_root(root: str, young_s: float, wanted: Callable[[str], bool]) -> List[Orphan]:
    """Processes of runs whose directory is wanted, and all their child processes.

    This process and its ancestors are left out.
    """
    found: Dict[int, Orphan] = {}
    for pid in processes.of_user(os.geteuid()):
        if _claim(pid, root, wanted) is None:
            continue  # most are of no run: for those that count, all is read after the process was identified
        process = processes.Process.read(pid)
        if process is None or process.zombie or not _is_like_us(pid, root):
            continue
        claim = _claim(pid, root, wanted)
        if claim is not None and not (claim[2] and process.age_s < young_s):
            found[pid] = Orphan(process, *claim)
    for orphan in list(found.values()):
        for pid, process in processes.below([orphan.process.pid]).items():
            if pid not in found and _is_like_us(pid, root) and not process.zombie:
                found[pid] = Orphan(process, orphan.directory, orphan.cluster)
    spared = _line_of(os.getpid()) if found else ()
    return [found[pid] for pid in sorted(found) if pid not in spared]


def end_directory(root: str, directory: str, grace_s: float) -> List[Orphan]:
    """Ends all that is left of a run that is not dead: its agents at once, so that none starts anything again."""
    seen: Dict[int, Orphan] = {}
    """All that were found, also processes that only their parent, which ended before them, connected with the run."""

    def refresh() -> List[Orphan]:
        seen.update((orphan.process.pid, orphan) for orphan in of_directory(root, directory))
        return _living(seen.values())

    processes.send_signal([orphan.process for orphan in refresh() if orphan.is_agent], signal.SIGKILL)
    return _end(refresh, grace_s)


def _claim(pid: int, root: str, wanted: Callable[[str], bool]) -> Optional[Tuple[str, Optional[str], bool]]:
    """The wanted run of this root to which a process belongs, its cluster, and whether the process is an agent."""
    given = processes.environment(pid, b"DTCTL_")
    directory, cluster = given.get("DTCTL_RUN_DIR"), given.get("DTCTL_CLUSTER")
    is_agent = not given.get("DTCTL_KEY") or directory is None
    if is_agent:
        directory, cluster = _agents_directory(processes.argv(pid, b"-IS"), root), None
    if directory is None or not (_is_run_directory(directory, root) and wanted(directory)):
        return None
    return directory, cluster, is_agent


def _is_run_directory(directory: str, root: str) -> bool:
    """Whether a path has the form of a run's directory; it may no longer exist."""
    store, run, host = directory.rpartition("/")[0].rpartition("/")[0], *directory.split("/")[-2:]
    return store == os.path.join(root, "runs") and paths.is_component(run) and paths.is_component(host)


def _agents_directory(argv: List[str], root: str) -> Optional[str]:
    """The run directory in the command line of an agent's process, as revival and guard write it."""
    if len(argv) < 5 or argv[3] not in ("supervise", "guard"):
        return None
    return argv[4] if os.path.dirname(argv[2]) == os.path.join(root, "agent") else None


def _is_like_us(pid: int, root: str) -> bool:
    """Whether it belongs to the same user and has the same root directory: it might be in a container."""
    try:
        there = os.stat("/proc/%d/root%s" % (pid, root))
        return os.stat("/proc/%d" % pid).st_uid == os.geteuid() and os.path.samestat(there, os.stat(root))
    except OSError:
        return False


def _line_of(pid: int) -> Set[int]:
    """The process and all that it descends from."""
    line: Set[int] = set()
    process = processes.Process.read(pid)
    while process is not None and process.pid not in line:
        line.add(process.pid)
        process = processes.Process.read(process.parent)
    return line


def is_dead(directory: str) -> bool:
    """Judges a run directory of this root. A finished run may come back to life, unless its lock is held."""
    if not os.path.lexists(directory):
        return True
    files = RunFiles(directory)
    try:
        return bool(files.state()["finished"]) and files.is_of_this_machine() and not wake.is_read(files.wake_path)
    except (OSError, ValueError):
        return False


def end(orphans: Iterable[Orphan]) -> List[Orphan]:
    """Ends those of dead runs, whose locks it holds; returns those that survive SIGKILL."""
    with ExitStack() as held_locks:
        held: Dict[str, bool] = {}
        for orphan in orphans:
            if orphan.directory not in held:
                held[orphan.directory] = _hold_dead(orphan.directory, held_locks)
        dead = [orphan for orphan in orphans if held[orphan.directory]]
        return _end(lambda: _living(dead), GRACE_S)


def _hold_dead(directory: str, held_locks: ExitStack) -> bool:
    """Whether the run is dead, and stays so until the locks are released."""
    with suppress(FileNotFoundError):
        if not held_locks.enter_context(locks.alone(RunFiles(directory).lock_path)):
            return False
    return is_dead(directory)


def _end(refresh: Callable[[], List[Orphan]], grace_s: float) -> List[Orphan]:
    processes.end(lambda: [orphan.process for orphan in refresh()], grace_s)
    return refresh()


def _living(orphans: Iterable[Orphan]) -> List[Orphan]:
    return [each for each in orphans if processes.living(each.process.pid, each.process.start_time) is not None]
