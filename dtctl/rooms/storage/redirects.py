"""Limits where a storage server may redirect dtctl: to nodes of its own site, with requests of its own protocol.

A redirect makes this machine send a request to a place that the server chooses, from within this machine's network.
Followed are those with an operation of WebHDFS, to the server's own host or to one of its site: a name of the same
domain, or an address of the same network. No redirect leads from a public server into a private network, to this
machine, or to the addresses at which clouds give out credentials.
"""

from __future__ import annotations

import ipaddress
import os
import re
from fnmatch import fnmatchcase
from urllib.parse import parse_qs, unquote, urlsplit

from dtctl.rooms.storage.errors import StorageError

VARIABLE = "DTCTL_WEBHDFS_HOSTS"
"""Hosts to which any server may redirect WebHDFS requests: names, addresses and patterns, separated by commas."""

_PATH = "/webhdfs/v1/"
_METADATA = frozenset({"169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200"})
"""The metadata addresses of AWS, Google, Azure and others; of AWS tasks; of AWS by IPv6; of Alibaba."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class RedirectRefused(StorageError):
    """The server redirects dtctl to a place that no server may name."""


class Server:
    """The server that a cluster file names by this URL. Methods raise RedirectRefused."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = _normal(parts.hostname)
        self._scheme = parts.scheme
        self._port = _port(url)
        self._address: Address | None = None
        """The address that the host's name resolved to at the first connection."""

    def is_named_by(self, url: str) -> bool:
        """Whether the URL is one of the server itself, to which the user's credentials may be sent."""
        parts = urlsplit(url)
        own = self._scheme, self._host, self._port
        return (parts.scheme, _normal(parts.hostname), _port(url)) == own

    def check_url(self, url: str) -> None:
        """Checks the URL itself; the address of its host is checked on connection."""
        if self.is_named_by(url):
            return
        parts = urlsplit(url)
        host = _normal(parts.hostname)
        if self._scheme == "https" and parts.scheme != "https":
            raise self._refused(url, "without encryption")
        above = {".", ".."} & set(unquote(parts.path).split("/"))
        if above or not parts.path.startswith(_PATH) or "op" not in {name.lower() for name in parse_qs(parts.query)}:
            raise self._refused(url, f"which is no operation of WebHDFS ({_PATH}...?op=...)")
        if host == self._host or _is_listed(host):
            return
        address = _address(host)
        if address is not None:
            self._check(host, address)
        elif _address(self._host) is None and _domain(host) != _domain(self._host):
            raise self._refused(url, "which is a host of another domain", may_be_listed=True)

    def check_address(self, host: str, found: str) -> None:
        """`found`: the address of a connection to `host`."""
        host, address = _normal(host), _address(_normal(found))
        if address is None:
            return
        if host == self._host:
            self._address = address
        elif not _is_listed(host):
            self._check(host, address)

    def _check(self, host: str, address: Address) -> None:
        own = _address(self._host) or self._address
        if str(address) in _METADATA:
            raise self._refused(host, "where a cloud gives out credentials")
        if own is None:  # the user's proxy connects
            return
        if _reach(address) not in (_reach(own), "public"):
            raise self._refused(host, f"{address}, a {_reach(address)} address, from a {_reach(own)} one")
        is_by_address = _address(host) is not None or _address(self._host) is not None
        if is_by_address and _network(address) != _network(own):
            raise self._refused(host, f"{address}, which is not in the network of {own}", may_be_listed=True)

    def _refused(self, to: str, why: str, *, may_be_listed: bool = False) -> RedirectRefused:
        target = _normal(urlsplit(to).hostname) if "://" in to else to
        listing = f"if that is one of its data nodes: export {VARIABLE}={target}"
        is_plain = re.fullmatch(r"[a-z0-9._:-]{1,255}", target) is not None
        return RedirectRefused(
            f"{self._host} sends dtctl on to {target[:255]}, {why}", hint=listing if may_be_listed and is_plain else ""
        )


def _is_listed(host: str) -> bool:
    listed = os.environ.get(VARIABLE, "").lower().split(",")
    return any(fnmatchcase(host, pattern.strip()) for pattern in listed)


def _normal(host: str | None) -> str:
    return (host or "").lower().rstrip(".").strip("[]")


def _port(url: str) -> int | None:
    try:
        parts = urlsplit(url)
        return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None


def _address(host: str) -> Address | None:
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        # resolvers accept other forms of addresses, such as 0x7f000001 or 127.1, which are no domain names
        return ipaddress.ip_address("0.0.0.0") if re.fullmatch(r"(0x[0-9a-f]*|[0-9.])+", host) else None
    mapped = getattr(found, "ipv4_mapped", None)
    return mapped if mapped is not None else found


def _domain(host: str) -> str:
    """The part after the first label; a name of one label belongs to the local domain."""
    return host.partition(".")[2]


def _reach(address: Address) -> str:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local or address.is_multicast or address.is_unspecified or address.is_reserved:
        return "link-local"
    return "public" if address.is_global else "private"


def _network(address: Address) -> object:
    bits = 8 if address.is_loopback else 16 if address.version == 4 else 48
    return ipaddress.ip_network((address, min(bits, address.max_prefixlen)), strict=False)
