"""The same route to a host for OpenSSH's own client: its command line."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dtctl.errors import PreflightError, TransportError, UsageError
from dtctl.folder import PRIVATE, Folder
from dtctl.model import Host, SshSettings
from dtctl.paths import cache_directory, check_private
from dtctl.transport.ssh import known_hosts
from dtctl.transport.ssh.config import (
    ConfigFiles,
    configured_known_hosts,
    last_gateway,
    split_target,
    users_known_hosts,
)

Own = Callable[[SshSettings], Sequence[str]]
"""Returns the own words for the `ssh` to one host on the route."""

LONGEST_DIRECTORY = 60
"""Leaves room in the 104 bytes of a socket's path for the name, to which `ssh` adds a suffix while it is new."""
_SHARED = "/tmp"
"""The directory of sockets; the path of $TMPDIR may be too long."""


def ssh_command(host: Host, *, ssh_config: Path | None = None) -> list[str]:
    """The command that logs in to `host`; words of a remote command may follow. `ssh_config` as for ssh -F."""
    assert isinstance(host.reach, SshSettings)
    settings, files = split_target(host.reach), ConfigFiles(ssh_config)
    kept = ["-o", f"ControlPath={quoted(path)}"] if (path := _kept(settings, files)) else []
    if not settings.jump or settings.jump.lower() == "none":
        return ssh_words(settings, files, own=lambda _: kept + (["-o", "ProxyJump=none"] if settings.jump else []))
    if not settings.identity_file and not settings.known_hosts:
        return ssh_words(settings, files, own=lambda _: [*kept, "-J", str(settings.jump)])
    hops: list[SshSettings] = []
    while (at := hops[0] if hops else settings).jump:
        hops.insert(0, last_gateway(at, str(at.jump)))
    return ssh_words(settings, files, hops, lambda one: kept if one is settings else [])


def _kept(settings: SshSettings, files: ConfigFiles) -> Path | None:
    """The socket of a kept connection; None if there is none."""
    from dtctl.transport.ssh.control import is_alive

    path = control_path(settings, files) if settings.client == "openssh" else None
    return path if path and is_alive(path) else None


def ssh_words(
    settings: SshSettings, files: ConfigFiles, hops: Sequence[SshSettings] = (), own: Own = lambda _: ()
) -> list[str]:
    """The words of an `ssh` command; `own` words come first, so that they win.

    -J passes neither a key nor known_hosts to a gateway, so each of the `hops` is an `ssh` of its own.
    """
    words: list[str] = []
    for one in (*hops, settings):
        proxy = ["-o", f"ProxyCommand={shlex.join(words[:-1])} -W [%h]:%p {shlex.quote(words[-1])}"] if words else []
        words = ["ssh", *own(one), *_options(one, files), *proxy, one.target]
        if one is not settings:
            words = [word.replace("%", "%%") for word in words]
    return words


def control_path(settings: SshSettings, files: ConfigFiles) -> Path:
    """The socket of a kept connection, named by a hash of the route to the host, in a private directory of ours."""
    config = files.path or Path("~/.ssh/config")
    changed = config.expanduser().stat().st_mtime_ns if config.expanduser().exists() else 0
    way = replace(settings, connect_timeout_s=0, keep_s=0), str(config.absolute()), changed, os.uname().nodename
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return socket_directory(cache_directory(), runtime) / hashlib.sha256(repr(way).encode()).hexdigest()[:16]


@functools.cache
def socket_directory(cache: Path, runtime: str) -> Path:
    """The first directory with a short path that belongs to this user alone. Raises TransportError if there is none.

    In /tmp others may have made a directory or a link of this name, so that another one, which they cannot guess, is
    the last choice. `runtime`: $XDG_RUNTIME_DIR.
    """
    problems = []
    for directory in _socket_directories(cache, runtime):
        if len(os.fsencode(directory)) > LONGEST_DIRECTORY:
            problems.append(f"{directory} is longer than {LONGEST_DIRECTORY} bytes")
            continue
        try:
            with Folder(directory, make=PRIVATE):
                check_private(directory)
                return directory
        except OSError as error:
            problems.append(f"{directory}: {error.strerror or error}")
        except PreflightError as error:
            problems.append(error.summary)
    raise TransportError(
        "there is no directory for the sockets of SSH connections",
        detail="\n".join(problems),
        hint="export XDG_RUNTIME_DIR=DIR    with a directory of yours that has a short path",
    )


def _socket_directories(cache: Path, runtime: str) -> Iterator[Path]:
    yield cache / "ssh"
    if Path(runtime).is_absolute():
        yield Path(runtime) / "dtctl"
    yield Path(_SHARED) / f"dtctl-{os.geteuid()}"
    with suppress(OSError), Folder(cache, make=PRIVATE) as folder:
        if re.fullmatch("[0-9a-f]{16}", _kept_name(folder)) is None:
            folder.replace("sockets", os.urandom(8).hex().encode())
        yield Path(_SHARED) / f"dtctl-{os.geteuid()}-{_kept_name(folder)}"


def _kept_name(cache: Folder) -> str:
    try:
        return cache.read("sockets", 100).decode("ascii", "replace")
    except FileNotFoundError:
        return ""


def _destination(settings: SshSettings, files: ConfigFiles) -> list[str]:
    words = files.words
    words += ["-l", settings.user] if settings.user else []
    words += ["-p", str(settings.port)] if settings.port else []
    return words


def _options(settings: SshSettings, files: ConfigFiles) -> list[str]:
    words = _destination(settings, files)
    words += ["-o", f"IdentityFile={quoted(settings.identity_file)}"] if settings.identity_file else []
    words += ["-o", f"StrictHostKeyChecking={'accept-new' if settings.host_keys == 'accept-new' else 'yes'}"]
    words += ["-o", f"ConnectTimeout={max(1, round(settings.connect_timeout_s))}"]
    return [*words, *_known_hosts(settings, files)]


def _known_hosts(settings: SshSettings, files: ConfigFiles) -> list[str]:
    """Options for a known_hosts file that a cluster file names: ssh adds only what dtctl would, a new key at most."""
    file = configured_known_hosts(settings)
    if file is None:
        return []
    if settings.host_keys == "accept-new" and file != Path(os.devnull):
        known_hosts.check_place(file, Path(settings.project) if settings.project else None)
        known_hosts.check_content(file)
    words = " ".join(quoted(path) for path in users_known_hosts(settings, files.lookup(settings)))
    return ["-o", f"UserKnownHostsFile={words}", "-o", "UpdateHostKeys=no"]


def quoted(path: str | Path) -> str:
    """A path for -o, which splits words, and expands %d and ${HOME} in them. Raises UsageError."""
    if re.search(r'["\\\x00-\x1f\x7f]|\$\{', str(path)):
        raise UsageError(f"ssh cannot be given the path {str(path)!r}", hint="name the file without quotes and ${...}")
    return f'"{path}"'.replace("%", "%%")
