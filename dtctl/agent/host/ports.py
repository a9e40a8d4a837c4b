"""Whether a port can be listened on, and who does so already."""

from __future__ import annotations

import os
import socket

from . import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Set

_LISTENS = "0A"
"""TCP_LISTEN in the `st` column of /proc/net/tcp."""


def taken(port: int) -> bool:
    """Binds the port once, on every address, as a trainer's server would."""
    return not (_binds(socket.AF_INET, "0.0.0.0", port) and _binds(socket.AF_INET6, "::", port))


def _binds(family: int, address: str, port: int) -> bool:
    import errno

    try:
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return True  # no such family here
    with probe:
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that are dying do not count
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def holder(port: int) -> str:
    """Who listens there, in words. /proc does not show which process of another user it is."""
    inodes = listening(port)
    for name in sorted(os.listdir("/proc")) if inodes else ():
        if name.isdigit() and holds(name, inodes):
            return "pid %s (%s)" % (name, processes.command(int(name)))
    return "a process that cannot be seen (another user's)"


def listening(port: int) -> Set[str]:
    """The inodes of the sockets that listen on a port, whatever the address."""
    # proc(5), /proc/net/tcp: sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
    found: Set[str] = set()
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/net/" + name, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        found.update(row[9] for row in rows if row[3] == _LISTENS and int(row[1].rsplit(":", 1)[1], 16) == port)
    return found


def holds(pid: str, inodes: Set[str]) -> bool:
    """True when the process has one of these sockets open; False, too, when it is another user's."""
    directory = "/proc/%s/fd" % pid
    try:
        links = [_link(os.path.join(directory, name)) for name in os.listdir(directory)]
    except OSError:
        return False
    return any(link is not None and link[len("socket:[") : -1] in inodes for link in links)


def _link(path: str) -> Optional[str]:
    try:
        target = os.readlink(path)
    except OSError:
        return None
    return target if target.startswith("socket:[") else None
