"""The inputs of a start that come from this machine: secrets and, for a local run, free ports and the Python that
trains.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from dtctl.agent.records.hooks import Post
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.folder import read_regular
from dtctl.model import problem_of_post
from dtctl.plan.hosts import on_this_machine

_CLAIM = "dtctl/port/{}"
"""The name of a port's claim, as in dtctl/agent/host/ports.py."""

_CHOOSING = "\0dtctl/choosing/{}"
"""The name that an `up` holds from choosing a port until its agent has claimed it."""

_OF_TOOLS = ("uv-receipt.toml", "pipx_metadata.json")
"""Packages that `uv tool` and `pipx` leave in an environment that they make for one program (dtctl)."""


class LocalPorts:
    """Free ports, reserved until they are given back or this process ends: several runs may start at once."""

    def __init__(self, table: Path = Path("/proc/net/unix")) -> None:
        self._table = table
        self._chosen: dict[int, int] = {}
        """Port -> the descriptor that reserves it."""

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
        """Whether the port could be reserved; another dtctl of this machine may just have chosen it."""
        try:
            choice.bind(_CHOOSING.format(port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # without such names there is nothing to query
        return True

    def _is_claimed(self, port: int) -> bool:
        """Whether a run has claimed the port: its trainers need a while before they listen."""
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


def make_local(cluster: Cluster, ports: LocalPorts = _PORTS) -> Cluster:
    """The cluster on this machine, on ports that are free now. `ports`: kept for as long as one command takes."""
    return on_this_machine(cluster, ports.is_free)


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
    """The Python of the active virtual environment; else the one that runs dtctl, unless that is dtctl's own
    environment.
    """
    own = own or Runtime.here()
    if python := _in(environ.get("VIRTUAL_ENV")):
        return python
    if own.in_environment and not own.is_of_a_tool:
        return own.executable
    # Conda's `base` is active everywhere; a virtual environment whose dtctl was typed by its path takes precedence.
    if python := _in(environ.get("CONDA_PREFIX")):
        return python
    found = shutil.which("python3", path=environ.get("PATH")) if own.is_of_a_tool else None
    return found or own.executable


def _in(environment: str | None) -> str | None:
    if not environment:
        return None
    python = Path(environment).absolute() / "bin" / "python"  # the link is kept as it is
    return str(python) if os.access(python, os.X_OK) else None


_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Exposure:
    """Others can read the file of secrets, or replace it."""

    file: Path
    what: str
    remedy: str


def find_secrets(cluster: Cluster, environ: Mapping[str, str]) -> dict[str, str]:
    """The secrets' values, from the env file first. Raises PreflightError with the names of those that are missing."""
    known = known_secrets(cluster, environ)
    missing = [name for name in cluster.trainer.secrets if name not in known]
    if missing:
        raise PreflightError(
            f"no value for the secret{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            hint=f"export {missing[0]}=...    or write it to the trainer's env_file",
        )
    return known


def known_secrets(cluster: Cluster, environ: Mapping[str, str]) -> dict[str, str]:
    """The secrets that have values. Raises PreflightError for an env file that cannot be used."""
    known = {**environ, **(read_env_file(cluster.trainer.env_file) if cluster.trainer.env_file else {})}
    return {name: known[name] for name in cluster.trainer.secrets if name in known}


def find_hooks(cluster: Cluster, environ: Mapping[str, str]) -> tuple[Post, ...]:
    """The hooks that post, with the values of their variables. Raises PreflightError, which shows none of them."""
    posting = [hook for hook in cluster.hooks.values() if hook.post]
    if not posting:
        return ()
    file = cluster.trainer.env_file
    known = {**environ, **(read_env_file(file) if file else {})}
    found = []
    for hook in posting:
        missing = [name for name in hook.variables if not known.get(name)]
        if missing:
            raise PreflightError(
                f"no value for {missing[0]}, which hooks.{hook.name} needs",
                hint=f"export {missing[0]}=...    or write it to the trainer's env_file",
            )
        post = hook.filled(known)
        if problem := problem_of_post(post):
            named = ", ".join(hook.variables)
            raise PreflightError(
                f"hooks.{hook.name} cannot post with the value of {named}", detail=f"expected {problem}"
            )
        found.append(post)
    return tuple(found)


def read_env_file(path: Path) -> dict[str, str]:
    """NAME=VALUE lines; blank lines and # comments are skipped, and matching quotes around a value are removed.

    Raises PreflightError, which quotes nothing of the file.
    """
    values = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        text = line.strip().removeprefix("export ").lstrip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise PreflightError(f"{path}:{number}: not a line of the form NAME=VALUE")
        if "\0" in value:
            raise PreflightError(f"{path}:{number}: the value contains a NUL, which no variable can hold")
        value = value.strip()
        quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
        values[name.strip()] = value[1:-1] if quoted else value
    return values


def exposure(cluster: Cluster) -> Exposure | None:
    """Who else can access the env file, by its mode and its directory's; None: only the user."""
    path = cluster.trainer.env_file
    if path is None:
        return None
    try:
        mode, above = path.stat().st_mode, path.parent.stat().st_mode
    except OSError:
        return None
    if mode & 0o077:
        verb = "changed" if mode & 0o022 else "read"
        what = f"can be {verb} by other users (mode {stat.S_IMODE(mode):04o})"
        return Exposure(path, what, f"chmod 600 {path}")
    if above & 0o022 and not above & stat.S_ISVTX:
        what = f"can be replaced by other users, who may write to its directory (mode {stat.S_IMODE(above):04o})"
        return Exposure(path, what, f"chmod go-w {path.parent}")
    return None


def _text(path: Path) -> str:
    try:
        return read_regular(path, _LIMIT_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise PreflightError(
            f"cannot read the env_file {path}",
            detail=str(error.strerror),
            hint=f"ls -l {path}    shows it: expected are NAME=VALUE lines that you may read",
        ) from error
    except UnicodeDecodeError as error:
        raise PreflightError(
            f"the env_file {path} is not UTF-8 text",
            hint=f"iconv -f latin1 -t utf-8 {path}    if it is Latin-1",
        ) from error
