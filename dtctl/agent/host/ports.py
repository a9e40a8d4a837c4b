"""Whether a port can be listened on, who does so already, and which ones are free."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import time

from . import machine, processes, sock_diag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, Iterable, List, Optional, Tuple

_FIRST_CHOSEN = 10_000
_LISTENS = "0A"
"""TCP_LISTEN in the `st` column of /proc/net/tcp."""
_SESSION = '"dtctl","exec"'
"""Part of the command line of each session (transport/payload.py: LOADER)."""


def taken(port: int) -> bool:
    """Binds the port once, on every address, as a trainer's server would. True, too, where this user may not."""
    sockets = bound(port, dying=True)
    if sockets is None:
        return True
    let_go(sockets)
    return False


TRIED_S = 5.0
"""How long a session of `dtctl check`, or of `up` for another name of this machine, holds a port that it tries."""


def is_taken_for_good(port: int, until: float) -> bool:
    """Whether the port is taken, and not only by a session that tries it and releases it by `until` (monotonic)."""
    while taken(port):
        if time.monotonic() >= until or not holding(port)[1]:
            return True
        time.sleep(0.1)
    return False


def ephemeral() -> Tuple[int, int]:
    """The ports that the system hands out to outgoing connections: one that is free now may be taken at any time."""
    words = machine.text("/proc/sys/net/ipv4/ip_local_port_range").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (32768, 60999)


def free_from(span: int, most: int = 8) -> List[int]:
    """Round numbers from which on `span` ports are free, and outside of `ephemeral`."""
    low, high = ephemeral()
    there = _listeners().keys()
    found: List[int] = []
    for first in range(2400, 65536 - span, 100):
        if len(found) == most:
            break
        if not (first <= high and first + span > low) and there.isdisjoint(range(first, first + span)):
            found.append(first)
    return found


def hold(besides: Container[int]) -> Optional[Tuple[int, List[socket.socket]]]:
    """A free port, and the sockets that hold it until they are closed; None if no port is free.

    It is anywhere above the well-known ports, so that two users of a machine rarely choose the same.
    """
    low, high = ephemeral()
    ports = [*range(_FIRST_CHOSEN, low), *range(max(_FIRST_CHOSEN, high + 1), 65536)]
    while ports:
        chosen = int.from_bytes(os.urandom(4), "little") % len(ports)  # `random` takes 3 ms to import
        ports[chosen], ports[-1] = ports[-1], ports[chosen]
        port = ports.pop()
        held = bound(port, dying=False) if port not in besides else None
        if held:
            return port, held
    return None


def bound(port: int, dying: bool) -> Optional[List[socket.socket]]:
    """Sockets that are bound to it and do not listen, on every address; None where it is taken.

    `dying`: connections that are dying do not count.
    """
    sockets: List[socket.socket] = []
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            one = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no such address family here
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if dying:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((address, port))
        except OSError as error:
            one.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):  # else the family is switched off
                let_go(sockets)
                return None
        else:
            sockets.append(one)
    return sockets


def let_go(sockets: List[socket.socket]) -> None:
    for one in sockets:
        one.close()
    del sockets[:]


def _first_of_users() -> int:
    """ip(7): net.ipv4.ip_unprivileged_port_start."""
    return int(machine.text("/proc/sys/net/ipv4/ip_unprivileged_port_start") or 1024)


def holder(port: int) -> str:
    return holding(port)[0]


def holding(port: int) -> Tuple[str, bool]:
    """A description of the process that listens there, and whether it is a session of dtctl that only tries the port.

    /proc does not show which process of another user it is.
    """
    owners = listening(port)
    pid = _pid(owners)
    if not owners and port < _first_of_users():
        return "the system, which lets root alone listen below %d" % _first_of_users(), False
    if pid is None:
        unknown = ("a process%s" % _of_another(owners)) if owners else "a process that cannot be seen (another user's)"
        return unknown, False
    command = processes.command(pid)
    tries = _SESSION in command
    shown = "a dtctl check, for some seconds" if tries else _short(command)
    return "pid %d%s (%s)%s" % (pid, _of_run(pid), shown, _of_another(owners)), tries


_DIGEST = re.compile(r"(?<![0-9a-f])([0-9a-f]{8})[0-9a-f]{24,}")
_MOST_SHOWN = 120


