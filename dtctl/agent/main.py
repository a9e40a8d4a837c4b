"""Entry points of the agent's processes on a host: the only processes of a run, which exit at its end.

python3 -IS ~/.dtctl/agent/SHA256 supervise RUN_DIRECTORY        by a keeper or a restart; a session forks instead
python3 -IS ~/.dtctl/agent/SHA256 post                           by a coordinator, to notify a hook by its stdin
python3 -BIS ~/.dtctl/agent/current revive                       after a reboot of the machine
"""

from __future__ import annotations

import os
import signal
import sys

from .host import errors, locks, paths, programs, wake
from .run.runfiles import RunFiles
from .survival import revival

LOCK_LIMIT_S = 10.0
"""The longest wait for an agent that is about to end."""


def supervise(directory: str) -> None:
    """Runs a run on this host. This process becomes the guard of the one that supervises."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs that are run would inherit
    files = RunFiles(directory)
    lock = locks.await_lock(files.lock_path, exclusive=True, patience_s=LOCK_LIMIT_S)
    if lock is None or wake.is_read(files.wake_path):  # the second for a file system without locks
        return
    revival.take_up(files)
    revival.watch(revival.Guarded(files, lock, _supervise), None)


def _supervise(bond: revival.Bond) -> None:
    from .supervise.supervisor import agent_of  # not before: the guard is to stay small
    from .survival import reboot

    try:
        supervisor = agent_of(bond.files)
    except paths.Damaged as damage:  # the spec or the environment: what was in it is unknown here
        errors.note("%s: the agent ends until it is requested again" % damage)
        revival.retire(bond.files)
        return
    programs.save_compiled()
    signal.signal(signal.SIGTERM, lambda *_: supervisor.leave())
    supervisor.run(bond.renew)
    programs.save_compiled()
    reboot.withdraw_later(bond.files.root)


def main_command_line() -> None:
    argv = sys.argv[1:]
    programs.hold()
    if len(argv) == 2 and argv[0] == "supervise":
        supervise(argv[1])
    elif argv == ["post"]:
        from .hooks import sender  # imported late: it loads TLS

        sender.main()
    elif argv == ["revive"]:
        revival.revive_all(os.path.dirname(os.path.dirname(programs.directory())))
    else:
        sys.exit("usage: supervise RUN_DIRECTORY | post | revive")
    programs.save_compiled()
