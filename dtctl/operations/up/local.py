"""What a start takes from this machine: the code, and for a run here free ports and the Python that trains."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.model import SshSettings
from dtctl.plan.hosts import on_this_machine

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.model import Cluster

_CLAIM = "dtctl/port/{}"
"""As dtctl/agent/host/claims.py names them."""

_CHOOSING = "\0dtctl/choosing/{}"
"""Held by the `up` that has chosen the port, until its agent has claimed it."""

_OF_TOOLS = ("uv-receipt.toml", "pipx_metadata.json")
"""What `uv tool` and `pipx` leave in an environment that they make for one program (dtctl) and nothing else."""


def scan_code(cluster: Cluster) -> Bundle:
    """The cluster's code, without the files that hold secrets or keys."""
    from dtctl.bundle import scan

    over_ssh = [host.reach for host in cluster.hosts.values() if isinstance(host.reach, SshSettings)]
    keys = [settings.identity_file for settings in over_ssh if settings.identity_file]
    env_file = [cluster.trainer.env_file] if cluster.trainer.env_file else []
    return scan(
        cluster.trainer.code,
        cluster=cluster.name,
        secret_files=[*env_file, *(Path(key).expanduser() for key in set(keys))],
    )


class LocalPorts:
    """Free ports, kept from others who look for some until this process ends: several runs may start at once."""

    def __init__(self, table: Path = Path("/proc/net/unix")) -> None:
        self._table = table
        self._chosen: dict[int, int] = {}
        """Port -> the descriptor that keeps it."""

    def is_free(self, port: int) -> bool:
        if port in self._chosen:
            return True
        choice = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if self._chooses(choice, port) and _binds(port) and not self._is_claimed(port):
            self._chosen[port] = choice.detach()
            return True
        choice.close()
        return False

    def give_back(self) -> None:
        for descriptor in self._chosen.values():
            os.close(descriptor)
        self._chosen.clear()

    def _chooses(self, choice: socket.socket, port: int) -> bool:
        """False for a port that another dtctl of this machine has just chosen."""
        try:
            choice.bind(_CHOOSING.format(port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # without such names there is nothing to be asked
        return True

    def _is_claimed(self, port: int) -> bool:
        """By a run whose trainers need a while before they listen."""
        try:
            names = [line.rpartition("@")[2] for line in self._table.read_text(errors="replace").splitlines()]
        except OSError:
            return False
        return any(name.startswith(_CLAIM.format(port) + "/") for name in names)


def _binds(port: int) -> bool:
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


_PORTS = LocalPorts()


def make_local(cluster: Cluster) -> Cluster:
    """The cluster on this machine, on ports that are free here now."""
    return on_this_machine(cluster, _PORTS.is_free)


@dataclass(frozen=True)
class Runtime:
    """The Python that runs dtctl."""

    executable: str
    prefix: str
    in_environment: bool

    @classmethod
    def here(cls) -> Runtime:
        return cls(sys.executable, sys.prefix, sys.prefix != sys.base_prefix)

    @property
    def is_of_a_tool(self) -> bool:
        return any(Path(self.prefix, name).is_file() for name in _OF_TOOLS)


def local_python(environ: Mapping[str, str], own: Runtime | None = None) -> str:
    """That of the active virtual environment; else the one that runs dtctl, unless that one is only dtctl's."""
    own = own or Runtime.here()
    if python := _in(environ.get("VIRTUAL_ENV")):
        return python
    if own.in_environment and not own.is_of_a_tool:
        return own.executable
    # Conda's `base` is active everywhere: it gives way to a virtual environment whose dtctl was typed by its path.
    if python := _in(environ.get("CONDA_PREFIX")):
        return python
    found = shutil.which("python3", path=environ.get("PATH")) if own.is_of_a_tool else None
    return found or own.executable


def _in(environment: str | None) -> str | None:
    if not environment:
        return None
    python = Path(environment).absolute() / "bin" / "python"  # a link, which is to stay one
    return str(python) if os.access(python, os.X_OK) else None