def _short(command: str) -> str:
    """A command that fits on a screen: names of files of dtctl have digests, and trainers many arguments."""
    text = _DIGEST.sub(r"\1...", command)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def listener(port: int) -> Optional[int]:
    """The pid of the listening process; None if it is another user's, or there is none."""
    return _pid(listening(port))


def _of_run(pid: int) -> str:
    """The run of a trainer, by its environment, which is unreadable for another user's process."""
    run = processes.environment(pid).get("DTCTL_RUN", "")[:200]
    return " of the run %s" % run if run and run.isascii() and run.isprintable() else ""


def _pid(owners: Container[str]) -> Optional[int]:
    """The pid of the process with these sockets; None if it is another user's, or there is none."""
    found = (int(name) for name in sorted(os.listdir("/proc")) if name.isdigit() and holds(name, owners))
    return next(found, None) if owners else None


def _of_another(owners: Dict[str, int]) -> str:
    names = sorted({machine.name_of_user(user) for user in owners.values() if user != os.geteuid()})
    users = ["user " + name if name.isdigit() else name for name in names]
    return " of %s" % " and ".join(users) if users else ""


def listening(port: int) -> Dict[str, int]:
    """The inodes of the sockets that listen on a port, on any address, and the numbers of their users."""
    return _listeners().get(port, {})


def _listeners() -> Dict[int, Dict[str, int]]:
    """The same of every port that is listened on.

    /proc/net/tcp walks through the kernel's table of all connections, which takes 3 to 10 ms even where it is empty.
    """
    try:
        return _dumped()
    except (OSError, struct.error):  # the kernel, or a sandbox, does not answer this
        return _read()


def _dumped() -> Dict[int, Dict[str, int]]:
    """The listening sockets, which the kernel selects. Raises OSError."""
    found: Dict[int, Dict[str, int]] = {}
    for one in sock_diag.dumped(sock_diag.LISTEN):
        if one.state == sock_diag.LISTEN:
            found.setdefault(one.port, {})[str(one.inode)] = one.user
    return found


def _read() -> Dict[int, Dict[str, int]]:
    # proc(5), /proc/net/tcp: sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
    found: Dict[int, Dict[str, int]] = {}
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/net/" + name, encoding="ascii") as file:
                rows = [line.split() for line in file if _LISTENS in line]  # a host may have thousands of others
        except OSError:
            continue
        for row in rows:
            if row[3] == _LISTENS:
                found.setdefault(int(row[1].rsplit(":", 1)[1], 16), {})[row[9]] = int(row[7])
    return found


def holds(pid: str, inodes: Container[str]) -> bool:
    """Whether the process has one of these sockets open; also False for another user's."""
    return any(str(inode) in inodes for inode in inodes_of(int(pid)))


def inodes_of(pid: int) -> List[int]:
    """The inodes of the sockets that a process has open; none for another user's."""
    directory = "/proc/%d/fd" % pid
    found = []
    try:
        for name in os.listdir(directory):
            try:
                target = os.readlink(os.path.join(directory, name))
            except OSError:
                continue  # closed meanwhile
            if target.startswith("socket:["):
                found.append(int(target[len("socket:[") : -1]))
    except OSError:
        pass
    return found


def listened_on(pids: Iterable[int]) -> List[int]:
    """The ports on which these processes of this user listen."""
    own = {str(inode) for pid in pids for inode in inodes_of(pid)}
    return sorted(port for port, inodes in _listeners().items() if not own.isdisjoint(inodes))


CLAIM = "dtctl/port/%d"
"""The claim of a port that a run will listen on, visible on this machine before a process listens there.

It is a Unix socket with an abstract name (unix(7)): /proc/net/unix shows it to all who share these ports, it
leaves no file, and it ends with the process that holds it.
"""


def claim(ports: Iterable[int]) -> List[int]:
    """Descriptors that stay open as long as the process does. Nothing depends on them but the choice of ports."""
    held = []
    for port in ports:
        claimed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claimed.bind(("\0" + CLAIM + "/%d") % (port, os.getpid()))
        except OSError:
            claimed.close()
        else:
            held.append(claimed.detach())
    return held
