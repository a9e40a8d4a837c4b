"""Names and addresses: what others' names stand for here, which addresses are this host's, and proxies."""

from __future__ import annotations

import fcntl
import re
import socket
import struct
import threading
import time

from ..records.network.peers import MOST_ADDRESSES
from ..run import environment
from . import links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

    from ..records.network.peers import Interface, Resolved

    Place = Tuple[int, str]
    """Family and address."""

_SIOCGIFADDR = 0x8915
_AT_ONCE = 32
_USER = re.compile(r"//[^/@]*@")
_LONGEST = 500


def resolved(names: Sequence[str], limit_s: float) -> Dict[str, Tuple[List[Place], str]]:
    """What each name stands for, or why it stands for nothing. A resolver may hang: it is asked in threads."""
    found: Dict[str, Tuple[List[Place], str]] = {}
    todo = list(reversed(names))

    def work() -> None:
        while todo:
            try:
                name = todo.pop()
            except IndexError:
                return
            found[name] = _places(name)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_AT_ONCE, len(names)))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = "no answer within %.3g s" % limit_s
    return {name: found.get(name, ([], late)) for name in names}


def _places(name: str) -> Tuple[List[Place], str]:
    try:
        told = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return [], str(getattr(error, "strerror", None) or error)
    return list(dict.fromkeys((int(family), str(place[0])) for family, _, _, _, place in told)), ""


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


def is_own(place: Place) -> bool:
    """Only an address of the host can be bound to."""
    try:
        with socket.socket(place[0], socket.SOCK_STREAM) as probe:
            probe.bind((place[1], 0))
    except OSError:
        return False
    return True


def interfaces() -> List[Interface]:
    """Addresses by which others may reach this host: neither loopback nor link-local ones."""
    found = [*_ipv4(), *_ipv6()][:MOST_ADDRESSES]
    told = {name: links.link(name) for name in {name for name, _ in found}}
    return [{"name": name[:100], "address": address, "link": told[name]} for name, address in found]


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
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except (OSError, ValueError):
        return []
    return [
        (row[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])))
        for row in rows
        if len(row) == 6 and row[3] == "00"
    ]


def proxies() -> Dict[str, str]:
    """Of a login on this host, as trainers would inherit them."""
    found = {name: value for name, value in environment.base().items() if name.lower() in environment.PROXIES}
    return {name: _USER.sub("//", value)[:_LONGEST] for name, value in sorted(found.items())[:20]}
