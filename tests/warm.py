"""Commands from a process that has imported all of dtctl already: each is forked from it, as most tests type many.

Started afresh a command costs half a second of a core, or a whole one with Fabric, and nine tenths of that is imports.
What a start itself imports is measured and tested elsewhere (test_structure.py, benchmarks/startup.py).
"""

from __future__ import annotations

import array
import atexit
import io
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

SETTINGS = {"LANG": "C.UTF-8", "PYTHONWARNINGS": "error"}
"""What Python reads when it starts. A command that wants it otherwise is not for here."""

_STARTS = ("PYTHON", "LC_", "LANG", "TZ")
_LONGEST = 1 << 17


def fits(env: Mapping[str, str]) -> bool:
    """Whether a process that was started with SETTINGS can become one with this environment."""
    return {name: value for name, value in env.items() if name.startswith(_STARTS)} == SETTINGS


def run(words: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """As subprocess.run of `dtctl WORDS` with nothing on its stdin and both its outputs captured."""
    pipes = [os.pipe() for _ in ("stdout", "stderr", "status")]
    request = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode()
    assert len(request) < _LONGEST
    descriptors = array.array("i", [write for _, write in pipes])
    _warm().sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    for _, write in pipes:
        os.close(write)
    out, err, status = _read([read for read, _ in pipes], words, timeout_s)
    code = os.waitstatus_to_exitcode(int(status.split()[1]))
    return subprocess.CompletedProcess(["dtctl", *words], code, _text(out), _text(err))


def _read(descriptors: Sequence[int], words: Sequence[str], timeout_s: float) -> list[bytes]:
    """Everything from each, until all have ended."""
    found = dict.fromkeys(descriptors, b"")
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(int(found[descriptors[-1]].split()[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired(["dtctl", *words], timeout_s, *list(found.values())[:2])
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                found[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return list(found.values())


def _text(data: bytes) -> str:
    return io.TextIOWrapper(io.BytesIO(data), "utf-8").read()


@cache
def _warm() -> socket.socket:
    """The way to this process's own; it ends when this end is closed."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        env = {"PATH": os.environ["PATH"], "HOME": "/", **SETTINGS}
        process = subprocess.Popen([sys.executable, __file__], stdin=there.fileno(), stdout=subprocess.DEVNULL, env=env)
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


# The process itself, a program without tests around it.


def wait_for_words() -> None:
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
    request = json.loads(data)
    requests.detach()
    _take_streams(*descriptors)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["dtctl", *request["words"]]


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
    """Tells the command's pid, and how it ended. Never returns."""
    out, err, status = descriptors
    os.close(out)
    os.close(err)
    os.write(status, b"%d " % child)
    _, ended = os.waitpid(child, 0)
    os.write(status, b"%d" % ended)
    os._exit(0)


def import_everything() -> None:
    import importlib
    import pkgutil

    import dtctl

    for module in pkgutil.walk_packages(dtctl.__path__, "dtctl."):
        if module.name != "dtctl.__main__" and not module.name.startswith(("dtctl.agent.bootstrap", "dtctl.trainer")):
            importlib.import_module(module.name)
    for name in ("fabric", "paramiko", "pathspec", "yaml", "rich.table", "rich.live", "rich.progress"):
        importlib.import_module(name)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    import_everything()
    wait_for_words()
    from dtctl.cli import main

    main()
