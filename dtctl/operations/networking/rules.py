"""The rules of a firewall for a plan, with the addresses behind its names as this machine knows them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from dtctl.errors import PreflightError
from dtctl.operations.networking.firewall import Kind, Rules, firewall
from dtctl.operations.networking.view import is_loopback, places_of
from dtctl.plan.roster import RunPlan

Look = Callable[[str], tuple[str, ...]]
"""The addresses of a name. Raises OSError."""


def addresses_of(name: str) -> tuple[str, ...]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(place[0]) for _, _, _, _, place in found))


def rules_of(plan: RunPlan, kind: Kind, look: Look = addresses_of) -> tuple[Rules, ...]:
    """Raises PreflightError where ports or addresses are not known."""
    cluster = plan.cluster
    if cluster.hosts_choose_ports:
        raise PreflightError(
            "ports: auto lets the hosts choose other ports at every start, so no rule can name them",
            hint=f"write ports: 2222, for example, in {cluster.file}; or open all ports between the hosts",
        )
    places = places_of(plan)
    ports = {host: [place.port for place in places if place.host == host] for host in plan.hosts}
    names = {host: next(place.name for place in places if place.host == host) for host in plan.hosts}
    return firewall(cluster.name, ports, _known(names, look, str(cluster.file)), kind)


def _known(names: Mapping[str, str], look: Look, file: str) -> dict[str, tuple[str, ...]]:
    """The addresses of each host; all that are not known are told at once."""
    found: dict[str, tuple[str, ...]] = {}
    unknown: dict[str, str] = {}
    for host, name in names.items():
        try:
            found[host] = look(name)
        except (OSError, UnicodeError) as error:
            unknown[host] = str(getattr(error, "strerror", None) or error)
    if unknown:
        first, said = next(iter(unknown.items()))
        asked = " ".join(names[host] for host in unknown)
        raise PreflightError(
            f"this machine cannot look up {', '.join(names[host] for host in unknown)}, so no rule can name "
            f"{'that host' if len(unknown) == 1 else 'those hosts'}",
            detail=said,
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
