"""Finds who else can reach the ports of tasks, and whether gRPC would send their traffic through a proxy. Pure."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from dtctl.agent.rooms.network.records import NetworkFacts
from dtctl.model import TaskId, grouped
from dtctl.operations.findings import Finding
from dtctl.operations.up.conflicts import COORDINATOR
from dtctl.rooms.check import Answers, CheckContext, Dialled, Door, Statement, found
from dtctl.rooms.check.network import (
    Endpoint,
    addresses_of,
    endpoints_of,
    is_loopback,
    is_public,
    open_endpoints,
    tells_its_address,
)

MOST_DOORS = 256


def doors(context: CheckContext, answers: Answers[NetworkFacts]) -> tuple[Door, ...]:
    """The doors that this machine tries while the hosts listen: each host by its address and by its SSH address.

    If there are many hosts, one port of each is tried. How a host is reached is never taken from a host. The
    coordinator's port is not among them: it answers no client without the run's credentials.
    """
    if not context.asks_for("exposed") or len(answers.rounds) != 1:
        return ()
    found = [
        Door(endpoint.host, endpoint.whose, name, endpoint.port, live)
        for endpoint, live in _task_endpoints(context, answers).items()
        if not context.host(endpoint.host).is_local
        for name in dict.fromkeys([endpoint.name, context.reached_at.get(endpoint.host, endpoint.name)])
        if not is_loopback(name) and name != "localhost"
    ]
    if len(found) > MOST_DOORS:
        found = list({(door.host, door.name): door for door in reversed(found)}.values())[::-1][:MOST_DOORS]
    return tuple(found)


def _task_endpoints(context: CheckContext, answers: Answers[NetworkFacts]) -> dict[Endpoint, bool]:
    found = open_endpoints(context.plan, {host: facts["bound"] for host, facts in answers.first.items()})
    return {endpoint: live for endpoint, live in found.items() if endpoint.whose != COORDINATOR}


def exposure_findings(context: CheckContext, answers: Answers[NetworkFacts]) -> Iterator[Finding]:
    opened = _opened(answers)
    if opened:
        hosts = tuple(dict.fromkeys(one.door.host for one in opened))
        public = next((one.address for one in opened if is_public(one.address)), None)
        ports = tuple(sorted({one.door.port for one in opened}))
        tasks = [task.id for task in context.plan.tasks if str(task.id) in {one.door.whose for one in opened}]
        yield found("exposed", hosts, tasks, ports=ports, seen_from=opened[0].seen_from, public=public)
    yield from _public(context, answers, {one.door.host for one in opened})


def _opened(answers: Answers[NetworkFacts]) -> list[Dialled]:
    """The doors that are open to this machine; none if it is one of the hosts, because then nothing follows for
    others.
    """
    own = {address for facts in answers.first.values() for address in addresses_of(facts)}
    return [one for one in answers.dialled if one.seen_from not in own]


def _public(context: CheckContext, answers: Answers[NetworkFacts], known: set[str]) -> Iterator[Finding]:
    """Public addresses that were not tried from here: those that were tried and did not open are closed to this
    machine.
    """
    tried = {endpoint.name for endpoint in endpoints_of(context.plan)} | set(context.reached_at.values())
    ports = grouped((endpoint.host, endpoint.port) for endpoint in _task_endpoints(context, answers))
    for host, facts in answers.first.items():
        untried = [one for one in addresses_of(facts) if is_public(one) and one not in tried]
        if untried and host in ports and host not in known:
            yield found("public_address", (host,), address=untried[0], ports=tuple(sorted(set(ports[host]))))


def exposure_lines(context: CheckContext, answers: Answers[NetworkFacts]) -> Iterator[Statement]:
    if answers.tried_doors:
        opened = _opened(answers)
        inside = bool(answers.dialled) and not opened
        kind = "doors_inside" if inside else "doors_open" if opened else "doors_closed"
        open_doors = len({(one.door.host, one.door.port) for one in opened})
        yield Statement(kind, {"open": open_doors, "doors": answers.tried_doors})


def is_exposed(finding: Finding) -> bool:
    return finding.signature.name in ("exposed", "public_address")


TAKEN = ("grpc_proxy", "https_proxy", "http_proxy")
"""The variables of a proxy; the first that is set is used (grpc/doc/environment_variables.md). gRPC ignores those in
capitals.
"""
EXCEPT = ("no_grpc_proxy", "no_proxy")


def proxy_findings(context: CheckContext, answers: Answers[NetworkFacts]) -> Iterator[Finding]:
    """Findings about proxies for TensorFlow's servers; the protocols of other frameworks use no proxy."""
    caught: dict[tuple[str, str], list[tuple[str, TaskId, tuple[str, ...]]]] = {}
    endpoints = endpoints_of(context.plan)
    for host, facts in answers.first.items():
        names = [endpoint.name for endpoint in endpoints if endpoint.serves and endpoint.host != host]
        for task in context.plan.on_host(host) if not tells_its_address(context.plan.cluster) else ():
            env = {**(facts["proxies"] if task.keep_proxy else {}), **task.env}
            if (sent := through(env, names)) is not None:
                caught.setdefault((sent[0], env[sent[0]]), []).append((host, task.id, sent[1]))
    exempt = ",".join(dict.fromkeys(endpoint.name for endpoint in endpoints))
    for (variable, value), group in caught.items():
        reached = tuple(sorted({name for _, _, each in group for name in each}))
        fields = {"variable": variable, "value": value, "names": reached, "exempt": exempt}
        hosts = dict.fromkeys(host for host, _, _ in group)
        yield found("proxy", hosts, (task for _, task, _ in group), **fields)
    if not any(task.keep_proxy for task in context.plan.tasks):
        yield from _left_out(answers)


