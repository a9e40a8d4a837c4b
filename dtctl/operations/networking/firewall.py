"""Rules that let the cluster's hosts reach the ports of its tasks, and nobody else. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["nftables", "iptables", "ufw"]

_MOST_PORTS = 15
"""Of iptables' multiport."""


@dataclass(frozen=True)
class Rules:
    """The same for all these hosts."""

    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    lines: tuple[str, ...]


def firewall(
    cluster: str, ports: Mapping[str, Sequence[int]], addresses: Mapping[str, Sequence[str]], kind: Kind
) -> tuple[Rules, ...]:
    """`ports`: of each host those that are to be closed to strangers; `addresses`: of every host of the cluster.

    What they say is said in IPv4 and IPv6; addresses that are neither are left out.
    """
    friends = sorted({address for each in addresses.values() for address in each if version(address)}, key=_order)
    alike: dict[tuple[int, ...], list[str]] = {}
    for host, own in ports.items():
        if own:
            alike.setdefault(tuple(sorted(set(own))), []).append(host)
    make = {"nftables": _nftables, "iptables": _iptables, "ufw": _ufw}[kind]
    return tuple(Rules(tuple(hosts), own, tuple(make(cluster, own, friends))) for own, hosts in alike.items())


def version(address: str) -> int:
    """4 or 6; 0: it is a name."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def _order(address: str) -> tuple[int, int]:
    parsed = ipaddress.ip_address(address)
    return parsed.version, int(parsed)


def _nftables(cluster: str, ports: Sequence[int], friends: Sequence[str]) -> Iterator[str]:
    """A table of its own, which can be loaded again and removed as a whole."""
    table = "dtctl_" + "".join(letter if letter.isalnum() else "_" for letter in cluster)
    said = f"tcp dport {{ {', '.join(map(str, ports))} }}"
    yield f"table inet {table}"
    yield f"delete table inet {table}"
    yield f"table inet {table} {{"
    yield "  chain input {"
    yield "    type filter hook input priority -10; policy accept;"
    yield f'    {said} iifname "lo" accept'
    for number, family in ((4, "ip"), (6, "ip6")):
        own = [address for address in friends if version(address) == number]
        if own:
            yield f"    {said} {family} saddr {{ {', '.join(own)} }} accept"
    yield f"    {said} drop"
    yield "  }"
    yield "}"


def _iptables(cluster: str, ports: Sequence[int], friends: Sequence[str]) -> Iterator[str]:
    """A chain of its own for each family, made anew whenever these are run."""
    chain = "DTCTL-" + "".join(letter if letter.isalnum() else "-" for letter in cluster)[:20]
    for number, program in ((4, "iptables"), (6, "ip6tables")):
        yield f"{program} -N {chain} 2>/dev/null || {program} -F {chain}"
        yield f"{program} -A {chain} -i lo -j ACCEPT"
        for address in friends:
            if version(address) == number:
                yield f"{program} -A {chain} -s {address} -j ACCEPT"
        yield f"{program} -A {chain} -j DROP"
        for start in range(0, len(ports), _MOST_PORTS):
            some = ",".join(map(str, ports[start : start + _MOST_PORTS]))
            rule = f"INPUT -p tcp -m multiport --dports {some} -j {chain}"
            yield f"{program} -C {rule} 2>/dev/null || {program} -I {rule}"


def _ufw(cluster: str, ports: Sequence[int], friends: Sequence[str]) -> Iterator[str]:
    """The first rule that fits holds, so the permissions stand before the refusal."""
    for start in range(0, len(ports), _MOST_PORTS):
        some = ",".join(map(str, ports[start : start + _MOST_PORTS]))
        for address in friends:
            yield f"ufw allow proto tcp from {address} to any port {some} comment 'dtctl {cluster}'"
        yield f"ufw deny proto tcp from any to any port {some} comment 'dtctl {cluster}'"
