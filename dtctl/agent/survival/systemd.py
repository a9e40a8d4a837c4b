"""The user's own systemd, logind's handling of processes at logout, and the unit that restarts agents.

With KillUserProcesses=yes logind kills the processes in the scope of a session when that ends, even if the user lingers
(logind.conf(5)). It does not kill processes below the user's own systemd (user@.service), which ends at the last
logout, too, unless the user lingers (loginctl(1)).
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

from ..host import machine, paths
from ..host.errors import Refused
from ..host.machine import Lacking
from ..run import environment
from . import systemd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple


_RUNTIME_DIRECTORY = "XDG_RUNTIME_DIR"

LIMIT_S = 10.0
"""The time limit of one query to systemd, which may hang."""


def why_unusable() -> str:
    """Why the user's systemd cannot be used, else empty. Enables lingering if that needs no password."""
    manager = os.path.join(_environment()[_RUNTIME_DIRECTORY], "systemd", "private")  # what systemctl connects to
    if not os.path.exists(manager) or command_output("systemctl", "--user", "show-environment") is None:
        return "systemctl --user does not work here"
    if not lingers():
        command_output("loginctl", "--no-ask-password", "enable-linger")
    return "" if lingers() else "lingering is off, and only root can switch it on"


def scope() -> List[str]:
    """Arguments before a command that run it in a scope of its own; it stays a child of its parent."""
    name = _RUNTIME_DIRECTORY
    return [
        "env",
        "%s=%s" % (name, _environment()[name]),
        "systemd-run",
        "--user",
        "--scope",
        "--quiet",
        "--collect",
        "--",
    ]


def lingers() -> bool:
    return command_output("loginctl", "show-user", machine.user_name(), "--property=Linger", "--value") == "yes"


def command_output(*argv: str) -> Optional[str]:
    """The command's output, stripped; None as in environment.output_of."""
    printed = environment.output_of(argv, _environment(), LIMIT_S)
    return None if printed is None else printed.strip()


def _environment() -> Dict[str, str]:
    """A command over SSH may lack what a login sets; and the output has to be the same in every locale."""
    variables = dict(environment.base(), LC_ALL="C")
    variables.setdefault(_RUNTIME_DIRECTORY, "/run/user/%d" % os.geteuid())
    return variables


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


def unit_text(argv: Sequence[str], machine_id: str) -> str:
    """The text of the unit. Neither trainers nor agents end with its command, or with the unit (KillMode).

    In a shared home directory it serves only one machine.
    """
    command = " ".join(_quoted(argument) for argument in (*_ANY_PROGRAM, *argv))
    condition = "ConditionHost=%s\n" % machine_id if machine_id else ""
    return _TEXT % {"condition": condition, "command": command}


