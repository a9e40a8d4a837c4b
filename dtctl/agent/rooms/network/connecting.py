"""The network from this host: the addresses of names, and connections to the ports of other hosts."""

from __future__ import annotations

import errno
import fcntl
import itertools
import math
import os
import re
import select
import socket
import struct
import threading
import time
from contextlib import suppress

from ...host import machine
from ...records.kinds import made
from ...run import environment
from .listening import GREETING, PADDING
from .records import MOST_ADDRESSES, Interface, Link, Peer, Reached, Resolved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Generator, Iterator, List, Optional, Sequence, Tuple

    Address = Tuple[int, str]
    "Family and address."
    Wait = Tuple[int, int, float]
    "A descriptor, the events of poll(2) that are waited for, and until when."
    Attempt = Generator[Wait, bool, None]
    "Receives whether they have come in time."

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
    """Connects to all peers, AT_ONCE at a time; of a name with several addresses one that answers is enough.

    `limit_s`: to resolve the names, to connect, and to receive the answer, each.
    """
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
    found = [made(Reached, whose=peer["whose"], host=peer["host"], place=place[1]) for _, peer, place, _ in tries]
    _all_at_once(_try(*one[1:], nonce, limit_s, into) for one, into in zip(tries, found))
    for (number, *_), one in zip(tries, found):
        if number not in answer or (answer[number]["problem"] and not one["problem"]):
            answer[number] = one
    return [answer[number] for number in range(len(peers))]


def _name(peer: Peer) -> str:
    return peer["address"].rpartition(":")[0].strip("[]")


def _try(peer: Peer, place: Address, port: int, nonce: str, limit_s: float, answer: Reached) -> Attempt:
    """Connects without blocking, and receives until nothing more is expected."""
    try:
        with socket.socket(place[0], socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            number = connection.connect_ex((place[1], port))
            if number == errno.EINPROGRESS:
                is_ready = yield connection.fileno(), select.POLLOUT, time.monotonic() + limit_s
                number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if is_ready else errno.ETIMEDOUT
            if number:
                raise OSError(number, "")
            if not peer["live"]:
                received = yield from _answer_of(connection, nonce, time.monotonic() + limit_s)
                _judge(answer, received)
    except OSError as error:
        number = error.errno or errno.EIO
        answer["problem"] = _KINDS.get(number, "other")  # type: ignore[typeddict-item]
        answer["text"] = os.strerror(number)


def _answer_of(connection: socket.socket, nonce: str, due: float) -> Generator[Wait, bool, bytes]:
    received = b""
    with suppress(OSError):  # it is judged by what it has sent until then
        connection.send(("%s ask\n" % nonce).encode("ascii"))
        while (yield connection.fileno(), select.POLLIN, due):
            piece = connection.recv(65_536)
            received += piece
            name, line, rest = received.partition(b"\n")
            if not piece or (line and len(rest) >= len(PADDING)) or (not line and len(name) > _NO_LINE):
                break
    return received


def _all_at_once(attempts: Iterator[Attempt]) -> None:
    """Continues each when what it waits for has come, or is due, in one thread: one for each took 10 ms for 16."""
    waiting = select.poll()
    active: Dict[int, Tuple[Attempt, float]] = {}

    def proceed(attempt: Attempt, is_ready: Optional[bool]) -> None:
        with suppress(StopIteration):
            descriptor, events, due = attempt.send(is_ready)  # type: ignore[arg-type]  # None begins it
            waiting.register(descriptor, events)
            active[descriptor] = attempt, due

    while True:
        for attempt in itertools.islice(attempts, AT_ONCE - len(active)):
            proceed(attempt, None)
        if not active:
            return
        left_s = min(due for _, due in active.values()) - time.monotonic()
        ready = {descriptor for descriptor, _ in waiting.poll(math.ceil(max(0.0, left_s) * 1000))}
        now = time.monotonic()
        for descriptor, (attempt, due) in list(active.items()):
            if descriptor in ready or due <= now:
                del active[descriptor]
                waiting.unregister(descriptor)
                proceed(attempt, descriptor in ready)


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


_SIOCGIFMTU = 0x8921
_RTM_GETLINK = 18
_NLM_F_REQUEST = 1
_IFLA_QDISC = 6
_HEADERS = struct.Struct("=IHHIIBxHiII")
"""nlmsghdr and ifinfomsg of rtnetlink(7)."""


def link(name: str) -> Link:
    """The properties of interface `name`, in this process's network."""
    return {
        "mbits": _mbits(name),
        "half": _said(name, "duplex") == "half",
        "mtu": _mtu(name),
        "queue": _queue(name),
    }


def _mbits(name: str) -> Optional[int]:
    text = _said(name, "speed")  # -1 if the driver does not know
    return int(text) if text.isdigit() and int(text) else None


def _said(name: str, what: str) -> str:
    """A value in /sys, unless that shows another network, as in a sandbox with the machine's /sys."""
    directory = "/sys/class/net/%s/" % name
    with suppress(OSError, ValueError):
        if int(machine.text(directory + "ifindex")) == socket.if_nametoindex(name):
            return machine.text(directory + what).strip()
    return ""


def _mtu(name: str) -> Optional[int]:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked, _SIOCGIFMTU, struct.pack("16si240x", name.encode("utf-8")[:15], 0))
        return int(struct.unpack_from("=i", answer, 16)[0])
    return None


