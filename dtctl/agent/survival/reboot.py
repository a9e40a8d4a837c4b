"""What brings the agents of a root back after a restart of the machine, where the host allows it.

There is one entry for a root: a unit of the user's systemd, else an `@reboot` line of cron. It is made when a run is
kept that is to come back, and removed with the files of the last such run: until then `restart` may give a run that
has ended new life.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress

from ..host import locks, machine, paths, programs
from ..host.machine import Lacking
from ..run.runfiles import RunFiles
from . import cron, revival, user_unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple


def offer(root: str) -> Tuple[Optional[str], str]:
    """Makes the entry and says which kind it is (systemd or cron), or None and why there is none."""
    try:
        if not machine.home_is_the_accounts():
            raise Lacking("HOME of this session is not the home directory of %s" % machine.user_name())
        with _alone():
            kind = _install(root, [sys.executable, "-IS", programs.set_current(root), "revive"])
    except (Lacking, OSError) as error:  # the run is kept all the same
        return None, str(error)
    return kind, ""


def _install(root: str, words: List[str]) -> str:
    try:
        user_unit.install(_unit(root), user_unit.text(words, machine.machine_id()))
        return "systemd"
    except Lacking as no_unit:
        try:
            cron.install(words, _mark(root))
            return "cron"
        except Lacking as no_line:
            raise Lacking("%s, and %s" % (no_unit, no_line)) from no_line


def withdraw(root: str) -> None:
    """Removes the entry when no run that it could bring back has files here any more."""
    if not programs.has_current(root) or not machine.home_is_the_accounts():
        return
    with suppress(Lacking, OSError), _alone():
        if not any(_comes_back(files) for files in revival.every(root)):
            user_unit.remove(_unit(root))
            cron.remove(_mark(root))
            programs.forget_current(root)


def _comes_back(files: RunFiles) -> bool:
    try:
        return revival.comes_back(files)
    except (OSError, paths.Damaged):
        return False


@contextmanager
def _alone() -> Iterator[None]:
    """Shared by all sessions of this user, whatever their root: a crontab is read, changed and written."""
    directory = os.path.join(os.path.expanduser("~"), ".dtctl")
    paths.make_directory(directory)
    lock = locks.wait_turn(os.path.join(directory, "reboot.lock"), done=lambda: False)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _unit(root: str) -> str:
    return "dtctl-agent-%s.service" % _digest(root + machine.machine_id())


def _mark(root: str) -> str:
    return "dtctl-agent-%s" % _digest(root)


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]
