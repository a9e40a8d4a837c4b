"""What a network interface says of its own link."""

from __future__ import annotations

import fcntl
import socket
import struct
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.network.peers import Link

_SIOCGIFMTU = 0x8921
_RTM_GETLINK = 18
_NLM_F_REQUEST = 1
_IFLA_QDISC = 6
_HEADERS = struct.Struct("=IHHIIBxHiII")
"""nlmsghdr and ifinfomsg of rtnetlink(7)."""


def link(name: str) -> Link:
    """Of interface `name`, in this process's network."""
    return {
        "mbits": _mbits(name),
        "half": _said(name, "duplex") == "half",
        "mtu": _mtu(name),
        "queue": _queue(name),
    }


def _mbits(name: str) -> Optional[int]:
    said = _said(name, "speed")  # -1 where the driver does not know
    return int(said) if said.isdigit() and int(said) else None


def _said(name: str, what: str) -> str:
    """Of /sys, unless that is another network's, as in a sandbox that was given the machine's."""
    with suppress(OSError, ValueError):
        if int(_line(name, "ifindex")) == socket.if_nametoindex(name):
            return _line(name, what)
    return ""


def _line(name: str, what: str) -> str:
    with open("/sys/class/net/%s/%s" % (name, what), encoding="ascii") as file:
        return file.readline().strip()


def _mtu(name: str) -> Optional[int]:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked, _SIOCGIFMTU, struct.pack("16si240x", name.encode("utf-8")[:15], 0))
        return int(struct.unpack_from("=i", answer, 16)[0])
    return None


def _queue(name: str) -> str:
    """The kind of its queue: `tbf` and `netem` hold packets back."""
    with suppress(OSError, struct.error, UnicodeError):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
            kernel.settimeout(1.0)
            index = socket.if_nametoindex(name)
            kernel.send(_HEADERS.pack(_HEADERS.size, _RTM_GETLINK, _NLM_F_REQUEST, 1, 0, 0, 0, index, 0, 0))
            told = kernel.recv(65_536)
        at = _HEADERS.size
        while at + 4 <= len(told):
            size, kind = struct.unpack_from("=HH", told, at)
            if kind == _IFLA_QDISC:
                return told[at + 4 : at + size].rstrip(b"\0").decode("ascii")[:40]
            at += max(4, (size + 3) & ~3)
    return ""