def _queue(name: str) -> str:
    """The kind of its queue: `tbf` and `netem` delay packets."""
    with suppress(OSError, struct.error, UnicodeError):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
            kernel.settimeout(1.0)
            index = socket.if_nametoindex(name)
            kernel.send(_HEADERS.pack(_HEADERS.size, _RTM_GETLINK, _NLM_F_REQUEST, 1, 0, 0, 0, index, 0, 0))
            answer = kernel.recv(65_536)
        at = _HEADERS.size
        while at + 4 <= len(answer):
            size, kind = struct.unpack_from("=HH", answer, at)
            if kind == _IFLA_QDISC:
                return answer[at + 4 : at + size].rstrip(b"\0").decode("ascii")[:40]
            at += max(4, (size + 3) & ~3)
    return ""


_SIOCGIFADDR = 0x8915
_LOOKED_UP_AT_ONCE = 32
_USER = re.compile(r"//[^/@]*@")
_LONGEST = 500


def resolved(names: Sequence[str], limit_s: float) -> Dict[str, Tuple[List[Address], str]]:
    """The addresses of each name, or why it has none. A resolver may hang, so threads query it."""
    found = {name: _places(name, socket.AI_NUMERICHOST) for name in names}
    todo = [name for name in reversed(names) if not found[name][0]]
    found.update(dict.fromkeys(todo, ([], "no answer within %.3g s" % limit_s)))

    def take() -> None:
        while todo:
            try:
                name = todo.pop()
            except IndexError:
                return
            found[name] = _places(name)

    threads: List[threading.Thread] = []
    for _ in range(min(_LOOKED_UP_AT_ONCE, len(todo))):
        thread = threading.Thread(target=take, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the user's limit of threads: the existing ones do the work
            if not threads:
                raise
            break
        threads.append(thread)
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(min(threading.TIMEOUT_MAX, max(0.0, deadline - time.monotonic())))
    return dict(found)


def _places(name: str, flags: int = 0) -> Tuple[List[Address], str]:
    try:
        # bytes: a string would import what encodes names that are not ASCII
        asked = name.encode("ascii") if name.isascii() else name
        answer = socket.getaddrinfo(asked, None, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError) as error:
        return [], str(getattr(error, "strerror", None) or error)
    return list(dict.fromkeys((int(family), str(place[0])) for family, _, _, _, place in answer)), ""


def own_names(names: Sequence[str], limit_s: float) -> List[Resolved]:
    known = resolved(list(dict.fromkeys(names)), limit_s)
    return [
        {
            "name": name,
            "addresses": [address for _, address in places][:MOST_ADDRESSES],
            "own": any(is_own(place) for place in places),
        }
        for name, (places, _) in known.items()
    ]


def is_own(place: Address) -> bool:
    """Whether an address is the host's: only such an address can be bound."""
    try:
        with socket.socket(place[0], socket.SOCK_STREAM) as probe:
            probe.bind((place[1], 0))
    except OSError:
        return False
    return True


def interfaces() -> List[Interface]:
    """Addresses by which others may reach this host: neither loopback nor link-local ones."""
    found = [*_ipv4(), *_ipv6()][:MOST_ADDRESSES]
    answer = {name: link(name) for name in {name for name, _ in found}}
    return [{"name": name[:100], "address": address, "link": answer[name]} for name, address in found]


def _ipv4() -> List[Tuple[str, str]]:
    # netdevice(7), SIOCGIFADDR: the first address of each interface
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode("utf-8")[:15]))
            except OSError:
                continue  # it has none
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith(("127.", "169.254.")):
                found.append((name, address))
    return found


def _ipv6() -> List[Tuple[str, str]]:
    # /proc/net/if_inet6: address, index, length of the prefix, scope (00 is global), flags, name
    rows = [line.split() for line in machine.text("/proc/net/if_inet6").splitlines()]
    return [
        (row[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])))
        for row in rows
        if len(row) == 6 and row[3] == "00"
    ]


def proxies() -> Dict[str, str]:
    """The proxies of a login on this host, as trainers would inherit them."""
    found = {name: value for name, value in environment.base().items() if name.lower() in environment.PROXIES}
    return {name: _USER.sub("//", value)[:_LONGEST] for name, value in sorted(found.items())[:20]}
