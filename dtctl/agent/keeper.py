"""The parent of one trainer. It outlives the supervisor, and does nothing but record the start and the exit."""

from __future__ import annotations

import errno
import json
import os
import signal
import time

from . import birth, environment, files, paths, processes, programs, revival, wake
from .runfiles import RunFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, NoReturn, Optional

CANNOT_RUN = 127
"""Exit code of a command that could not be run at all, as of a shell."""

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.EIO)
"""Errors that another attempt may not meet."""

LOOK_S = 5.0
"""How often a keeper looks whether its agent is there."""


class Launch:
    """All that one attempt needs. Nothing in it is looked up again later."""

    def __init__(
        self, directory: str, wake_path: str, argv: List[str], env: Mapping[str, str], cwd: str, key: str
    ) -> None:
        self.directory = directory
        self.wake_path = wake_path
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.key = key


def launch(what: Launch) -> None:
    """Starts a keeper, which starts the trainer, and returns at once; all news comes in the attempt's files.

    The keeper is no child of the caller and is in a session of its own.
    """
    birth.detached(lambda: _keep(what))


def _keep(what: Launch) -> None:
    # above all the lock of the supervisor, which must be able to end before its trainers
    birth.close_descriptors(but=programs.held())
    birth.rename("dtctl-keeper")
    started = time.time()
    go_read, go_write = os.pipe()
    fault_read, fault_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go_write)
        _become_trainer(what, go_read, fault_write)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # not before the fork: a stop must be able to end what is about to exec
    os.close(go_read)
    os.close(fault_write)
    error = _record_start(what, pid, started)
    if error is None:
        os.write(go_write, b"g")
    os.close(go_write)
    fault = _read_all(fault_read)
    if error is None and not fault:
        wake.ring(what.wake_path)
    run = RunFiles(os.path.dirname(what.wake_path))
    _record_exit(what, _wait(pid, run), fault, error)
    if revival.is_orphaned(run):
        revival.start(run)


def _wait(pid: int, run: RunFiles) -> int:
    """The status of the trainer's end. An agent that is gone at two looks, guard and all, gets a successor."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    orphaned = False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        before, orphaned = orphaned, revival.is_orphaned(run)
        if before and orphaned:
            revival.start(run)
            orphaned = False
        signal.sigtimedwait([signal.SIGCHLD], LOOK_S)


def _become_trainer(what: Launch, go: int, fault: int) -> NoReturn:
    error: Dict[str, Any] = {}
    try:
        if os.read(go, 1) != b"g":  # not recorded, or the keeper was killed: it must not run
            os._exit(CANNOT_RUN)
        error = _prepare_and_exec(what)
    except BaseException as bug:
        error = {"text": repr(bug), "final": False}
    finally:
        os.write(fault, json.dumps(error).encode())
        os._exit(CANNOT_RUN)


def _prepare_and_exec(what: Launch) -> Dict[str, Any]:
    """Returns only when something was in the way."""
    doing = "open the log"
    try:
        log = files.descriptor(os.path.join(what.directory, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        doing = "enter %s" % what.cwd
        os.chdir(environment.encode(what.cwd))
        doing = "run %s" % what.argv[0]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.setsid()
        birth.restore_signals()
        os.execvpe(
            environment.encode(what.argv[0]),
            [environment.encode(word) for word in what.argv],
            environment.encoded(what.env),
        )
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        return {"text": "cannot %s: %s" % (doing, reason), "final": error.errno not in _PASSING}
    except ValueError as unfit:
        return {"text": "cannot %s: %s" % (doing, unfit), "final": True}


def _record_start(what: Launch, pid: int, started: float) -> Optional[str]:
    """Writes start.json; a text when the trainer must not run."""
    trainer = processes.Process.read(pid)
    me = processes.myself()
    value = {
        "pid": pid,
        "start_time": trainer.start_time if trainer else None,
        "boot_id": me["boot_id"],
        "keeper": {"pid": me["pid"], "start_time": me["start_time"]},
        "started": started,
        "key": what.key,
        "argv": what.argv,
    }
    try:
        if not paths.claim_json(os.path.join(what.directory, "start.json"), value):
            return "given up before it was started"
    except OSError as error:
        return "cannot record the start: %s" % os.strerror(error.errno or 0)
    return None


def _record_exit(what: Launch, status: int, fault: bytes, error: Optional[str]) -> None:
    """Writes exit.json, for as long as it takes: an exit code is never lost to a full disk."""
    ending = {
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "error": error,
        "ended": time.time(),
    }
    if fault:
        told = json.loads(fault)
        ending.update(code=CANNOT_RUN if told["final"] else None, error=told["text"])
    elif error is not None:
        ending.update(code=None)
    while os.path.isdir(what.directory):
        try:
            paths.write_json(os.path.join(what.directory, "exit.json"), ending)
            break
        except OSError:
            time.sleep(1.0)
    wake.ring(what.wake_path)


def _read_all(descriptor: int) -> bytes:
    """Until every copy of the other end is closed: for `fault`, by a successful exec."""
    data = b""
    while True:
        chunk = os.read(descriptor, 4096)
        if not chunk:
            os.close(descriptor)
            return data
        data += chunk
