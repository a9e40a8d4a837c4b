"""The rules of a firewall for a plan, with the addresses behind its names as this machine knows them."""

from __future__ import annotations

import socket
from collections.abc import Callable

from dtctl.errors import PreflightError
from dtctl.operations.networking.firewall import Kind, Rules, firewall
from dtctl.operations.networking.view import is_loopback, places_of
from dtctl.plan.values import RunPlan

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
    addresses = {host: _known(host, name, look, str(cluster.file)) for host, name in names.items()}
    return firewall(cluster.name, ports, addresses, kind)


def _known(host: str, name: str, look: Look, file: str) -> tuple[str, ...]:
    try:
        found = look(name)
    except (OSError, UnicodeError) as error:
        raise PreflightError(
            f"the address of {host} is not known here: {name} is no name that this machine can look up",
            detail=str(getattr(error, "strerror", None) or error),
            hint=f"hosts.{host}.address: IP in {file}",
        ) from None
    if all(is_loopback(address) for address in found):
        raise PreflightError(
            f"{host} is known as {name}, a loopback address: no other machine reaches its tasks, so there is nothing "
            "to close",
        )
    return found
