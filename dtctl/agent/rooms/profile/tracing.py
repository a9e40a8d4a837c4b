"""TensorFlow's own profile of a live task, by the profiler service that its process answers on a port.

Every tf.distribute.Server has it on the port of its cluster, and tf.profiler.experimental.server.start on another. The
trainer's own Python requests the profile in a process apart, and the trainer writes it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import time

from ...host import files, paths, ports, processes
from ...records.values import brief
from ...run import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    import threading
    from typing import IO, Collection, Dict, Iterator, List, Optional, Sequence

    from ...host.secrets import Masks
    from .records import NoFile, ProfileFile

LIMIT_S = 120.0
"""How long the program may take besides the profile itself: it imports TensorFlow."""
MOST_PORTS = 8
MOST_BYTES = 2 << 30
"""A message of protobuf, as a profile is, cannot be larger."""
_PROBE_S = 1.0
_OUTPUT_BYTES = 1 << 16
_PYTHON = re.compile(r"python[0-9.]*\Z")
_TENSORFLOW = ("libtensorflow_framework", "libtensorflow_cc", "_pywrap_tensorflow_internal")
_SAYS = "dtctl: "
_FOREIGN = ("TF_CONFIG", "PYTHONFAULTHANDLER", "PYTHONSTARTUP", "PYTHONINSPECT")
"""Variables of the trainer that the program would misunderstand."""

PROGRAM = """\
import glob, os, sys
os.nice(10)
os.umask(0o077)
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
place, duration_ms, ports = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
import tensorflow as tf
said = "nothing was profiled"
for port in ports:
    try:
        tf.profiler.experimental.client.trace("grpc://127.0.0.1:" + port, place, duration_ms, num_tracing_attempts=1)
    except Exception as error:
        said = "%s: %s" % (type(error).__name__, error)
    if glob.glob(os.path.join(place, "plugins", "profile", "*", "*.xplane.pb")):
        sys.exit(0)
print("\\ndtctl: " + said.replace("\\n", " "), flush=True)
sys.exit(3)
"""
"""A program that requests a profile from each of these ports until one answers; 3: none has. Trainers go before it, for
processors by its niceness, and for memory: on a host without any the kernel ends it in place of them.
"""


class NoProfile(Exception):
    """There is no profile of TensorFlow's."""

    def __init__(self, why: NoFile, said: str = "") -> None:
        super().__init__(why)
        self.why: NoFile = why
        self.said = said


class Tracing:
    """One profile: it begins when this is made, and `finish` waits for it. Both raise NoProfile."""

    def __init__(self, found: Sequence[processes.Process], port: Optional[int], place: str, secrets: Collection[str]):
        """`found`: the processes of the attempt, the trainer first. `port`: the task's own. `place`: a directory, which
        is made; `secrets`: names of variables.
        """
        own = [process.pid for process in found if _has_loaded_tensorflow(process.pid)]
        if not own:
            raise NoProfile("no_tensorflow")
        if not all(map(_sees_these_files, own)):
            raise NoProfile("contained")
        answering = list(_answering(own, port))
        if not answering:
            raise NoProfile("no_port")
        pythons = [python for pid in own for python in [_python_of(pid)] if python is not None]
        if not pythons:
            raise NoProfile("no_python")
        self._key = os.urandom(16).hex()
        self._variables = _variables(own[0], secrets, self._key)
        self._python, self._ports = pythons[0], answering
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._until = 0.0
        try:
            paths.make_directory(place)
            os.close(files.directory_below(os.path.dirname(place), os.path.basename(place)))
            self._own = tempfile.mkdtemp(prefix=".", dir=place)
        except OSError as error:
            raise NoProfile("not_written", _text(error)) from None
        self._place = place
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (`close` closes it)

    def begin(self, seconds: float) -> None:
        words = [self._own, str(int(seconds * 1000)), *map(str, self._ports)]
        self._until = time.monotonic() + seconds + LIMIT_S
        try:
            self._child = environment.spawn(
                [self._python, "-c", PROGRAM, *words], self._variables, "/", stdout=self._output, stderr=self._output
            )
        except (OSError, ValueError) as error:
            raise NoProfile("failed", "%s: %s" % (self._python, error)) from None

    def finish(self, name: str, masks: Masks, cancelled: threading.Event) -> ProfileFile:
        """The file, which then has this name. It waits until the program has ended."""
        assert self._child is not None
        while self._child.poll() is None:
            if time.monotonic() > self._until or cancelled.wait(0.1):
                raise NoProfile("failed", "the profiler has not answered within %g s" % LIMIT_S)
        try:
            return self._keep(name)
        except FileNotFoundError:
            said = masks.hide_text(self._said())
            raise NoProfile("no_service" if self._child.returncode == 3 else "failed", brief(said)) from None
        except OSError as error:
            raise NoProfile("not_written", _text(error)) from None

    def close(self) -> None:
        """Ends the program with all that it has started, and removes what is unfinished."""
        if self._child is not None:
            environment.end_tree(self._child, self._key)
        self._output.close()
        shutil.rmtree(self._own, ignore_errors=True)

    def _keep(self, name: str) -> ProfileFile:
        """Moves the profile to its place, readable by this user alone. Raises OSError."""
        path = _largest(self._own)
        with files.opened(path) as file:
            size_bytes = os.fstat(file).st_size
            if size_bytes > MOST_BYTES:
                raise files.Unfit(path, "is too large: it has %d bytes" % size_bytes)
            os.fchmod(file, 0o600)
        kept = os.path.join(self._place, name)
        os.replace(path, kept)
        return {"path": kept.encode("utf-8", "replace").decode("utf-8"), "size_bytes": size_bytes}

    def _said(self) -> str:
        """The last line of its output, or the one that reports why no port has answered."""
        size = os.fstat(self._output.fileno()).st_size
        data = files.read_at(self._output.fileno(), max(0, size - _OUTPUT_BYTES), _OUTPUT_BYTES)
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        own = [line[len(_SAYS) :] for line in lines if line.startswith(_SAYS)]
        return (own or lines or [""])[-1]


