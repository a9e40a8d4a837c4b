"""The same way to a host as a command line for OpenSSH's own client, for `dtctl ssh`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from dtctl.model import Host, SshSettings
from dtctl.transport.ssh_config import ConfigFiles, Place, known_hosts_files, split_target


def ssh_command(host: Host, *, ssh_config: Path | None = None) -> list[str]:
    """Words that log in to `host`; those of a remote command may follow. `ssh_config` as for ssh -F."""
    assert host.ssh is not None
    files = ConfigFiles(ssh_config)
    settings = split_target(host.ssh)
    return ["ssh", *_options(settings, files), settings.target]


def _options(settings: SshSettings, files: ConfigFiles) -> list[str]:
    words = ["-F", str(files.path.expanduser())] if files.path else []
    words += ["-l", settings.user] if settings.user else []
    words += ["-p", str(settings.port)] if settings.port else []
    words += ["-i", settings.identity_file] if settings.identity_file else []
    words += ["-o", f"StrictHostKeyChecking={'accept-new' if settings.host_keys == 'accept-new' else 'yes'}"]
    words += ["-o", f"ConnectTimeout={max(1, round(settings.connect_timeout_s))}"]
    if settings.known_hosts:
        paths = [path for path in known_hosts_files(settings, files.lookup(settings)) if path.parts[1] != "etc"]
        words += ["-o", "UserKnownHostsFile=" + " ".join(f'"{path}"'.replace("%", "%%") for path in paths)]
    return words + _jump(settings, files)


def _jump(settings: SshSettings, files: ConfigFiles) -> list[str]:
    """-J takes neither -i nor known_hosts to the gateway: where there are such, the gateway is an ssh of its own."""
    if not settings.jump or settings.jump.lower() == "none":
        return ["-o", "ProxyJump=none"] if settings.jump else []
    if not settings.identity_file and not settings.known_hosts:
        return ["-J", settings.jump]
    *earlier, last = (Place.parse(hop) for hop in settings.jump.split(","))
    jump = ",".join(str(hop) for hop in earlier) or None
    gateway = replace(settings, target=last.host, user=last.user, port=last.port, jump=jump)
    inner = shlex.join(["ssh", *_options(gateway, files)]).replace("%", "%%")
    return ["-o", f"ProxyCommand={inner} -W [%h]:%p {shlex.quote(last.host)}"]
