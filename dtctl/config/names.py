r"""Names of hosts and users that may be handed to SSH: none of them can be more than a name.

They stand for %h, %n and %r in the user's own ProxyCommand, LocalCommand and `Match exec`, which a shell runs
(CVE-2023-51385). OpenSSH refuses what a shell would understand (`valid_hostname` and `valid_ruser`, misc.c; in ssh.c
before 9.9) and lets all else pass. Here only those characters pass that names are made of, and of these only what
OpenSSH allows as well; an internationalized name is written in its ASCII form (xn--...).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtctl.errors import UsageError, clipped
from dtctl.paths import is_around_home

LONGEST = 255

_LETTERS = "A-Za-z0-9._"
NAME = rf"[{_LETTERS}][{_LETTERS}-]*"
IPV6 = rf"[0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){{2,}}(?:%[{_LETTERS}-]+)?"
"""An IPv6 address, with an optional zone of a link-local address: fe80::1%eth0."""
USER = rf"(?:[{_LETTERS}@+]|\\(?!\Z))(?:[{_LETTERS}@+-]|\\(?!\Z))*"
r"""DOMAIN\user and user@domain are names of directory services; a backslash at the end would quote what follows it."""

LONGEST_CLUSTER = 63
CLUSTER_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_CLUSTER - 1}}}"
CLUSTER_WORDS = f"at most {LONGEST_CLUSTER} letters, digits, '.', '_' or '-', the first of them a letter or digit"

HOST_WORDS = "letters, digits, '.', '_' and '-', or an IPv6 address"
USER_WORDS = r"letters, digits, '.', '_', '-', '+', '@' and '\'"

_HOST = re.compile(f"{NAME}|{IPV6}")
_USER = re.compile(USER)
_OPENSSH_REFUSES = re.compile(r"""^-|['`"$\\;&<>|(){},\s\x00-\x1f\x7f]""")
_PLACE = re.compile(
    r"(?:(?P<user>.*)@)?(?:\[(?P<ip>[^\[\]]*)\](?::(?P<p>[0-9]+))?|(?P<name>[^:\[\]]*):(?P<port>[0-9]+)|(?P<bare>.*))",
    re.DOTALL,
)


def check_host(name: str) -> str:
    """The name or address itself. Raises UsageError."""
    if len(name) > LONGEST or not _HOST.fullmatch(name):
        raise UsageError(f"{clipped(name)!r} cannot be the name of a host", hint=f"a host's name has {HOST_WORDS}")
    return name


def check_user(name: str) -> str:
    """The name itself. Raises UsageError."""
    if len(name) > LONGEST or not _USER.fullmatch(name):
        raise UsageError(f"{clipped(name)!r} cannot be the name of a user", hint=f"a user's name has {USER_WORDS}")
    return name


def check_own_host(name: str) -> str:
    """The same for a HostName of the user's own ssh_config, as OpenSSH reads it. Raises UsageError."""
    if not name or _OPENSSH_REFUSES.search(name):
        raise UsageError(f"{clipped(name)!r} cannot be the name of a host", hint="check HostName in ~/.ssh/config")
    return name


def check_jump(text: str) -> str:
    """Hosts to go through as for `ssh -J`, or `none`. Raises UsageError."""
    if text.lower() != "none":
        for hop in text.split(","):
            split_place(hop)
    return text


def check_names(said: Mapping[str, Any]) -> None:
    """Raises UsageError for a user or a jump host that cannot be one."""
    if said.get("user"):
        check_user(said["user"])
    if said.get("jump"):
        check_jump(said["jump"])


def split_place(text: str) -> tuple[str | None, str, int | None]:
    """User, host and port of [USER@]HOST[:PORT]; an IPv6 address may stand in brackets. Raises UsageError."""
    match = _PLACE.fullmatch(text.removeprefix("ssh://"))
    assert match is not None, "the last alternative takes any text"
    user, port = match["user"], match["p"] or match["port"]
    host = next(part for part in (match["ip"], match["name"], match["bare"]) if part is not None)
    try:
        if user is not None:
            check_user(user)
        check_host(host)
    except UsageError as error:
        summary = f"{clipped(text)!r} is not a host to log in to"
        raise UsageError(summary, detail=error.summary, hint=f"write [USER@]HOST[:PORT]; {error.hint}") from error
    if port and not (len(port) <= 5 and 1 <= int(port) <= 65535):
        raise UsageError(f"{clipped(text)!r} has the port {port[:60]}", hint="ports go from 1 to 65535")
    return user, host, int(port) if port else None


KNOWN_HOSTS = "known_hosts"

_MEANT_FOR_ELSE = ("authorized_", "config", "environment", "id_", "rc")
"""Other files that OpenSSH reads in ~/.ssh (ssh(1) and sshd(8), FILES). Any of them could consist of comments alone."""


def why_not_written(file: Path, project: Path | None) -> str:
    """Why new keys are not written to this file; empty if they may be.

    A cluster file often comes from another person. So it chooses a file inside its own directory, or one of
    those in ~/.ssh that are there for host keys: what else is there (authorized_keys, config, rc) means more to SSH
    than a list of hosts, and `~/.bashrc` more to a shell. A cluster file in the user's home, or above it, has no
    directory of its own.
    """
    real = Path(os.path.realpath(file))
    if is_of_ssh(real):
        first = real.relative_to(_ssh()).parts[0]
        if first.startswith(_MEANT_FOR_ELSE):
            return f"~/.ssh/{first} is read by SSH for something else"
        return (
            "" if is_named_so(real) or _has_content(real) else f"a new file in ~/.ssh has to be called {KNOWN_HOSTS}..."
        )
    if project is None or Path(os.path.realpath(project)) not in real.parents:
        return "it is neither in ~/.ssh nor in the cluster file's directory"
    if ".git" in real.parts:
        return "its name belongs to git"
    if is_around_home(project) and not (is_named_so(real) and real.parent == Path(os.path.realpath(project))):
        return f"next to a cluster file in a home directory its name must be {KNOWN_HOSTS}..."
    return ""


def is_of_ssh(file: Path) -> bool:
    return _ssh() in Path(os.path.realpath(file)).parents


def is_named_so(file: Path) -> bool:
    """Whether its name marks it as a known_hosts file; in ~/.ssh the name of its directory may do so instead."""
    real = Path(os.path.realpath(file))
    return (real.relative_to(_ssh()).parts[0] if is_of_ssh(real) else real.name).startswith(KNOWN_HOSTS)


def _ssh() -> Path:
    return Path(os.path.realpath(Path("~/.ssh").expanduser()))


def _has_content(file: Path) -> bool:
    """Whether the file has content; whether it holds host keys is checked when it is opened."""
    try:
        return file.stat().st_size > 0
    except OSError:
        return False
