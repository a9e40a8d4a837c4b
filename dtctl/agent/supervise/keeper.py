"""The parent of one trainer. It outlives the supervisor, and does nothing but record the start and the exit."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress

from ..host import daemon, errors, files, paths, processes, programs, wake
from ..host.limits import limits_of
from ..records.kinds import made
from ..records.reasons import Fact, fact
from ..records.run_state import Ending
from ..records.values import brief
from ..run import environment, policy
from ..survival import revival

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Sequence, Tuple

    from ..records.run_state import Obstacle, ProcessLimit, Start
    from ..run.runfiles import RunFiles

LOOK_S = 5.0
"""How often a keeper looks whether its agent is there."""

_OF_SIGNALS = range(129, 160)
"""What containers exit with when a signal has ended the trainer."""

_MOST_WORDS = 1000
_LONGEST_WORD = 4096
"""The most words of a command in start.json, which is there for people to read."""

_LONGEST_SHOWN = 500
"""The most characters of a path or word in an error."""


class AttemptSpec:
    """All that one attempt needs. Nothing in it is looked up again later."""

    def __init__(
        self,
        run: RunFiles,
        directory: str,
        argv: List[str],
        env: Mapping[str, str],
        cwd: str,
        removal: Optional[List[str]] = None,
    ) -> None:
        self.run = run
        self.directory = directory
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.removal = removal
        """The command that removes a trainer's container; empty: there is none."""


class Fault:
    """What kept the trainer from being executed. `final`: it would prevent another attempt, too.

    `shortage`: the host lacked something that passes. `cannot_run`: the program, if that could not be executed.
    """

    def __init__(
        self, why: List[Fact], final: bool, *, shortage: bool = False, cannot_run: Optional[Obstacle] = None
    ) -> None:
        self.why = why
        self.final = final
        self.shortage = shortage
        self.cannot_run = cannot_run

    def encode(self) -> bytes:
        found = {name: getattr(self, name) for name in ("why", "final", "shortage", "cannot_run")}
        return json.dumps(found).encode()

    @classmethod
    def decode(cls, data: bytes) -> Optional[Fault]:
        """None of nothing: exec has succeeded, or the child was killed before."""
        return cls(**json.loads(data)) if data else None


def launch(what: AttemptSpec) -> None:
    """Starts a keeper, which starts the trainer, and returns at once; all news comes in the attempt's files.

    The keeper is no child of the caller and is in a session of its own.
    """
    daemon.detached(lambda: _keep(what))


def _keep(what: AttemptSpec) -> None:
    # above all the lock of the supervisor, which must be able to end before its trainers
    daemon.close_descriptors(but=programs.held())
    daemon.rename("dtctl-keeper")
    _adopt_orphans(True)
    started = time.time()
    go_read, go_write = os.pipe()
    fault_read, fault_write = os.pipe()

    def work() -> None:
        os.close(go_write)
        _become_trainer(what, go_read, fault_write)

    try:
        pid = daemon.fork(work, policy.CANNOT_RUN)
    except OSError as lacking:
        _record_exit(what, 0, _fault("cannot_start", lacking, final=False))
        return
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # not before the fork: a stop must be able to end what is about to exec
    os.close(go_read)
    os.close(fault_write)
    fault = _record_start(what, pid, started)
    if fault is None:
        os.write(go_write, b"g")
    os.close(go_write)
    fault = Fault.decode(_read_all(fault_read)) or fault
    if fault is None:
        wake.ring(what.run.wake_path)
    status, limits, cpu_s = _wait(pid, what.run)
    _record_exit(what, status, fault, limits, cpu_s)
    if what.removal:  # what runs it may have been killed before it could do so
        environment.output_of(what.removal, what.env)
    if revival.is_orphaned(what.run):
        _start_agent(what.run)
    _wait(None, what.run)  # as the agent finds by this process what the trainer has left


def _wait(pid: Optional[int], run: RunFiles) -> Tuple[int, List[ProcessLimit], Optional[float]]:
    """The trainer's exit status, its limits and the CPU time that it has used.

    Without a pid, returns when no child is left, own or adopted.

    If agent and guard are gone at two looks, starts new ones.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    orphaned = False
    while True:
        found = limits_of(pid) if pid is not None and _has_ended(pid) else []
        try:
            ended, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return 0, [], None
        if ended and ended == pid:
            return status, found, used.ru_utime + used.ru_stime
        if ended:
            continue
        before, orphaned = orphaned, revival.is_orphaned(run)
        if before and orphaned:
            _start_agent(run)
            orphaned = False
        signal.sigtimedwait([signal.SIGCHLD], LOOK_S)


def _has_ended(pid: int) -> bool:
    """Whether it is to be waited for: until then /proc shows what it was."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _start_agent(run: RunFiles) -> None:
    """Starts an agent that is not below this process, where it would be taken for the trainer's."""
    _adopt_orphans(False)
    revival.start(run)
    _adopt_orphans(True)


