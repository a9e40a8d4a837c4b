"""A unit of the user's own systemd: a command after a restart of the machine, and each minute (systemd.service(5))."""

from __future__ import annotations

import os

from ..host import paths
from ..host.machine import Lacking
from . import systemd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

_TEXT = """\
[Unit]
Description=dtctl: the runs that this machine is at
%(condition)s
[Service]
Type=simple
Restart=always
RestartSec=60
KillMode=process
ExecStart=%(command)s

[Install]
WantedBy=default.target
"""

_ANY_PROGRAM = ("/bin/sh", "-c", 'exec "$0" "$@"')
"""systemd.service(5) has rules of its own for the path of the first program, and not every path can be written."""


def text(words: Sequence[str], machine_id: str) -> str:
    """No trainer and no agent ends with the command, or with the unit (KillMode).

    In a home directory that is shared it serves one machine only.
    """
    command = " ".join(_quoted(word) for word in (*_ANY_PROGRAM, *words))
    condition = "ConditionHost=%s\n" % machine_id if machine_id else ""
    return _TEXT % {"condition": condition, "command": command}


def _quoted(word: str) -> str:
    """systemd.service(5), "Command lines": quotes, backslash escapes, %% for specifiers and $$ for variables."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"%s"' % escaped.replace("%", "%%").replace("$", "$$")


def install(name: str, content: str) -> bool:
    """False if it was there already. Raises Lacking where it would not be heeded, OSError."""
    problem = systemd.problem()
    if problem:
        raise Lacking(problem)
    path = _path(name)
    new = paths.read_text(path) != content.strip()
    if new:
        paths.make_directory(os.path.dirname(path))
        paths.write_text(path, content)
        systemd.ask("systemctl", "--user", "daemon-reload")
    if not _is_enabled(name):
        systemd.ask("systemctl", "--user", "--quiet", "enable", name)
        if not _is_enabled(name):
            raise Lacking("systemctl --user enable does not work here")
        systemd.ask("systemctl", "--user", "--quiet", "start", name)
    return new


def remove(name: str) -> None:
    path = _path(name)
    if os.path.lexists(path):
        systemd.ask("systemctl", "--user", "--quiet", "disable", name)
        systemd.ask("systemctl", "--user", "--quiet", "stop", name)
        os.unlink(path)
        systemd.ask("systemctl", "--user", "daemon-reload")


def _is_enabled(name: str) -> bool:
    return systemd.ask("systemctl", "--user", "is-enabled", name) == "enabled"


def _path(name: str) -> str:
    return os.path.join(os.path.expanduser("~"), ".config", "systemd", "user", name)