def _largest(directory: str) -> str:
    """The profile below a directory. Raises FileNotFoundError."""
    below = os.path.join(directory, "plugins", "profile")
    found: List[str] = []
    for session in os.listdir(below):
        place = os.path.join(below, session)
        found += [os.path.join(place, name) for name in os.listdir(place) if name.endswith(".xplane.pb")]
    if not found:
        raise FileNotFoundError(below)
    return max(found, key=lambda path: files.stat_regular(path).st_size)


def _has_loaded_tensorflow(pid: int) -> bool:
    maps = processes.proc_text(pid, "maps")
    return any(name in maps for name in _TENSORFLOW)


def _sees_these_files(pid: int) -> bool:
    """Whether it sees the same files as this process, and the same ports: in a container it does not."""
    try:
        return all(os.readlink("/proc/%d/%s" % (pid, one)) == os.readlink("/proc/self/" + one) for one in _VIEWS)
    except OSError:
        return False


_VIEWS = ("ns/mnt", "ns/net", "root")


def _answering(pids: Sequence[int], port: Optional[int]) -> Iterator[int]:
    """The ports of these processes on which a gRPC server answers, the task's own first."""
    listening = sorted(ports.listened_on(pids), key=lambda one: one != port)
    return (one for one in listening[:MOST_PORTS] if is_grpc(one))


def is_grpc(port: int) -> bool:
    """Whether a gRPC server listens there: it begins with a frame SETTINGS (RFC 9113, 3.4 and 6.5). Nothing is sent, so
    that no other server, such as NCCL's, takes it for a message.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PROBE_S) as connection:
            connection.settimeout(_PROBE_S)
            head = connection.recv(9, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 9 and head[3] == 4 and head[4] == 0 and head[5:] == b"\0\0\0\0"


def _python_of(pid: int) -> Optional[str]:
    """The interpreter of a process by the path with which it was started, which names its virtual environment."""
    try:
        real = os.path.realpath("/proc/%d/exe" % pid)
        cwd = os.readlink("/proc/%d/cwd" % pid)
    except OSError:
        return None
    word = (processes.argv(pid) or [""])[0]
    path = processes.environment(pid).get("PATH")
    program = os.path.join(cwd, word) if "/" in word else shutil.which(word, path=path)
    if program and os.path.realpath(program) == real and os.access(program, os.X_OK):
        return program
    return real if _PYTHON.match(os.path.basename(real)) and os.access(real, os.X_OK) else None


def _variables(pid: int, secrets: Collection[str], key: str) -> Dict[str, str]:
    """The environment of a trainer for the program: its libraries are found by it. It gets no GPU and no secrets."""
    own = environment.without_proxies(processes.environment(pid))
    kept = {
        name: value
        for name, value in own.items()
        if name not in secrets and name not in _FOREIGN and not name.startswith("DTCTL_")
    }
    kept.update(DTCTL_KEY=key, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    return kept


def _text(error: OSError) -> str:
    place = os.fsencode(error.filename).decode("utf-8", "replace") if error.filename else ""
    return brief("%s: %s" % (place, error.strerror) if place else str(error.strerror))
