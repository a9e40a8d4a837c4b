"""Commands from a process that has imported all of dtctl already: each is forked from it, as most tests type many.

Started afresh a command costs half a second of a core, or a whole one with Fabric, and nine tenths of that is imports.
What a start itself imports is tested elsewhere (test_structure.py).
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

SETTINGS = {"LANG": "C.UTF-8", "PYTHONWARNINGS": "error"}
"""What Python reads when it starts. A command that wants it otherwise is not for here."""

_STARTS = ("PYTHON", "LC_", "LANG", "TZ")
_LONGEST = 1 << 17


def fits(env: Mapping[str, str]) -> bool:
    """Whether a process that was started with SETTINGS can become one with this environment."""
    return {name: value for name, value in env.items() if name.startswith(_STARTS)} == SETTINGS


class Warm:
    """The process that others are forked from. It ends when this end of its socket is closed.

    `setting`: a module that takes part, as tests/hostile/commander.py does, and a number for it.
    """

    def __init__(self, env: Mapping[str, str], *setting: str) -> None:
        self._requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            command = [sys.executable, __file__, *setting]
            self._process = subprocess.Popen(command, stdin=there.fileno(), stdout=subprocess.DEVNULL, env=env)

    def start(self, args: Sequence[str], cwd: Path, env: Mapping[str, str], out: int, err: int, **more: Any) -> Started:
        """Starts `dtctl WORDS` like subprocess.Popen, with nothing on its stdin. These descriptors are closed on this
        side.
        """
        read, write = os.pipe()
        request = json.dumps({"words": list(args), "cwd": str(cwd), "env": dict(env), **more}).encode()
        assert len(request) < _LONGEST
        descriptors = array.array("i", [out, err, write])
        self._requests.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        for one in descriptors:
            os.close(one)
        return Started(read)

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


class Started:
    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status)
        self._pid = int(self._status.readline())

    def has_ended(self, within_s: float) -> bool:
        return bool(select.select([self._status], [], [], within_s)[0])

    def has_ended_after(self, number: int, within_s: float) -> bool:
        if not self.has_ended(0):
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)
        return self.has_ended(within_s)

    def end(self) -> tuple[int, float]:
        """The exit code, and the most memory that it had, in MB."""
        with self._status as status:
            code, memory_kb = map(int, status.read().split())
        return os.waitstatus_to_exitcode(code), memory_kb / 1024


@cache
def _usual() -> Warm:
    made = Warm({"PATH": os.environ["PATH"], "HOME": "/", **SETTINGS})
    atexit.register(made.close)
    return made


def start(args: Sequence[str], cwd: Path, env: Mapping[str, str], out: int, err: int) -> Started:
    """Starts `dtctl WORDS` with SETTINGS, from a process that all tests of this worker share."""
    return _usual().start(args, cwd, env, out, err)


def run(args: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Runs `dtctl WORDS` like subprocess.run, with nothing on its stdin and both its outputs captured."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = start(args, cwd, env, os.dup(out.fileno()), os.dup(err.fileno()))
        in_time = started.has_ended(timeout_s)
        if not in_time:
            started.has_ended_after(signal.SIGKILL, timeout_s)
        code, _ = started.end()
        for one in (out, err):
            one.seek(0)
        outputs = [_text(out.read()), _text(err.read())]
        if not in_time:
            raise subprocess.TimeoutExpired(["dtctl", *args], timeout_s, *outputs)
    return subprocess.CompletedProcess(["dtctl", *args], code, *outputs)


def _text(data: bytes) -> str:
    return io.TextIOWrapper(io.BytesIO(data), "utf-8").read()


# The process itself, a program without tests around it.


def wait_for_request() -> dict[str, Any]:
    """Returns in a process of its own for each command, which has become what it was asked to be."""
    requests = socket.socket(fileno=0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _LONGEST, 3)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        _watch(child, descriptors)
    request: dict[str, Any] = json.loads(data)
    requests.detach()
    _take_streams(*descriptors)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["dtctl", *request["words"]]
    return request


def _take_streams(out: int, err: int, status: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, out, err)):
        os.dup2(descriptor, number)
    for descriptor in (nothing, out, err, status):
        os.close(descriptor)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", buffering=1, closefd=False)


def _watch(child: int, descriptors: Sequence[int]) -> None:
    """Reports the command's pid, and how it ended. Never returns."""
    out, err, status = descriptors
    os.close(out)
    os.close(err)
    os.write(status, b"%d\n" % child)
    _, ended, usage = os.wait4(child, 0)
    os.write(status, b"%d %d" % (ended, usage.ru_maxrss))
    os._exit(0)


def end(main: Callable[[], None]) -> None:
    """Ends the process as Python does, but without unloading imported modules, which takes longer than most
    commands.
    """
    code: Any = 0
    try:
        main()
    except SystemExit as ending:
        code = ending.code
    except BaseException:
        traceback.print_exc()
        code = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that comes now is none that the command has seen
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what is still open warns of itself
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)


def import_everything() -> None:
    import pkgutil

    import dtctl

    for module in pkgutil.walk_packages(dtctl.__path__, "dtctl."):
        if module.name != "dtctl.__main__" and not module.name.startswith(("dtctl.agent.bootstrap", "dtctl.trainer")):
            importlib.import_module(module.name)
    for name in ("fabric", "paramiko", "pathspec", "yaml", "rich.table", "rich.live", "rich.progress"):
        importlib.import_module(name)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    setting = importlib.import_module(sys.argv[1]) if sys.argv[1:] else None
    if setting:
        setting.before_imports(float(sys.argv[2]))
    import_everything()
    if setting:
        setting.after_imports(float(sys.argv[2]))
    gc.collect()
    gc.freeze()  # else each fork copies what its own collections visit
    asked = wait_for_request()
    from dtctl.cli import main

    if setting:
        setting.prepare(asked)
    end(main)
