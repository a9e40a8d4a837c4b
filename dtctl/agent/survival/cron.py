"""Our lines in the user's crontab, recognised by the mark at their end; all other lines stay as they are.

One for a restart of the machine, and one for each minute, for agents that were killed with all that could bring them
back.

crontab(5): a line is given to sh, `%` has to be escaped, PATH is short, and what is printed is sent as mail.
"""

from __future__ import annotations

import os
import shlex

from ..host.machine import Lacking

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import List, Optional, Sequence

DAEMONS = ("cron", "crond")
LIMIT_S = 10.0


WHEN = ("@reboot", "* * * * *")


def lines(words: Sequence[str], mark: str) -> bytes:
    command = " ".join(shlex.quote(word) for word in words).replace("%", "\\%")
    return os.fsencode("".join("%s %s >/dev/null 2>&1 # %s\n" % (when, command, mark) for when in WHEN))


def without(table: bytes, mark: str) -> bytes:
    """The crontab without the lines that end with this mark."""
    end = b"# " + mark.encode()
    return b"".join(each for each in table.splitlines(keepends=True) if not each.rstrip(b"\r\n").endswith(end))


def with_lines(table: bytes, words: Sequence[str], mark: str) -> bytes:
    others = without(table, mark)
    if others and not others.endswith(b"\n"):
        others += b"\n"
    return others + lines(words, mark)


def install(words: Sequence[str], mark: str) -> bool:
    """False if the lines were there already. Raises Lacking where it would not be heeded."""
    for word in words:
        if not {"\n", "\r", "\\"}.isdisjoint(word):  # what becomes of a backslash depends on whose cron it is
            raise Lacking("%r cannot be written into a crontab" % word)
    if not _daemon_runs():
        raise Lacking("no cron daemon runs")
    before = _read()
    wanted = with_lines(before, words, mark)
    if before != wanted:
        _write(wanted)
    if lines(words, mark) not in _read():
        raise Lacking("crontab has not kept the lines")
    return before != wanted


def remove(mark: str) -> None:
    """Raises Lacking."""
    before = _read()
    after = without(before, mark)
    if after != before:
        _write(after)


def _read() -> bytes:
    done = _crontab(["-l"])
    if done.returncode == 0:
        return done.stdout
    if b"no crontab for" in done.stderr:  # anything else may be a crontab that could not be read: not to be replaced
        return b""
    raise Lacking("crontab -l: %s" % _told(done))


def _write(table: bytes) -> None:
    done = _crontab(["-"], table) if table else _crontab(["-r"])
    if done.returncode != 0:
        raise Lacking("crontab: %s" % _told(done))


def _crontab(arguments: List[str], given: Optional[bytes] = b"") -> subprocess.CompletedProcess[bytes]:
    import subprocess

    try:
        return subprocess.run(
            ["crontab", *arguments],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            env=dict(os.environ, LC_ALL="C"),
        )
    except FileNotFoundError:
        raise Lacking("there is no crontab command") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise Lacking("crontab: %s" % error) from error


def _told(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    return lines[0].strip() or "exit code %d" % done.returncode


def _daemon_runs() -> bool:
    return any(_name(pid) in DAEMONS for pid in os.listdir("/proc") if pid.isdigit())


def _name(pid: str) -> str:
    try:
        with open("/proc/%s/comm" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
