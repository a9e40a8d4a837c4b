"""Changes a process of tests/warm.py before its commands meet lying hosts.

A command that names `sockets` has conversations only over those of lying_host.py, in place of SSH.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

AT_REST = 8 << 30
"""For addresses; the used ones are recorded."""

WAY = ("target", "user", "port", "identity_file", "jump", "host_keys", "known_hosts", "client")
"""Settings that no host may influence."""

OPTION = re.compile(
    "(BatchMode|ClearAllForwardings|ConnectTimeout|Control(Master|Path|Persist)|Forward(Agent|X11)|HashKnownHosts|"
    "HostKeyAlgorithms|PermitLocalCommand|PreferredAuthentications|RemoteCommand|RequestTTY|ServerAlive(CountMax|Interval)|"
    "StrictHostKeyChecking|UpdateHostKeys|(Global|User)KnownHostsFile)=[^\n]+"
)
"""The options of `ssh`: none that runs a program, or leads elsewhere."""


def before_imports(factor: float) -> None:
    """Scales all time limits, before anything has imported them."""
    from dtctl.transport import timeouts

    timeouts.SILENCE_LIMIT_S *= factor
    timeouts.GREETING_TIMEOUT_S *= factor
    timeouts.TOLD_AFTER_S *= factor
    timeouts.PATIENCE_S *= factor


def after_imports(factor: float) -> None:
    from dtctl.operations import gc
    from dtctl.operations.client import streams
    from dtctl.operations.up import readying
    from dtctl.rooms.data import operation as data
    from dtctl.rooms.data import pushing
    from dtctl.rooms.dump import operation as dump
    from dtctl.rooms.profile import operation as profile
    from dtctl.transport import payload

    gc._PATIENCE_S *= factor
    gc._QUIET_S *= factor
    dump.QUIET_S *= factor
    profile.QUIET_S *= factor
    data.QUIET_S *= factor
    pushing.RESUMED_AFTER_S = (0.1, 0.1)
    readying.ROLLBACK_S *= factor
    streams._RETRY_S = (0.1, 0.1, 0.2, 0.2, 0.2)
    payload.opening()


class Line:
    """Replaces a child whose standard input and output are a socket (dtctl/transport/local.py)."""

    stderr = None

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def drain(self) -> bool:
        return False

    def wait(self, patience_s: float) -> Any:
        from dtctl.transport.stream import RemoteExit

        return RemoteExit(0)

    def close(self) -> None:
        self.connection.close()


class NoTensorBoard:
    """Replaces the TensorBoard of this machine: the test is about the copies from hosts that it would show."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> NoTensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    check = begin = connect = lambda self: None


def over_sockets(directory: Path, lies: dict[str, int], ways: dict[str, Any]) -> None:
    """`lies`: host -> number of its lie; `ways`: the user's settings for reaching hosts. Others are not dialled."""
    import dataclasses
    import socket

    from dtctl.model import Host, SshSettings
    from dtctl.transport import payload
    from dtctl.transport.local import ChildStream
    from dtctl.transport.seam import Session
    from dtctl.transport.ssh.transport import SshTransport
    from dtctl.transport.stream import StreamSession

    def open_session(self: SshTransport, host: Host) -> Session:
        assert isinstance(host.reach, SshSettings)
        way = dataclasses.asdict(host.reach)
        assert {name: way[name] for name in WAY} == ways[host.name], f"{host.name} is dialled by {way}"
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(directory / f"{host.name}.{lies[host.name]}.sock"))
        session = StreamSession(host, ChildStream(Line(connection)), self._waiting)
        try:
            session.begin(payload.opening())
        except BaseException:
            session.close()
            raise
        return session

    from dtctl.rooms.tensorboard import local

    local.find_python = lambda: sys.executable  # which would start every Python of this machine
    local.Here = NoTensorBoard  # type: ignore[assignment,misc]
    SshTransport.open = open_session  # type: ignore[method-assign]


def is_expected_ssh(words: Sequence[str], addresses: list[str], way: dict[str, Any]) -> bool:
    """Whether every word is dtctl's own, or from the cluster file."""
    said = {way["user"], str(way["port"]), f'IdentityFile="{way["identity_file"]}"', *addresses}
    own = {"ssh", "-o", "-l", "-p", "-fN", "-G", "true", *said}
    return words[0] == "ssh" and all(word in own or OPTION.fullmatch(word) for word in words)


def watch_out(record: Path, addresses: list[str], doors: list[list[object]], way: dict[str, Any]) -> None:
    """Records what this process dials and starts.

    Except sockets of this machine, these addresses and doors, and the `ssh` of the user's `way` to the hosts.
    """
    descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(event: str, args: tuple[Any, ...]) -> None:
        tcp = event == "socket.connect" and isinstance(args[1], tuple)
        dialled = tcp and args[1][0] not in addresses and list(args[1][:2]) not in doors
        if event == "subprocess.Popen" and way["client"] == "openssh" and is_expected_ssh(args[1], addresses, way):
            return
        if dialled or event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
            os.write(descriptor, f"{event} {args[1:3]!r}\n".encode())

    sys.addaudithook(note)


def prepare(job: dict[str, Any]) -> None:
    """Prepares the fork."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (AT_REST, AT_REST))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tempfile.tempdir = None  # of its current environment
    if job["sockets"]:
        over_sockets(Path(job["sockets"]), job["lies"], job["ways"])
    watch_out(Path(job["dialled"]), job["addresses"], job["doors"], job["ways"]["a"])
