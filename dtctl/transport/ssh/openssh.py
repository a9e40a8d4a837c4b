"""The same way to a host as a command line for OpenSSH's own client, for `dtctl ssh`."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.errors import UsageError
from dtctl.model import SshSettings
from dtctl.transport.ssh import known_hosts
from dtctl.transport.ssh.config import ConfigFiles, known_hosts_files, last_gateway, said_known_hosts, split_target

if TYPE_CHECKING:
    from dtctl.model import Host


def ssh_command(host: Host, *, ssh_config: Path | None = None) -> list[str]:
    """Words that log in to `host`; those of a remote command may follow. `ssh_config` as for ssh -F."""
    assert isinstance(host.reach, SshSettings)
    files = ConfigFiles(ssh_config)
    settings = split_target(host.reach)
    return ["ssh", *_options(settings, files), settings.target]


def _options(settings: SshSettings, files: ConfigFiles) -> list[str]:
    words = ["-F", str(files.path.expanduser())] if files.path else []
    words += ["-l", settings.user] if settings.user else []
    words += ["-p", str(settings.port)] if settings.port else []
    words += ["-o", f"IdentityFile={_quoted(settings.identity_file)}"] if settings.identity_file else []
    words += ["-o", f"StrictHostKeyChecking={'accept-new' if settings.host_keys == 'accept-new' else 'yes'}"]
    words += ["-o", f"ConnectTimeout={max(1, round(settings.connect_timeout_s))}"]
    return [*words, *_known_hosts(settings, files), *_jump(settings, files)]


def _known_hosts(settings: SshSettings, files: ConfigFiles) -> list[str]:
    """Where a cluster file has chosen the file, ssh writes to it only what dtctl would: a new key, if at all."""
    said = said_known_hosts(settings)
    if said is None:
        return []
    if settings.host_keys == "accept-new" and said != Path(os.devnull):
        known_hosts.check_place(said, Path(settings.project) if settings.project else None)
        known_hosts.check_content(said)
    paths = [path for path in known_hosts_files(settings, files.lookup(settings)) if path.parts[:2] != ("/", "etc")]
    words = " ".join(_quoted(path) for path in paths)
    return ["-o", f"UserKnownHostsFile={words}", "-o", "UpdateHostKeys=no"]


def _quoted(path: str | Path) -> str:
    """A path for -o, which splits words, and expands %d and ${HOME} in them. Raises UsageError."""
    if re.search(r'["\\\x00-\x1f\x7f]|\$\{', str(path)):
        raise UsageError(f"ssh cannot be given the path {str(path)!r}", hint="name the file without quotes and ${...}")
    return f'"{path}"'.replace("%", "%%")


def _jump(settings: SshSettings, files: ConfigFiles) -> list[str]:
    """-J takes neither a key nor known_hosts to the gateway: where there are such, the gateway is an ssh of its own."""
    if not settings.jump or settings.jump.lower() == "none":
        return ["-o", "ProxyJump=none"] if settings.jump else []
    if not settings.identity_file and not settings.known_hosts:
        return ["-J", settings.jump]
    gateway = last_gateway(settings, settings.jump)
    inner = shlex.join(["ssh", *_options(gateway, files)]).replace("%", "%%")
    return ["-o", f"ProxyCommand={inner} -W [%h]:%p {shlex.quote(gateway.target).replace('%', '%%')}"]
