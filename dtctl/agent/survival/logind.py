"""Whether this host ends a user's processes at logout, and how an agent survives that (logind.conf(5)).

With KillUserProcesses=yes logind kills what is in the scope of a session when that ends, lingering or not. Out of its
reach is what runs below the user's own systemd, which ends at the last logout, too, unless the user lingers.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

from ..host import machine
from ..host.errors import Refused
from . import systemd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

_SESSION = re.compile(r"/session-[^/]*\.scope(/|$)", re.MULTILINE)
_PLACES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
_BUS = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_NAMES = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")


class Rules:
    """Settings of logind.conf: whose processes it kills."""

    def __init__(self, kill: bool = False, only: str = "", exclude: str = "root") -> None:
        self.kill = kill
        self.only = only.split()
        self.exclude = exclude.split()

    def cover(self, user: str) -> bool:
        if user in self.exclude:
            return False
        return user in self.only if self.only else self.kill


def in_session(cgroup: str) -> bool:
    """Tells whether a process with this text in /proc/self/cgroup is in the scope of a login."""
    return _SESSION.search(cgroup) is not None


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
    """Words before the command of an agent by which it survives the end of this session; as a rule it needs none."""
    return _way_out()[0]


def ends_logins() -> bool:
    """Whether logind kills what this login has started, when it ends."""
    return in_session(_cgroup()) and _rules().cover(machine.user_name())


def user_lingers() -> bool:
    return systemd.lingers()


@lru_cache(maxsize=None)
def _way_out() -> Tuple[List[str], str]:
    """The words, and why they do not help."""
    if not ends_logins():
        return [], ""
    problem = systemd.problem()
    if not problem and systemd.ask("systemd-run", "--version") is None:
        problem = "there is no systemd-run"
    return ([], problem) if problem else (systemd.scope(), "")


def _cgroup() -> str:
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _rules() -> Rules:
    """What logind itself says, or else its files."""
    kill, only, exclude = (systemd.ask("busctl", "get-property", *_BUS, name) for name in _NAMES)
    if kill is None or only is None or exclude is None:
        return rules_of_files("/")
    return Rules(kill == "b true", _array(only), _array(exclude))


def _array(text: str) -> str:
    """The words of `as 2 "ada" "bob"`."""
    return " ".join(re.findall(r'"([^"]*)"', text))


def rules_of_files(root: str) -> Rules:
    """From the files below `root`: the main one, then the drop-ins by name; the last one wins."""
    said: Dict[str, str] = {}
    for path in _files(root):
        for line in _lines(path):
            name, separator, value = line.partition("=")
            if separator and name.strip() in _NAMES:
                said[name.strip()] = value.strip()
    kill = said.get(_NAMES[0], "no").lower() in ("1", "yes", "y", "true", "t", "on")
    return Rules(kill, said.get(_NAMES[1], ""), said.get(_NAMES[2], "root"))


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


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
