"""Matrices of hosts, as they look when something is wrong with the network between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.rooms.network.records import Bound, NetworkFacts, NetworkQuestion, Resolved
from dtctl.rooms.check.network import Attempt, Endpoint, View

Fails = Callable[[str, str, int], str]
"""Of source, target and port: the problem, empty where there is none."""

WORDS = {"timeout": "Connection timed out", "refused": "Connection refused", "no_route": "No route to host"}


def names(count: int) -> list[str]:
    return [f"gpu-{number}" for number in range(1, count + 1)]


def address(host: str) -> str:
    return f"10.0.0.{host.rpartition('-')[2]}"


def endpoint(host: str, port: int = 2222, at: str = "") -> Endpoint:
    return Endpoint(
        f"worker:{int(host.rpartition('-')[2]) - 1}" if port == 2222 else f"ps:{port}", host, f"{at or host}:{port}"
    )


def attempts(hosts: Iterable[str], fails: Fails, ports: Iterable[int] = (2222,)) -> tuple[Attempt, ...]:
    """Everybody tries everybody; each name stands for the right address everywhere."""
    hosts, ports = list(hosts), list(ports)
    return tuple(
        Attempt(source, endpoint(target, port), address(target), problem, text=WORDS.get(problem, ""))
        for source in hosts
        for target in hosts
        for port in ports
        if source != target
        for problem in [fails(source, target, port)]
    )


def view(tried: tuple[Attempt, ...], **others: object) -> View:
    """Each host has its one address, and knows its own name by it."""
    hosts = dict.fromkeys(host for one in tried for host in one.pair)
    return View(
        {host: [made(Bound, whose=endpoint(host).whose, port=2222, state="bound")] for host in hosts},
        {host: [address(host)] for host in hosts},
        {host: [made(Resolved, name=host, addresses=[address(host)], own=True)] for host in hosts},
        tried,
        **others,
    )


def listening(questions: Mapping[str, NetworkQuestion], **others: Any) -> dict[str, NetworkFacts]:
    """Every port is free; those that a host is to choose are from 9000 on. `others`: fields of all hosts."""
    ports = {}
    for number, (host, question) in enumerate(questions.items()):
        bound = [
            {"whose": slot["whose"], "port": slot["port"] or 9000 + at, "state": "bound"}
            for at, slot in enumerate(question["listen"])
        ]
        address = f"10.0.0.{number + 1}"
        resolved = [{"name": name, "addresses": [address], "own": True} for name in question["names"]]
        fields = {"bound": bound, "interfaces": [{"name": "eth0", "address": address}], "resolved": resolved, **others}
        ports[host] = checked(NetworkFacts, fields)
    return ports


def reaching(questions: Mapping[str, NetworkQuestion], lost: Any = lambda source, peer: "") -> dict[str, NetworkFacts]:
    """`lost`: the problem of a source and a peer."""
    return {
        host: checked(
            NetworkFacts,
            {
                "reached": [
                    {"whose": peer["whose"], "host": peer["host"], "place": "10.0.0.1", "problem": lost(host, peer)}
                    for peer in question["reach"]
                ]
            },
        )
        for host, question in questions.items()
    }
