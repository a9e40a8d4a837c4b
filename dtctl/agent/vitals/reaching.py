"""Which addresses of other tasks can be connected to from this host, and what is in the way where one cannot."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple, Union

    from ..records.vitals import Unreached

    Place = Tuple[int, str]
    """Family and address of a host."""

AT_ONCE = 200
_MOST_NAMES = 200

_KINDS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "no_route",
    errno.ENETUNREACH: "no_route",
}


def unreached(addresses: Mapping[str, str], limit_s: float) -> List[Unreached]:
    """Of tasks and their addresses; all are tried side by side, with one limit for names and one for connections."""
    places = {task: address.rpartition(":") for task, address in addresses.items()}
    names = list(dict.fromkeys(host for host, _, _ in places.values()))[:_MOST_NAMES]
    found = _resolved(names, limit_s)
    problems: List[Unreached] = []
    wanted: List[Tuple[str, Place, int]] = []
    for task, (host, _, port) in places.items():
        known = found.get(host)
        if isinstance(known, str):
            problems.append(_problem(task, addresses[task], "unresolved", known))
        elif known is not None and port.isdigit():
            wanted.append((task, known, int(port)))
    for start in range(0, len(wanted), AT_ONCE):
        for task, error in _connect(wanted[start : start + AT_ONCE], limit_s).items():
            kind = _KINDS.get(error, "other")
            problems.append(_problem(task, addresses[task], kind, os.strerror(error)))
    return problems


def _problem(task: str, address: str, kind: str, text: str) -> Unreached:
    return {"task": task, "address": address, "problem": kind, "text": text}  # type: ignore[typeddict-item]


def _resolved(names: List[str], limit_s: float) -> Dict[str, Union[str, Place]]:
    """The family and the address of each name, or why it has none; asked in threads, as a resolver may hang."""
    found: Dict[str, Union[str, Place]] = {}

    def ask(name: str) -> None:
        try:
            family, _, _, _, place = socket.getaddrinfo(name.strip("[]"), None, type=socket.SOCK_STREAM)[0]
            found[name] = int(family), str(place[0])
        except (OSError, UnicodeError) as error:
            found[name] = str(getattr(error, "strerror", None) or error)

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: found.get(name, "no answer within %.0f s" % limit_s) for name in names}


def _connect(wanted: List[Tuple[str, Place, int]], limit_s: float) -> Dict[str, int]:
    """The error of each that cannot be connected to. What is connected is closed again without a word."""
    problems: Dict[str, int] = {}
    waiting = select.poll()
    sockets: Dict[int, Tuple[str, socket.socket]] = {}
    for task, place, port in wanted:
        error = _begin(task, place, port, sockets)
        if error is not None:
            problems[task] = error
    for number in sockets:
        waiting.register(number, select.POLLOUT)
    deadline = time.monotonic() + limit_s
    while sockets:
        ready = waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
        for number, _ in ready or [(number, 0) for number in list(sockets)]:
            task, one = sockets.pop(number)
            waiting.unregister(number)
            error = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if ready else errno.ETIMEDOUT
            one.close()
            if error:
                problems[task] = error
    return problems


def _begin(task: str, place: Place, port: int, sockets: Dict[int, Tuple[str, socket.socket]]) -> Optional[int]:
    """The error, where it fails at once."""
    try:
        one = socket.socket(place[0], socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError as error:
        return error.errno or errno.EIO
    error_number = one.connect_ex((place[1], port))
    if error_number in (0, errno.EINPROGRESS):
        sockets[one.fileno()] = task, one
        return None
    one.close()
    return error_number
