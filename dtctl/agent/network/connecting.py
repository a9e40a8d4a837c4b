"""Connections to the ports of other hosts, at the addresses that the tasks are given, and what is in the way."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress

from ..records.kinds import made
from ..records.network import Reached
from .listening import GREETING, PADDING
from .naming import at_once, resolved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ..records.network import Peer
    from .naming import Address

AT_ONCE = 200
MOST_PLACES = 3
"""Addresses of a name that are tried."""

_KINDS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "no_route",
    errno.ENETUNREACH: "no_route",
    errno.EPERM: "denied",
    errno.EACCES: "denied",
}
_NO_LINE = 300


def reach(peers: List[Peer], nonce: str, limit_s: float) -> List[Reached]:
    """Tries all, AT_ONCE at a time; of a name with several addresses one that answers is enough."""
    known = resolved(list(dict.fromkeys(map(_name, peers))), limit_s)
    answer: Dict[int, Reached] = {}
    tries: List[Tuple[int, Peer, Address, int]] = []
    for number, peer in enumerate(peers):
        places, problem = known[_name(peer)]
        port = peer["address"].rpartition(":")[2]
        if not places or not port.isdigit():
            answer[number] = made(
                Reached, whose=peer["whose"], host=peer["host"], problem="unresolved", text=problem[:4096]
            )
        else:
            tries += [(number, peer, place, int(port)) for place in places[:MOST_PLACES]]
    found = at_once(lambda one: _try(*one[1:], nonce, limit_s), tries, AT_ONCE)
    for index, (number, *_) in enumerate(tries):
        if number not in answer or (answer[number]["problem"] and not found[index]["problem"]):
            answer[number] = found[index]
    return [answer[number] for number in range(len(peers))]


def _name(peer: Peer) -> str:
    return peer["address"].rpartition(":")[0].strip("[]")


def _try(peer: Peer, place: Address, port: int, nonce: str, limit_s: float) -> Reached:
    answer = made(Reached, whose=peer["whose"], host=peer["host"], place=place[1])
    try:
        connection = socket.create_connection((place[1], port), limit_s)
    except OSError as error:
        number = error.errno or (errno.ETIMEDOUT if isinstance(error, socket.timeout) else errno.EIO)
        answer["problem"] = _KINDS.get(number, "other")  # type: ignore[typeddict-item]
        answer["text"] = os.strerror(number)
        return answer
    with connection:
        if not peer["live"]:
            _judge(answer, _answer_of(connection, nonce, limit_s))
    return answer


def _answer_of(connection: socket.socket, nonce: str, limit_s: float) -> bytes:
    """What is received until nothing more is expected."""
    received = b""
    due = time.monotonic() + limit_s
    with suppress(OSError):  # it is judged by what it has sent until then
        connection.sendall(("%s ask\n" % nonce).encode("ascii"))
        while time.monotonic() < due:
            connection.settimeout(max(0.001, due - time.monotonic()))
            piece = connection.recv(65_536)
            received += piece
            name, line, rest = received.partition(b"\n")
            if not piece or (line and len(rest) >= len(PADDING)) or (not line and len(name) > _NO_LINE):
                break
    return received


def _judge(answer: Reached, received: bytes) -> None:
    greeting, line, rest = received.partition(b"\n")
    host = greeting[len(GREETING) :].decode("ascii", "replace")[:200]
    if not received:
        answer["problem"] = "silent"
    elif not line or rest.strip(b".") or not greeting.startswith(GREETING):
        answer["problem"] = "stranger"
    elif host != answer["host"]:
        answer["problem"], answer["by"] = "other_host", host
    elif len(rest) < len(PADDING):
        answer["problem"] = "cut_off"
