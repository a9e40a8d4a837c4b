"""Runs dtctl's commands, each in a fork of one process that has imported all of it: a program of its own.

A job is a line of JSON on standard input, and how it ended one on standard output. One that names `sockets` has
conversations over those of lying_host.py in the place of SSH, and nothing else.

    commander FACTOR WIDTH    so much of all limits of time is left, and so many commands run at the same time
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRACE_S = 20.0
"""For a command to end after Ctrl-C, on a machine that is busy."""

AT_REST = 8 << 30
"""Of addresses; what is used is measured."""

WAY = ("target", "user", "port", "identity_file", "jump", "host_keys", "known_hosts")
"""What a host may have no say in."""


def hurry(factor: float) -> None:
    """All limits of time, before anything has taken them over."""
    from dtctl.transport import timeouts

    timeouts.SILENCE_LIMIT_S *= factor
    timeouts.GREETING_TIMEOUT_S *= factor
    timeouts.TOLD_AFTER_S *= factor
    timeouts.PATIENCE_S *= factor


def import_all(factor: float) -> None:
    import importlib
    import pkgutil

    import dtctl

    for module in pkgutil.walk_packages(dtctl.__path__, "dtctl."):
        if not module.name.startswith(("dtctl.agent.", "dtctl.trainer", "dtctl.__main__", "dtctl.templates")):
            importlib.import_module(module.name)
    from dtctl.operations import dump, gc
    from dtctl.operations.client import streams
    from dtctl.operations.up import readying
    from dtctl.transport import payload

    gc._PATIENCE_S *= factor
    gc._QUIET_S *= factor
    dump.QUIET_S *= factor
    readying.ROLLBACK_S *= factor
    streams._RETRY_S = (0.1, 0.1, 0.2, 0.2, 0.2)
    payload.opening()


class Line:
    """In the place of a child whose standard input and output are a socket (dtctl/transport/local.py)."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def wait(self, patience_s: float) -> int:
        return 0

    def stderr(self) -> bytes:
        return b""

    def close(self) -> None:
        self.connection.close()


class NoTensorBoard:
    """In the place of one on this machine: what is tried is what hosts make of the copies that it would show."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> NoTensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    check = begin = connect = lambda self: None


def over_sockets(directory: Path, lies: dict[str, int], ways: dict[str, Any]) -> None:
    """`lies`: host -> number of its lie; `ways`: how hosts are reached as the user says. Others are not dialled."""
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
        child: Any = Line(connection)
        session = StreamSession(host, ChildStream(child), self._waiting)
        try:
            session.begin(payload.opening())
        except BaseException:
            session.close()
            raise
        return session

    from dtctl.operations.tensorboard import local

    local.find_python = lambda: sys.executable  # which would start each Python of this machine
    local.Here = NoTensorBoard  # type: ignore[assignment,misc]
    SshTransport.open = open_session  # type: ignore[method-assign]


def watch_out(record: Path, addresses: list[str], doors: list[list[object]]) -> None:
    """Writes down what this process dials and starts, but for sockets of this machine, these addresses and doors."""
    descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(event: str, args: tuple[Any, ...]) -> None:
        tcp = event == "socket.connect" and isinstance(args[1], tuple)
        dialled = tcp and args[1][0] not in addresses and list(args[1][:2]) not in doors
        if dialled or event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
            os.write(descriptor, f"{event} {args[1:3]!r}\n".encode())

    sys.addaudithook(note)


def settle(template: Path, home: Path, other_texts: dict[str, str]) -> None:
    """A home as the template but for its path, and for these texts, in the cluster file and the records of runs."""
    shutil.copytree(template, home)
    for file in (home / "project" / "cluster.yaml", *(home / ".local" / "state" / "dtctl" / "runs").iterdir()):
        text = file.read_text()
        for old, new in {str(template): str(home), **other_texts}.items():
            text = text.replace(old, new)
        file.write_text(text)


def command(job: dict[str, Any]) -> None:
    """In the fork; does not return."""
    os.setsid()
    settle(Path(job["template"]), Path(job["env"]["HOME"]), job["other_texts"])
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    for number, name in enumerate(("stdout", "stderr"), 1):
        descriptor = os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    resource.setrlimit(resource.RLIMIT_AS, (AT_REST, AT_REST))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for number, name in enumerate(("stdout", "stderr"), 1):
        setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    if job.get("sockets"):
        over_sockets(Path(job["sockets"]), job["lies"], job["ways"])
    watch_out(Path(job["dialled"]), job.get("addresses", []), job.get("doors", []))
    sys.argv = ["dtctl", *job["words"]]
    from dtctl.cli import main

    code: Any = 0
    try:
        main()
    except SystemExit as ending:
        code = ending.code
    except BaseException:
        traceback.print_exc()
        code = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that comes now is none that the command has seen
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)


@dataclass
class Running:
    job: dict[str, Any]
    begun: float
    settled: bool = False
    interrupted: float | None = None
    killed: bool = False

    def look(self, pid: int, now: float) -> None:
        """Ctrl-C when its time is over, and the end of all patience when that does not help.

        Its time begins when its home is made: on a busy machine that takes longer than some commands get.
        """
        if not self.settled:
            self.begun, self.settled = now, Path(self.job["stdout"]).exists()
        elif self.interrupted is None and now > self.begun + self.job["patience_s"]:
            self.interrupted = now
            os.kill(pid, signal.SIGINT)
        elif self.interrupted is not None and now > self.interrupted + GRACE_S and not self.killed:
            self.killed = True
            os.kill(pid, signal.SIGKILL)


class Commander:
    def __init__(self, width: int) -> None:
        self._width = width
        self._waiting: list[dict[str, Any]] = []
        self._running: dict[int, Running] = {}
        self._unread = b""
        self._open = True

    def work(self) -> None:
        while self._open or self._waiting or self._running:
            idle = not (self._waiting or self._running)
            if self._open and select.select([0], [], [], None if idle else 0.01)[0]:
                self._take()
            elif not self._open:
                time.sleep(0.01)
            while self._waiting and len(self._running) < self._width:
                self._begin(self._waiting.pop(0))
            self._reap()

    def _take(self) -> None:
        data = os.read(0, 1 << 16)
        self._open = bool(data)
        *lines, self._unread = (self._unread + data).split(b"\n")
        self._waiting += map(json.loads, lines)

    def _begin(self, job: dict[str, Any]) -> None:
        pid = os.fork()
        if not pid:
            try:
                command(job)
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(99)
        self._running[pid] = Running(job, time.monotonic())

    def _reap(self) -> None:
        now = time.monotonic()
        for pid, running in list(self._running.items()):
            running.look(pid, now)
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                del self._running[pid]
                told = {
                    "id": running.job["id"], "code": os.waitstatus_to_exitcode(status), "seconds": now - running.begun,
                    "interrupted": running.interrupted is not None, "killed": running.killed,
                    "memory_mb": usage.ru_maxrss / 1024, "cpu_s": usage.ru_utime + usage.ru_stime,
                }  # fmt: skip
                os.write(1, json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    hurry(float(sys.argv[1]))
    import_all(float(sys.argv[1]))
    os.write(1, b'"ready"\n')
    Commander(int(sys.argv[2])).work()
