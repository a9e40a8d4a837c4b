"""Connections to the ports of other hosts, at the addresses that the tasks are given, and what is in the way."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time

from ..records.kinds import made
from ..records.network import Reached
from .listening import GREETING, PADDING
from .naming import resolved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from ..records.network import Peer
    from .naming import Place

AT_ONCE = 200
MOST_PLACES = 3
"""That a name stands for and that are tried."""

_KINDS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "no_route",
    errno.ENETUNREACH: "no_route",
    errno.EPERM: "denied",
    errno.EACCES: "denied",
}
_NO_LINE = 300


class Try:
    """One connection. `hindrance` None: it is still under way; empty: the right host has answered."""

    def __init__(self, peer: Peer, place: Place, port: int) -> None:
        self.peer = peer
        self.place = place
        self.port = port
        self.connection: Optional[socket.socket] = None
        self.connected = False
        self.received = b""
        self.hindrance: Optional[str] = None
        self.by = ""
        self.text = ""
        self.due = 0.0

    def begin(self, now: float, limit_s: float) -> None:
        self.due = now + limit_s
        try:
            self.connection = socket.socket(
                self.place[0], socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )
            number = self.connection.connect_ex((self.place[1], self.port))
        except OSError as error:
            number = error.errno or errno.EIO
        if number not in (0, errno.EINPROGRESS):
            self._fail(number)

    def step(self, nonce: str, limit_s: float) -> bool:
        """Called when the socket is ready. True: from now on it is to be read."""
        assert self.connection is not None
        try:
            if self.connected:
                self._read()
                return False
            number = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                self._fail(number)
                return False
            if self.peer["live"]:
                self.hindrance = ""
                return False
            self.connected, self.due = True, time.monotonic() + limit_s
            self.connection.send(("%s ask\n" % nonce).encode("ascii"))
            return True
        except BlockingIOError:
            return False
        except OSError as error:
            if self.connected:
                self._judge()
            else:
                self._fail(error.errno or errno.EIO)
            return False

    def _read(self) -> None:
        assert self.connection is not None
        piece = self.connection.recv(65_536)
        self.received += piece
        name, line, rest = self.received.partition(b"\n")
        if not piece or (line and len(rest) >= len(PADDING)) or (not line and len(name) > _NO_LINE):
            self._judge()

    def _judge(self) -> None:
        """By what it has received until now, of which nothing more is awaited."""
        greeting, line, rest = self.received.partition(b"\n")
        self.by = greeting[len(GREETING) :].decode("ascii", "replace")[:200] if line else ""
        if not self.received:
            self.hindrance = "silent"
        elif not line or rest.strip(b".") or not greeting.startswith(GREETING):
            self.hindrance, self.by = "stranger", ""
        elif self.by != self.peer["host"]:
            self.hindrance = "other_host"
        else:
            self.hindrance = "" if len(rest) >= len(PADDING) else "cut_off"

    def give_up(self) -> None:
        """Its time is over."""
        if self.connected:
            self._judge()
        else:
            self._fail(errno.ETIMEDOUT)

    def _fail(self, number: int) -> None:
        self.hindrance, self.text = _KINDS.get(number, "other"), os.strerror(number)

    def end(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def result(self) -> Reached:
        return {
            "whose": self.peer["whose"],
            "host": self.peer["host"],
            "place": self.place[1],
            "problem": self.hindrance or "",  # type: ignore[typeddict-item]
            "by": self.by if self.hindrance == "other_host" else "",
            "text": self.text,
        }


def reach(peers: List[Peer], nonce: str, limit_s: float) -> List[Reached]:
    """Tries all, AT_ONCE at a time; of a name that stands for several addresses one that answers is enough."""
    names = list(dict.fromkeys(_name(peer) for peer in peers))
    known = resolved(names, limit_s)
    answer: List[Optional[Reached]] = [None] * len(peers)
    tries: List[Tuple[int, Try]] = []
    for number, peer in enumerate(peers):
        places, problem = known[_name(peer)]
        port = peer["address"].rpartition(":")[2]
        if not places or not port.isdigit():
            answer[number] = _unresolved(peer, problem)
        else:
            tries += [(number, Try(peer, place, int(port))) for place in places[:MOST_PLACES]]
    _connect([one for _, one in tries], nonce, limit_s)
    for number, one in tries:
        before = answer[number]
        if before is None or (before["problem"] and not one.hindrance):
            answer[number] = one.result()
    return [one for one in answer if one is not None]


def _name(peer: Peer) -> str:
    return peer["address"].rpartition(":")[0].strip("[]")


def _unresolved(peer: Peer, problem: str) -> Reached:
    return made(Reached, whose=peer["whose"], host=peer["host"], problem="unresolved", text=problem[:4096])


def _connect(tries: List[Try], nonce: str, limit_s: float) -> None:
    """Until each has its `hindrance`."""
    waiting = list(reversed(tries))
    with selectors.DefaultSelector() as selector:
        under_way: Dict[int, Try] = {}
        while waiting or under_way:
            now = time.monotonic()
            while waiting and len(under_way) < AT_ONCE:
                one = waiting.pop()
                one.begin(now, limit_s)
                if one.hindrance is None and one.connection is not None:
                    under_way[one.connection.fileno()] = one
                    selector.register(one.connection, selectors.EVENT_WRITE)
                else:
                    one.end()
            _turn(selector, under_way, nonce, limit_s)


def _turn(selector: selectors.BaseSelector, under_way: Dict[int, Try], nonce: str, limit_s: float) -> None:
    due = min((one.due for one in under_way.values()), default=0.0)
    ready = [key.fd for key, _ in selector.select(max(0.0, due - time.monotonic()))] if under_way else []
    for number in ready:
        one = under_way[number]
        if one.step(nonce, limit_s):
            selector.modify(number, selectors.EVENT_READ)
    now = time.monotonic()
    for number, one in list(under_way.items()):
        if one.hindrance is None and now >= one.due:
            one.give_up()
        if one.hindrance is not None:
            selector.unregister(number)
            del under_way[number]
            one.end()
