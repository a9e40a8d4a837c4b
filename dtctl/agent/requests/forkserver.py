"""A process that a session leaves running, and that forks the next ones, without login shell or imports of modules.

It exists only if the controller requests it, because the controller keeps its connection to the host: it uses that to
reach the socket, to which only this user can connect (docs/agent.md, "Start of a conversation").
"""

from __future__ import annotations

import gc
import os
import select
import signal
import struct
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module

from ..host import daemon, locks, paths, processes, programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import BinaryIO, Callable, Iterator, List, Tuple

    Converse = Callable[[BinaryIO, BinaryIO], None]

_WAITING = 64
_LONGEST_PATH = 107
"""The longest path of a socket, in bytes (unix(7))."""
_PIPE_BYTES = 4096
"""PIPE_BUF of Linux: writes up to this size are atomic."""

_LOGIN_FILES = (
    *("/etc/environment", "/etc/group", "/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/zsh/zshenv"),
    *("/etc/security/limits.conf", "/etc/security/limits.d", "~/.pam_environment", "~/.ssh/environment", "~/.ssh/rc"),
    *("~/.profile", "~/.bash_profile", "~/.bash_login", "~/.bashrc", "~/.zshenv", "~/.zprofile", "~/.zshrc"),
    *("~/.cshrc", "~/.tcshrc", "~/.config/fish/config.fish"),
)
"""Files that a login reads. After a change of one a session must log in, for the current PATH, groups and limits."""


def start(root: str, name: str, keep_s: float, converse: Converse) -> Tuple[str, Callable[[], None]]:
    """The path of its socket, and what this session calls at its end, so that forks have the modules that it needed.

    It is started unless it is there. The path is empty where it cannot be.
    """
    path = os.path.join(root, "sessions", paths.component(name, "session"))
    if len(os.fsencode(path)) > _LONGEST_PATH:
        return "", _no_report
    try:
        paths.make_directory(os.path.dirname(path))
        lock = locks.hold(path + ".lock", exclusive=True, certain=True)
    except OSError:  # a full disk
        return "", _no_report
    if lock is None:
        return path, _no_report
    reads, writes = os.pipe()
    daemon.detached(lambda: _serve(path, lock, (reads, writes), keep_s, converse))
    os.close(lock)
    os.close(reads)
    return path, partial(_report, writes, len(sys.modules))


def _no_report() -> None:
    """Reports nothing, for a session without a server."""


def _report(writes: int, known: int) -> None:
    """The modules that were imported since `known` of them were, to the server that this process left or comes from."""
    names = " ".join([*list(sys.modules)[known:], ""])
    with suppress(OSError):  # the server has ended
        os.write(writes, (names[:_PIPE_BYTES].rpartition(" ")[0] + " ").encode())


def end(root: str) -> None:
    """Ends the servers of this machine: after the fork for this connection a server detects that its socket is gone."""
    directory = os.path.join(root, "sessions")
    for name in paths.entries(directory):
        import socket

        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(os.path.join(directory, name))
            os.unlink(os.path.join(directory, name))


def dead(root: str) -> Iterator[str]:
    """Files of those that were killed."""
    directory = os.path.join(root, "sessions")
    for path in (os.path.join(directory, name) for name in paths.entries(directory) if name.endswith(".lock")):
        with suppress(FileNotFoundError), locks.alone(path) as alone:
            if alone:
                yield from (found for found in (path[: -len(".lock")], path) if os.path.lexists(found))


def _serve(path: str, lock: int, modules: Tuple[int, int], keep_s: float, converse: Converse) -> None:
    """Serves until it was not used for `keep_s`."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # those of the conversation that continues
        os.dup2(null, stream)
    daemon.close_descriptors(but=[lock, *modules, *programs.held()])
    daemon.rename("dtctl-sessions")
    command_line = processes.argv(os.getpid())
    daemon.take_command_line(["dtctl-sessions"])
    signal.signal(signal.SIGCHLD, _reap)
    from ..records import requests  # late: this session has had no request yet

    listener, logins = _listen(path), _login_files()
    made, (reads, writes) = os.stat(path), modules
    while True:
        gc.freeze()  # so that forks share what is there
        ready = select.select([listener.fileno(), reads], [], [], keep_s)[0]
        if not ready or _login_files() != logins or not paths.is_still(path, made):
            break
        if reads in ready:
            _import(os.read(reads, _PIPE_BYTES).decode().split())
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            if _is_own(connection):
                daemon.fork(partial(_fork, connection, writes, requests.START, command_line, converse))
            connection.close()
    with suppress(FileNotFoundError):
        for name, own in ((path, made), (path + ".lock", os.fstat(lock))):
            if paths.is_still(name, own):  # not that of another, after the directory was removed
                os.unlink(name)


def _listen(path: str) -> socket.socket:
    import socket

    with suppress(FileNotFoundError):
        os.unlink(path)  # of one that was killed
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(_WAITING)
    return listener


def _is_own(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end; for the SSH server that is the one of the login."""
    import socket

    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


def _fork(connection: socket.socket, writes: int, start: bytes, command_line: List[str], converse: Converse) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(connection.fileno(), 0)
    os.dup2(connection.fileno(), 1)
    known = len(sys.modules)
    daemon.close_descriptors(but=[writes, *programs.held()])
    daemon.rename("python3")
    daemon.take_command_line(command_line)  # identifies a session (host/ports.py)
    reader, writer = os.fdopen(0, "rb", closefd=False), os.fdopen(1, "wb", closefd=False)
    writer.write(start)
    writer.flush()
    try:
        reader.read(int(reader.readline()))  # the bootstrap, which has done its work
        reader.readline()
        converse(reader, writer)
    finally:
        _report(writes, known)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _import(names: List[str]) -> None:
    """Imports the modules that a fork has needed, for the next ones."""
    for name in names:
        with suppress(ImportError):
            import_module(name)
    programs.save_compiled()


def _login_files() -> Tuple[Tuple[int, int], ...]:
    """The login files and the time of each one's last change."""
    found = []
    for name in _LOGIN_FILES:
        try:
            status = os.stat(os.path.expanduser(name))
        except OSError:
            continue
        found.append((status.st_ino, status.st_mtime_ns))
    return tuple(found)