def _left_out(answers: Answers[NetworkFacts]) -> Iterator[Finding]:
    """The first proxy variable of each host's logins."""
    firsts = (
        (next((one for one in facts["proxies"].items() if not one[0].lower().startswith("no_") and one[1]), None), host)
        for host, facts in answers.first.items()
    )
    same = grouped((first, host) for first, host in firsts if first is not None)
    for (variable, value), hosts in same.items():
        yield found("proxy_left_out", hosts, variable=variable, value=value)


def through(env: Mapping[str, str], names: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """The variable, and the hosts of `names` (host -> addresses) that gRPC would reach by its proxy; None: it would
    reach none so.
    """
    variable = next((name for name in TAKEN if env.get(name)), None)
    if variable is None:
        return None
    exempt = next((env[name] for name in EXCEPT if env.get(name)), "")
    entries = [entry.strip() for entry in exempt.split(",") if entry.strip()]
    caught = tuple(dict.fromkeys(name for name in names if not any(_covers(entry, name) for entry in entries)))
    return (variable, caught) if caught else None


def _covers(entry: str, name: str) -> bool:
    """Whether the entry matches the end of the name, or is a network that contains it (http_proxy_mapper.cc)."""
    if name.lower().endswith(entry.lower()):
        return True
    try:
        return ipaddress.ip_address(name) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


LIMIT_S = 1.5
"""A packet that is lost is sent again after 1 s."""
_AT_ONCE = 32
_LONGEST = 300


def dial(doors: Iterable[Door], nonce: str, limit_s: float = LIMIT_S) -> tuple[Dialled, ...]:
    """The doors behind which the right host has answered: from here, a private address may belong to another
    machine.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [one for one in pool.map(lambda door: _dialled(door, nonce, limit_s), doors) if one is not None]
    return tuple(sorted(found, key=lambda one: (one.door.host, one.door.port, one.door.name)))


def _dialled(door: Door, nonce: str, limit_s: float) -> Dialled | None:
    try:
        with socket.create_connection((door.name, door.port), limit_s) as connection:
            if door.live or _greets(connection, door.host, nonce):
                return Dialled(door, connection.getpeername()[0], connection.getsockname()[0])
    except (OSError, UnicodeError):
        pass  # the port is closed, as it should be
    return None


def _greets(connection: socket.socket, host: str, nonce: str) -> bool:
    """Whether the host answers the nonce, as dtctl/agent/rooms/network/listening.py does."""
    connection.sendall(f"{nonce} ask\n".encode())
    with connection.makefile("rb") as lines:
        return lines.readline(_LONGEST).removesuffix(b"\n") == f"dtctl check {host}".encode()