_SET_CHILD_SUBREAPER = 36
"""prctl(2)"""


def _adopt_orphans(wanted: bool) -> None:
    """Whether processes below this one that lose their parent come to this one: none gets out of sight by a fork.

    A Python without ctypes, and a kernel that is not Linux, cannot do that: the trainer runs all the same.
    """
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _become_trainer(what: AttemptSpec, go: int, fault: int) -> None:
    """Returns only when it has become none, and what was in the way is written to `fault`."""
    try:
        if os.read(go, 1) != b"g":  # not recorded, or the keeper was killed: it must not run
            return
        met = _prepare_and_exec(what)
    except BaseException as bug:  # the process ends here, and the keeper records it
        met = Fault([fact("said", text=repr(bug))], False)
    os.write(fault, met.encode())


def _prepare_and_exec(what: AttemptSpec) -> Fault:
    """Returns only when something was in the way."""
    kind, path = "cannot_open_log", ""
    try:
        output = files.descriptor(os.path.join(what.directory, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        kind, path = "cannot_enter", what.cwd
        os.chdir(environment.encode(what.cwd))
        kind, path = "cannot_run", what.argv[0]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.setsid()
        daemon.restore_signals()
        os.execvpe(
            environment.encode(what.argv[0]),
            [environment.encode(argument) for argument in what.argv],
            environment.encoded(what.env),
        )
    except OSError as error:
        return _fault(kind, error, final=not errors.passes(error), what=_cut(path))
    except ValueError as unfit:
        obstacle: Obstacle = {"what": _cut(path), "text": brief(str(unfit))}
        return Fault([fact(kind, **obstacle)], True, cannot_run=obstacle)


def _fault(kind: str, error: OSError, *, final: bool, **fields: str) -> Fault:
    obstacle: Optional[Obstacle] = None
    if kind == "cannot_run":
        obstacle = {"what": fields["what"], "text": brief(error.strerror or "")}
    why = policy.why_of_error(kind, error, **fields)
    return Fault(why, final, shortage=policy.is_shortage(error), cannot_run=obstacle)


def _cut(argument: str) -> str:
    return argument if len(argument) <= _LONGEST_SHOWN else argument[:_LONGEST_SHOWN] + "..."


def _record_start(what: AttemptSpec, pid: int, started: float) -> Optional[Fault]:
    """Writes start.json; returns why the trainer must not run, if so."""
    trainer = processes.Process.read(pid)
    me = processes.myself()
    value: Start = {
        "pid": pid,
        "start_time": trainer.start_time if trainer else None,
        "boot_id": me["boot_id"],
        "keeper": {"pid": me["pid"], "start_time": me["start_time"]},
        "started": started,
        "key": what.directory,
        "contained": what.removal is not None,
        "argv": [argument[:_LONGEST_WORD] for argument in what.argv[:_MOST_WORDS]],
    }
    try:
        if not paths.claim_json(os.path.join(what.directory, "start.json"), value):
            return Fault([fact("given_up")], False)
    except OSError as error:
        return _fault("cannot_record", error, final=False)
    return None


def _record_exit(
    what: AttemptSpec,
    status: int,
    fault: Optional[Fault],
    limits: Sequence[ProcessLimit] = (),
    cpu_s: Optional[float] = None,
) -> None:
    """Writes exit.json, for as long as it takes: an exit code is never lost to a full disk."""
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if what.removal is not None and code is not None and code in _OF_SIGNALS:
        number = _OF_SIGNALS.index(code) + 1
        code = None
    ending = made(Ending, code=code, signal=number, ended=time.time(), limits=[*limits], cpu_s=cpu_s)
    if fault is not None:
        ending.update({"code": policy.CANNOT_RUN if fault.final else None, "fault": "not_run", "why": fault.why})
        ending.update({"shortage": fault.shortage, "cannot_run": fault.cannot_run})
    path = os.path.join(what.directory, "exit.json")
    while os.path.isdir(what.directory):
        try:
            paths.write_json(path, ending)
            break
        except OSError as in_the_way:
            if not errors.passes(in_the_way) and not _clears(path):
                break  # the trainer has made sure that nothing can be written
            time.sleep(1.0)
    wake.ring(what.run.wake_path)


def _clears(path: str) -> bool:
    """Moves what the trainer has put there out of the way; False when there is nothing, or it cannot be moved."""
    try:
        paths.put_aside(path)
    except OSError:
        return False
    return True


def _read_all(descriptor: int) -> bytes:
    """Reads until every copy of the other end is closed; a successful exec closes that of `fault`."""
    data = b""
    while True:
        chunk = os.read(descriptor, 4096)
        if not chunk:
            os.close(descriptor)
            return data
        data += chunk