def _quoted(argument: str) -> str:
    """systemd.service(5), "Command lines": quotes, backslash escapes, %% for specifiers and $$ for variables."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return '"%s"' % escaped.replace("%", "%%").replace("$", "$$")


def install_unit(name: str, content: str) -> bool:
    """Creates the unit; False if it exists. Call it only if `why_unusable` is empty. Raises Lacking, OSError."""
    path = _path(name)
    new = paths.read_text(path) != content.strip()
    if new:
        paths.make_directory(os.path.dirname(path))
        paths.write_text(path, content)
        systemd.command_output("systemctl", "--user", "daemon-reload")
    if not _is_enabled(name):
        systemd.command_output("systemctl", "--user", "--quiet", "enable", name)
        if not _is_enabled(name):
            raise Lacking("systemctl --user enable does not work here")
        systemd.command_output("systemctl", "--user", "--quiet", "start", name)
    return new


def remove_unit(name: str) -> None:
    path = _path(name)
    if os.path.lexists(path):
        systemd.command_output("systemctl", "--user", "--quiet", "disable", name)
        systemd.command_output("systemctl", "--user", "--quiet", "stop", name)
        os.unlink(path)
        systemd.command_output("systemctl", "--user", "daemon-reload")


def _is_enabled(name: str) -> bool:
    return systemd.command_output("systemctl", "--user", "is-enabled", name) == "enabled"


def _path(name: str) -> str:
    return os.path.join(os.path.expanduser("~"), ".config", "systemd", "user", name)


_SESSION = r"(?m)/session-[^/]*\.scope(/|$)"
_PLACES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
_BUS = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_NAMES = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")


class Rules:
    """Settings of logind.conf: the users whose processes it kills."""

    def __init__(self, kill: bool = False, only: str = "", exclude: str = "root") -> None:
        self.kill = kill
        self.only = only.split()
        self.exclude = exclude.split()

    def cover(self, user: str) -> bool:
        if user in self.exclude:
            return False
        return user in self.only if self.only else self.kill


def in_session(cgroup: str) -> bool:
    """Whether a process with this text in /proc/self/cgroup is in the scope of a login."""
    return re.search(_SESSION, cgroup) is not None


def refuse_if_doomed() -> None:
    """Raises Refused where an agent would not survive the end of this session."""
    problem = _way_out()[1]
    if problem:
        user = machine.user_name()
        raise Refused(
            "would_be_killed",
            "this host kills the processes of %s at logout, and the agent with them" % user,
            "logind is set to do so, and the agent cannot be put out of its reach: %s" % problem,
            "as root on that host: loginctl enable-linger %s    or KillUserProcesses=no in /etc/systemd/logind.conf"
            % user,
        )


def prefix() -> List[str]:
    """Arguments before the command of an agent, so that it survives the end of this session; usually none."""
    return _way_out()[0]


def ends_logins() -> bool:
    """Whether logind kills what this login has started, when it ends."""
    return in_session(machine.text("/proc/self/cgroup")) and _rules().cover(machine.user_name())


@lru_cache(maxsize=None)
def _way_out() -> Tuple[List[str], str]:
    """The arguments, and why they do not help."""
    if not ends_logins():
        return [], ""
    problem = systemd.why_unusable()
    if not problem and systemd.command_output("systemd-run", "--version") is None:
        problem = "there is no systemd-run"
    return ([], problem) if problem else (systemd.scope(), "")


def _rules() -> Rules:
    """The settings that logind itself reports, or else those of its files."""
    kill, only, exclude = (systemd.command_output("busctl", "get-property", *_BUS, name) for name in _NAMES)
    if kill is None or only is None or exclude is None:
        return rules_of_files("/")
    return Rules(kill == "b true", _array(only), _array(exclude))


def _array(text: str) -> str:
    """The strings in `as 2 "ada" "bob"`."""
    return " ".join(re.findall(r'"([^"]*)"', text))


def rules_of_files(root: str) -> Rules:
    """The settings in the files below `root`: the main one, then the drop-ins by name; the last one applies."""
    rules: Dict[str, str] = {}
    for path in _files(root):
        for line in machine.text(path).splitlines():
            name, separator, value = line.partition("=")
            if separator and name.strip() in _NAMES:
                rules[name.strip()] = value.strip()
    kill = rules.get(_NAMES[0], "no").lower() in ("1", "yes", "y", "true", "t", "on")
    return Rules(kill, rules.get(_NAMES[1], ""), rules.get(_NAMES[2], "root"))


def _files(root: str) -> List[str]:
    """A file of an earlier place hides those of the same name in later ones."""
    places = [os.path.join(root, place.lstrip("/"), "systemd") for place in _PLACES]
    main = next(
        (path for path in (os.path.join(place, "logind.conf") for place in places) if os.path.exists(path)), None
    )
    drop_ins: Dict[str, str] = {}
    for place in places:
        for path in _configurations(os.path.join(place, "logind.conf.d")):
            drop_ins.setdefault(os.path.basename(path), path)
    return ([main] if main else []) + [drop_ins[name] for name in sorted(drop_ins)]


def _configurations(directory: str) -> List[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".conf")]
    except OSError:
        return []
