"""Rules that let only the cluster's hosts reach the ports of its tasks. Pure."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import grouped
from dtctl.plan import RunPlan
from dtctl.rooms.check.network import endpoints_of, is_loopback

Kind = Literal["nftables", "iptables", "ufw"]

_MOST_PORTS = 15
"""The limit of iptables' multiport."""


@dataclass(frozen=True)
class Rules:
    """Firewall rules, which are the same for all these hosts."""

    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    lines: tuple[str, ...]
    undo: tuple[str, ...]
    """The commands that remove the rules."""


def firewall(
    cluster: str, ports: Mapping[str, Sequence[int]], addresses: Mapping[str, Sequence[str]], kind: Kind
) -> tuple[Rules, ...]:
    """`ports`: the ports of each host to close to strangers; `addresses`: those of every host of the cluster.

    They have rules for IPv4 and IPv6; addresses that are neither are left out.
    """
    friends = sorted({address for each in addresses.values() for address in each if version(address)}, key=_order)
    same = grouped((tuple(sorted(set(own))), host) for host, own in ports.items() if own)
    make = {"nftables": _nftables, "iptables": _iptables, "ufw": _ufw}[kind]
    return tuple(Rules(tuple(hosts), own, *map(tuple, make(cluster, own, friends))) for own, hosts in same.items())


def version(address: str) -> int:
    """4 or 6; 0: the text is a name."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def _order(address: str) -> tuple[int, int]:
    parsed = ipaddress.ip_address(address)
    return parsed.version, int(parsed)


def _nftables(cluster: str, ports: Sequence[int], friends: Sequence[str]) -> tuple[list[str], list[str]]:
    """Rules as one nftables table, which can be reloaded and removed as a whole."""
    table = "dtctl_" + "".join(letter if letter.isalnum() else "_" for letter in cluster)
    text = f"tcp dport {{ {', '.join(map(str, ports))} }}"
    families = {4: "ip", 6: "ip6"}
    own = {family: [one for one in friends if version(one) == number] for number, family in families.items()}
    lines = [
        f"table inet {table}",
        f"delete table inet {table}",
        f"table inet {table} {{",
        "  chain input {",
        "    type filter hook input priority -10; policy accept;",
        f'    {text} iifname "lo" accept',
        *(f"    {text} {family} saddr {{ {', '.join(some)} }} accept" for family, some in own.items() if some),
        f"    {text} drop",
        "  }",
        "}",
    ]
    return lines, [f"nft delete table inet {table}"]


def _iptables(cluster: str, ports: Sequence[int], friends: Sequence[str]) -> tuple[list[str], list[str]]:
    """Rules as one iptables chain for each family, which is created again at each run."""
    chain = "DTCTL-" + "".join(letter if letter.isalnum() else "-" for letter in cluster)[:20]
    jump = f"INPUT -p tcp -j {chain}"
    lines, undo = [], []
    for number, program in ((4, "iptables -w"), (6, "ip6tables -w")):
        lines.append(f"{program} -N {chain} 2>/dev/null || {program} -F {chain}")
        for some in _groups(ports):
            add = f"{program} -A {chain} -p tcp -m multiport --dports {some}"
            lines.append(f"{add} -i lo -j ACCEPT")
            lines += [f"{add} -s {address} -j ACCEPT" for address in friends if version(address) == number]
            lines.append(f"{add} -j DROP")
        lines.append(f"{program} -C {jump} 2>/dev/null || {program} -I {jump}")
        undo += [f"{program} -D {jump}", f"{program} -F {chain}", f"{program} -X {chain}"]
    return lines, undo


def _ufw(cluster: str, ports: Sequence[int], friends: Sequence[str]) -> tuple[list[str], list[str]]:
    """Rules for ufw, which applies the first that matches: each command inserts at the top, so the refusal comes
    first.
    """
    rules = []
    for some in _groups(ports):
        rules.append(f"deny proto tcp from any to any port {some}")
        rules += [f"allow proto tcp from {address} to any port {some}" for address in friends]
    comment = f"comment 'dtctl {cluster}'"
    return [f"ufw prepend {rule} {comment}" for rule in rules], [f"ufw delete {rule}" for rule in rules]


def _groups(ports: Sequence[int]) -> list[str]:
    starts = range(0, len(ports), _MOST_PORTS)
    return [",".join(map(str, ports[start : start + _MOST_PORTS])) for start in starts]


Resolve = Callable[[str], tuple[str, ...]]
"""The addresses of a name. Raises OSError."""


def addresses_of(name: str) -> tuple[str, ...]:
    found = socket.getaddrinfo(name, None)
    return tuple(dict.fromkeys(str(endpoint[0]) for _, _, _, _, endpoint in found))


def rules_of(plan: RunPlan, kind: Kind, resolve: Resolve = addresses_of) -> tuple[Rules, ...]:
    """Raises PreflightError where ports or addresses are not known."""
    cluster = plan.cluster
    if cluster.hosts_choose_ports:
        raise PreflightError(
            "ports: auto lets the hosts choose other ports at every start, so no rule can name them",
            hint=f"write ports: 2222, for example, in {cluster.file}; or open all ports between the hosts",
        )
    endpoints = endpoints_of(plan)
    ports = {host: [endpoint.port for endpoint in endpoints if endpoint.host == host] for host in plan.members}
    for spare, slots in plan.slots.items():
        ports[spare] += [task.port for tasks in slots.values() for task in tasks]
    names = {host: plan.addresses[host] for host in plan.members}
    return firewall(cluster.name, ports, _known(names, resolve, str(cluster.file)), kind)


def _known(names: Mapping[str, str], resolve: Resolve, file: str) -> dict[str, tuple[str, ...]]:
    """The addresses of each host. Raises PreflightError with all unknown ones at once."""
    found: dict[str, tuple[str, ...]] = {}
    unknown: dict[str, str] = {}
    for host, name in names.items():
        try:
            found[host] = resolve(name)
        except (OSError, UnicodeError) as error:
            unknown[host] = str(getattr(error, "strerror", None) or error)
    if unknown:
        first, text = next(iter(unknown.items()))
        asked = " ".join(names[host] for host in unknown)
        raise PreflightError(
            f"this machine cannot look up {', '.join(names[host] for host in unknown)}, so no rule can name "
            f"{'that host' if len(unknown) == 1 else 'those hosts'}",
            detail=text,
            hint=f"dtctl exec @{first} -- getent hosts {asked}    shows the addresses, if the hosts know them\n"
            f"hosts.{first}.address: IP in {file}    in place of the name",
        )
    for host, addresses in found.items():
        if all(is_loopback(address) for address in addresses):
            raise PreflightError(
                f"{host} is known as {names[host]}, a loopback address: no other machine reaches its tasks, so there "
                "is nothing to close",
            )
    return found
