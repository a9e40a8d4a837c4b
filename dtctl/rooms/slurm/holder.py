"""Keeps a run's processes on a node: what a session of dtctl leaves running there belongs to one step of the job.

    holder.py hold LOADER    the step's task on each node, from the start of the job to its end
    holder.py enter          a step that lasts as long as a session: hands its streams to the holder of its node

Slurm ends the processes of a step with it, so agents cannot be left behind by the steps of sessions. The holder starts
each session with the streams of the step that has asked for it, and becomes the parent of what a session leaves behind.
It ends with its input, which the batch script holds open, and ends every process below it first.

Standard library only: it is run by its path, on nodes that share this file with the machine that submits.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2)"""
CONNECT_S = 30.0
ROOM = 400
"""Blanks at the end of the program leave room for the agent's own command line (transport/payload.py)."""
LAST_S = 5.0
"""How long sessions that are open may go on when the holder ends."""
END_S = 10.0
NAME = "\0dtctl/slurm/{}/{}"
"""The holder's socket, by job and node. The name is no secret: both sides check that the other one is the same user."""

OF_A_STEP = ("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_")
KEPT = ("SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_NODELIST", "SLURMD_NODENAME")
"""Variables that describe the job. Others describe the holder's step, and mislead programs that look for such."""


def main() -> None:
    if sys.argv[1] == "hold":
        hold(sys.argv[2])
    else:
        enter()


def socket_name() -> str:
    return NAME.format(os.environ["SLURM_JOB_ID"], os.environ["SLURMD_NODENAME"])


def is_own(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


def hold(loader: str) -> None:
    """Reports itself by a line of JSON, then each SIGTERM by another; ends when its input does."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(socket_name())
    listener.listen(64)
    lives, holds = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(holds)
        try:
            Sessions(listener, lives, loader).serve()
        finally:
            os._exit(0)
    os.close(lives)
    listener.close()
    signal.signal(signal.SIGTERM, lambda *_: report("signal", "TERM"))
    report("holds", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    while os.read(0, 4096):
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(holds)
    os.waitpid(pid, 0)


def report(kind: str, value: str) -> None:
    line = json.dumps({"node": os.environ["SLURMD_NODENAME"], kind: value}) + "\n"
    os.write(1, line.encode())


class Sessions:
    """Starts sessions, and reaps what they leave behind."""

    def __init__(self, listener: socket.socket, lives: int, loader: str) -> None:
        """`lives`: ends when the holder does, however that ends."""
        self._listener = listener
        self._lives = lives
        self._loader = loader
        self._asked: dict[int, socket.socket] = {}
        """Session -> the connection of the step that waits for its exit code."""

    def serve(self) -> None:
        os.setsid()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        rung, rings = os.pipe()
        os.set_blocking(rings, False)
        os.set_blocking(rung, False)
        signal.set_wakeup_fd(rings, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # the step's output ends with the holder
            os.dup2(null, stream)
        while True:
            ready = select.select([self._listener.fileno(), self._lives, rung], [], [])[0]
            if rung in ready:
                os.read(rung, 4096)
                self._reap()
            if self._lives in ready:
                break
            if self._listener.fileno() in ready:
                self._accept()
        self._listener.close()
        deadline = time.monotonic() + LAST_S
        while self._asked and time.monotonic() < deadline:  # these may be reading how the run has ended
            time.sleep(0.05)
            self._reap()
        end_descendants()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if not is_own(connection):
            connection.close()
            return
        connection.settimeout(CONNECT_S)
        try:
            streams = received(connection)
        except OSError:
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            self._become_session(streams)
        for one in streams:
            os.close(one)
        self._asked[pid] = connection

    def _become_session(self, streams: list[int]) -> None:
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            for stream, one in enumerate(streams):
                os.dup2(one, stream)
            os.chdir(os.environ.get("HOME", "/"))
            kept = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(OF_A_STEP)}
            *options, program = json.loads(self._loader)
            argv = [sys.executable, *options, program.ljust(ROOM)]
            os.execve(argv[0], argv, kept)
        finally:
            os._exit(126)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection = self._asked.pop(pid, None)
            if connection is not None:
                with suppress(OSError):
                    connection.send(bytes([exit_code(status)]))
                connection.close()


def exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def received(connection: socket.socket) -> list[int]:
    """Three streams that the other side has sent. Raises OSError."""
    size = array.array("i").itemsize
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_LEN(3 * size), socket.MSG_CMSG_CLOEXEC)
    found = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % size])
    if len(found) != 3:
        for one in found:
            os.close(one)
        raise OSError("no streams were sent")
    return list(found)


def end_descendants() -> None:
    """Kills every process below this one, until there is none: those that lose their parent become its children."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        below = descendants(os.getpid())
        for pid in below:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                return
        time.sleep(0.02)


def descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((one / "stat").read_bytes().rpartition(b")")[2].split()[1])
            parents.setdefault(parent, []).append(int(one.name))
    found, waiting = [], [root]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def enter() -> None:
    """Ends with the exit code of the session; 125 if the node has no holder."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(CONNECT_S)
    try:
        connection.connect(socket_name())
    except OSError as error:
        sys.stderr.write(f"dtctl: no holder of this job is on the node: {error}\n")
        sys.exit(125)
    if not is_own(connection):
        sys.stderr.write("dtctl: another user has taken the name of this job's holder\n")
        sys.exit(125)
    connection.settimeout(None)
    connection.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]).tobytes())])
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # the session alone has them: its end is the end of the output
        os.dup2(null, stream)
    code = connection.recv(1)
    sys.exit(code[0] if code else 125)


if __name__ == "__main__":
    main()
