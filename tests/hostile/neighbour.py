"""Another user of a host: `neighbour.py DEED`, started by root, becomes an unprivileged user, and does the deed.

The first line of stdin is a JSON object with the parameters of the deed: a directory, a port, paths, pids. It prints a
JSON value per line on stdout when the deed is in effect, and its result at the end. A deed that lasts does so until
stdin is closed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.hostile.beside import CHECKPOINTS, LASTING, stay

NOBODY = 65534
CONNECTIONS = 1000

Facts = dict[str, Any]
Deed = Callable[[Facts], Any]


def tell(said: object) -> None:
    print(json.dumps(said), flush=True)


# Next to the checkpoints


def beside(facts: Facts) -> None:
    """Does it repeatedly if it lasts, otherwise once."""
    deed = CHECKPOINTS[facts["what"]][0]
    lasts = deed in LASTING
    if lasts:
        tell("begun")
    deed(Path(facts["directory"]))
    if not lasts:
        tell("done")


# At a port


def many_connections(open_: Callable[[socket.socket, Facts], object]) -> Deed:
    """Opens a thousand connections at once, each in this way."""

    def deed(facts: Facts) -> int:
        held = []
        for _ in range(CONNECTIONS):
            one = socket.socket()
            one.settimeout(0.5)
            with suppress(OSError):  # refused already
                one.connect(("127.0.0.1", facts["port"]))
                open_(one, facts)
            held.append(one)
        tell("there")
        while stay(1.0):
            pass
        return len(held)

    return deed


def drip(facts: Facts) -> int:
    """Opens a hundred connections that each send a byte per second."""
    held = [socket.socket() for _ in range(100)]
    for one in held:
        one.connect(("127.0.0.1", facts["port"]))
    tell("there")
    while stay(1.0):
        for one in held:
            with suppress(OSError):
                one.send(b"\x16")
    return len(held)


def nothing(one: socket.socket, facts: Facts) -> None:
    pass


def repeat(one: socket.socket, facts: Facts) -> None:
    """Sends a message that was valid once, as a listener on the network may have recorded it."""
    one.sendall(bytes.fromhex(facts["port_token"] + facts["tls"]))


PORT: dict[str, Deed] = {
    "a thousand who say nothing": many_connections(nothing),
    "a thousand who repeat a proof": many_connections(repeat),
    "a thousand who begin TLS without a proof": many_connections(
        lambda one, facts: one.sendall(bytes.fromhex(facts["tls"]))
    ),
    "a thousand who say anything": many_connections(lambda one, facts: one.sendall(os.urandom(4096))),
    "a hundred who say a byte a second": drip,
}


def squat(facts: Facts) -> str:
    """Takes the port as soon as it is free, and answers all clients with nonsense."""
    tell("waits")
    while (listener := _listen(facts["port"])) is None:
        if not stay(0):
            return "never had it"
    tell("has it")
    with listener:
        listener.settimeout(0.1)
        while stay(0):
            with suppress(OSError):
                one, _ = listener.accept()
                with one:
                    one.sendall(os.urandom(256))
    return "had it"


def _listen(port: int) -> socket.socket | None:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("0.0.0.0", port))
        made.listen()
    except OSError as error:
        made.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return made


# With the files and processes of the run


def opened(facts: Facts) -> list[str]:
    """The paths that could be opened, listed or locked."""
    return [path for path in facts["paths"] if any(_opens(path, flags) for flags in (os.O_RDONLY, os.O_WRONLY))]


def _opens(path: str, flags: int) -> bool:
    try:
        held = os.open(path, flags | os.O_NONBLOCK)
    except PermissionError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EISDIR, errno.ENXIO):  # which shows that its directory can be read
            return True
        raise
    with suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(held)
    return True


def signalled(facts: Facts) -> list[int]:
    return [pid for pid in facts["pids"] for number in (0, signal.SIGSTOP, signal.SIGKILL) if _signals(pid, number)]


def _signals(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    return True


def environments(facts: Facts) -> list[int]:
    """The environments of processes, which only their own user may know."""
    return [pid for pid in facts["pids"] for name in ("environ", "maps", "mem", "fd") if _tells(pid, name)]


def _tells(pid: int, name: str) -> bool:
    try:
        of_it = Path(f"/proc/{pid}/{name}")
        list(of_it.iterdir()) if name == "fd" else of_it.read_bytes()
    except PermissionError:
        return False
    return True


def command_lines(facts: Facts) -> list[str]:
    """All command lines that were visible while it lasted."""
    seen: set[str] = set()
    tell("looks")
    while stay(0.01):
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                with suppress(OSError):
                    seen.add(Path(entry.path, "cmdline").read_bytes().decode("utf-8", "replace"))
    return sorted(seen)


def own_directory(facts: Facts) -> None:
    """Makes the directory before its user does."""
    Path(facts["directory"]).mkdir(mode=0o755)
    tell("made")


def modules(facts: Facts) -> None:
    """Modules that leave a mark when they are imported."""
    for name in facts["names"]:
        path = Path(facts["directory"], f"{name}.py")
        path.write_text(f"open({str(path)!r} + '.imported', 'w')\nraise SystemExit('imported {name}')\n")
    tell("left")


DEEDS: dict[str, Deed] = {
    **PORT,
    "beside checkpoints": beside,
    "take a port": squat,
    "open": opened,
    "signal": signalled,
    "read environments": environments,
    "read command lines": command_lines,
    "make a directory": own_directory,
    "leave modules": modules,
}


def main() -> None:
    deed, facts = DEEDS[sys.argv[1]], json.loads(sys.stdin.buffer.readline())
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * CONNECTIONS, 2 * CONNECTIONS))
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.umask(0o022)
    tell(deed(facts))


if __name__ == "__main__":
    main()
