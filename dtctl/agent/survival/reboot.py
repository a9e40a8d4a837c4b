"""Restarts the agents of a root, if the host allows it: after a reboot, and within a minute after keeper, agent and
guard were killed together.

There is one entry for a root: a unit of the user's systemd, else two lines of cron. It is created when a run is kept
or restarted that must survive a reboot, and removed when the last such run has ended here: by its agent, or by the
next `down` or `gc` if that was killed.

The lines in the crontab are recognised by the mark at their end; all other lines stay unchanged. crontab(5): a line
is run by sh, `%` must be escaped, PATH is short, and output is sent as mail.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress

from ..host import daemon, locks, machine, paths, processes, programs
from ..host.machine import Lacking
from ..run.runfiles import RunFiles
from . import revival, systemd

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Callable, Iterator, List, Literal, Optional, Sequence, Tuple

    Kind = Literal["systemd", "cron"]


_KEPT = "source"
"""Written by the bootstrap, together with all others."""
_SETTLED = "settled"


def settle_later() -> None:
    """Flushes the program that this process runs from to the disk, once, by a process in the background."""
    program = programs.directory()
    kept, settled = (os.path.join(program, name) for name in (_KEPT, _SETTLED))
    if os.path.exists(kept) and paths.modified_ns(settled) < paths.modified_ns(kept):
        with suppress(OSError):  # no room for a process; the next run tries again
            daemon.detached(lambda: _settle_alone(program))


def _settle_alone(program: str) -> None:
    daemon.close_descriptors(but=programs.held())
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # a connection ends when no process has them any more
        os.dup2(nothing, stream)
    os.chdir("/")
    settle(program)


def settle(program: str) -> None:
    """Syncs all files of the program, and the name of its directory, to the disk."""
    for directory, below, names in os.walk(program):
        for name in (*below, *names):
            with suppress(FileNotFoundError):  # a temporary name
                paths.sync(os.path.join(directory, name))
    paths.sync(program)
    paths.write_text(os.path.join(program, _SETTLED), "")


def offer(root: str) -> Tuple[Optional[Kind], str, bool]:
    """Creates the entry; returns its kind (systemd or cron), or None, then a reason, and whether it is new.

    The reason is why there is none, or why it is unknown whether one that was created has an effect.
    """
    try:
        if not machine.home_is_the_accounts():
            raise Lacking("HOME of this session is not the home directory of %s" % machine.user_name())
        kind, new, unsure = _install(root)
    except (Lacking, OSError) as error:  # the run is kept anyway
        return None, str(error), False
    settle_later()
    return kind, unsure, new


def _argv(root: str) -> List[str]:
    # -B: Python would make the missing directory of a cache for __main__.py where `current` has just been removed
    return [sys.executable, "-BIS", programs.set_current(root), "revive"]


_UNSEEN = "whether cron runs is unknown, as /proc hides the processes of other users (hidepid)"


def _install(root: str) -> Tuple[Kind, bool, str]:
    """Creates the entry; returns also why it may have no effect.

    Only a writer takes the lock: hosts with a shared home directory query systemd and cron concurrently.
    """
    try:
        if problem := systemd.why_unusable():
            raise Lacking(problem)
        with _alone():
            return (
                "systemd",
                systemd.install_unit(_unit(root), systemd.unit_text(_argv(root), machine.machine_id())),
                "",
            )
    except Lacking as no_unit:
        try:
            runs = _daemon_runs()
            if runs is False:
                raise Lacking("no cron daemon runs")
            with _alone():
                return "cron", install_lines(_argv(root), _mark(root)), "" if runs else _UNSEEN
        except Lacking as no_line:
            raise Lacking("%s, and %s" % (no_unit, no_line)) from no_line


def withdraw(root: str) -> None:
    """Removes the entry if there is no run left that it could restart."""
    if not programs.has_current(root) or not machine.home_is_the_accounts():
        return
    with suppress(Lacking, OSError), _alone():
        waits_elsewhere = False
        for files in filter(_waits, revival.every(root)):
            if files.is_of_this_machine():
                return
            waits_elsewhere = True
        systemd.remove_unit(_unit(root))
        remove_lines(_mark(root))
        if not waits_elsewhere:  # other machines that share the home directory begin with the same program
            programs.forget_current(root)


def offer_later(root: str) -> None:
    """The same as `offer`, in a separate process: an agent does not wait for a crontab."""
    daemon.detached(lambda: _apart(offer, root))


def withdraw_later(root: str) -> None:
    """The same as `withdraw`, in a separate process."""
    if programs.has_current(root) and machine.home_is_the_accounts():
        daemon.detached(lambda: _apart(withdraw, root))


def _apart(work: Callable[[str], object], root: str) -> None:
    daemon.close_descriptors(but=programs.held())  # above all the agent's lock, which may end now
    os.chdir("/")
    work(root)


def _waits(files: RunFiles) -> bool:
    """Whether a reboot of its machine must restart the run."""
    try:
        return files.spec()["recovery"]["reboot"] == "auto" and not revival.is_over(files)
    except (OSError, paths.Damaged):
        return False


@contextmanager
def _alone() -> Iterator[None]:
    """Excludes other sessions of this user, of any root, while a crontab is read, changed and written.

    Not for ever: what holds the lock for seconds is a trainer, or suspended, and a start does not wait for it.
    """
    directory = os.path.join(os.path.expanduser("~"), ".dtctl")
    paths.make_directory(directory)
    with locks.closing(locks.await_lock(os.path.join(directory, "reboot.lock"), True, locks.PATIENCE_S)):
        yield


def _unit(root: str) -> str:
    return "dtctl-agent-%s.service" % _digest(root + machine.machine_id())


def _mark(root: str) -> str:
    return "dtctl-agent-%s" % _digest(root)


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]


DAEMONS = ("cron", "crond")
CRONTAB_LIMIT_S = 10.0


WHEN = ("@reboot", "* * * * *")


def lines(argv: Sequence[str], mark: str) -> bytes:
    import shlex

    command = " ".join(shlex.quote(argument) for argument in argv).replace("%", "\\%")
    return os.fsencode("".join("%s %s >/dev/null 2>&1 # %s\n" % (when, command, mark) for when in WHEN))


def without(table: bytes, mark: str) -> bytes:
    """The crontab without the lines that end with this mark."""
    end = b"# " + mark.encode()
    return b"".join(each for each in table.splitlines(keepends=True) if not each.rstrip(b"\r\n").endswith(end))


def with_lines(table: bytes, argv: Sequence[str], mark: str) -> bytes:
    others = without(table, mark)
    if others and not others.endswith(b"\n"):
        others += b"\n"
    return others + lines(argv, mark)


def install_lines(argv: Sequence[str], mark: str) -> bool:
    """Adds the lines; False if they exist. Raises Lacking if they would have no effect."""
    for argument in argv:
        if not {"\n", "\r", "\\"}.isdisjoint(argument):  # implementations of cron differ in backslashes
            raise Lacking("%r cannot be written into a crontab" % argument)
    before = _crontab_read()
    wanted = with_lines(before, argv, mark)
    if before != wanted:
        _crontab_write(wanted)
    if lines(argv, mark) not in _crontab_read():
        raise Lacking("crontab has not kept the lines")
    return before != wanted


def remove_lines(mark: str) -> None:
    """Raises Lacking."""
    before = _crontab_read()
    after = without(before, mark)
    if after != before:
        _crontab_write(after)


def _crontab_read() -> bytes:
    done = _crontab(["-l"])
    if done.returncode == 0:
        return done.stdout
    if b"no crontab for" in done.stderr:  # otherwise the crontab may be unreadable: it must not be replaced
        return b""
    raise Lacking("crontab -l: %s" % _complaint(done))


def _crontab_write(table: bytes) -> None:
    done = _crontab(["-"], table) if table else _crontab(["-r"])
    if done.returncode != 0:
        raise Lacking("crontab: %s" % _complaint(done))


def _crontab(arguments: List[str], given: Optional[bytes] = b"") -> subprocess.CompletedProcess[bytes]:
    import subprocess

    try:
        return subprocess.run(
            ["crontab", *arguments],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=CRONTAB_LIMIT_S,
            env=dict(os.environ, LC_ALL="C"),
        )
    except FileNotFoundError:
        raise Lacking("there is no crontab command") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise Lacking("crontab: %s" % error) from error


def _complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    return lines[0].strip() or "exit code %d" % done.returncode


def _daemon_runs() -> Optional[bool]:
    """None: unknown, as this user does not see the processes of others."""
    if any(processes.proc_text(pid, "comm").strip() in DAEMONS for pid in processes.of_user(0)):
        return True
    return False if processes.sees_others() else None
