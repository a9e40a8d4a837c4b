"""The network between the hosts of a cluster, before a run: who reaches whom, who else does, and why not."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from dtctl.agent.rooms.network.records import Bound, NetworkFacts, Resolved
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.operations.up.conflicts import COORDINATOR
from dtctl.plan import RunPlan


def tells_its_address(cluster: Cluster) -> bool:
    """Whether the tasks send each other what their own names resolve to, as gloo's do. They do not speak gRPC."""
    dialects = {job.launch.dialect for job in cluster.jobs.values()}
    return cluster.strategy in ("ddp", "kvstore") or not dialects.isdisjoint(("pytorch", "mxnet"))


@dataclass(frozen=True)
class Endpoint:
    """Where a task, or the coordinator, is going to listen."""

    whose: str
    host: str
    address: str
    """HOST:PORT, as the other tasks receive it."""
    serves: bool = True
    """Whether other tasks connect to it; none connects to an evaluator."""

    @property
    def name(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        port = self.address.rpartition(":")[2]
        return int(port) if port.isdecimal() else 0


@dataclass(frozen=True)
class Attempt:
    """One host's connection, or attempt to connect, to an endpoint of another host."""

    source: str
    endpoint: Endpoint
    at: str = ""
    """The addresses that the endpoint's name resolves to on the source."""
    hindrance: str = ""
    """The reason of agent.rooms.network.records.Reached; empty: the endpoint was reached."""
    by: str = ""
    text: str = ""

    @property
    def target(self) -> str:
        return self.endpoint.host

    @property
    def pair(self) -> tuple[str, str]:
        return self.source, self.target


@dataclass(frozen=True)
class View:
    """The network as the hosts report it; mappings are by host, for the hosts that have answered."""

    bound: Mapping[str, Sequence[Bound]] = field(default_factory=dict)
    of_interfaces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """IP addresses, as in `resolved`."""
    resolved: Mapping[str, Sequence[Resolved]] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()

    def addresses(self, host: str) -> frozenset[str]:
        """The addresses at which others can reach the host, by its own report."""
        own = set(self.of_interfaces.get(host, ()))
        for named in self.resolved.get(host, ()):
            own |= {address for address in named["addresses"] if named["own"] and not is_loopback(address)}
        return frozenset(own)


def addresses_of(facts: NetworkFacts) -> list[str]:
    """The addresses of a host's interfaces."""
    return [one["address"] for one in facts["interfaces"]]


def endpoints_of(plan: RunPlan) -> list[Endpoint]:
    """The endpoints of all tasks and, if there is more than one host, of the coordinator and those that may be
    elected.
    """
    endpoints = [Endpoint(str(task.id), task.host, task.address, task.role != "evaluator") for task in plan.tasks]
    if len(plan.members) > 1:
        listeners = plan.voters or (plan.coordinator,)
        endpoints += [Endpoint(COORDINATOR, listener["host"], listener["address"]) for listener in listeners]
    return endpoints


def open_endpoints(plan: RunPlan, bound: Mapping[str, Iterable[Bound]]) -> dict[Endpoint, bool]:
    """The endpoints where a program listens now, with the ports that hosts have chosen; True: a trainer of the live run
    does.

    What a host reports of ports that the plan knows, or of tasks that it does not have, counts for nothing.
    """
    known = {(endpoint.host, endpoint.whose): endpoint for endpoint in endpoints_of(plan)}
    found = {}
    for host, ports in bound.items():
        for port in ports:
            endpoint = known.get((host, port["whose"]))
            if endpoint is None or port["state"] not in ("bound", "live") or endpoint.port not in (0, port["port"]):
                continue
            address = f"{endpoint.address.rpartition(':')[0]}:{port['port']}"
            found[replace(endpoint, address=address)] = port["state"] == "live"
    return found


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """Whether the internet routes the address."""
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


@dataclass(frozen=True)
class Cause:
    """One cause, which may explain many failed connections.

    `hosts`: where it is to be fixed. `others`: whom it concerns there.
    """

    kind: str
    hosts: tuple[str, ...]
    others: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
