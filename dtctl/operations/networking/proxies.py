"""Whether gRPC would send the traffic between tasks through a proxy. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping

from dtctl.agent.records.network import NetworkFacts
from dtctl.model import TaskId
from dtctl.operations.checks.topic import Heard, Scene, found
from dtctl.operations.diagnosis.signature import Finding
from dtctl.operations.networking.view import TELLS_ITS_ADDRESS, places_of

TAKEN = ("grpc_proxy", "https_proxy", "http_proxy")
"""The first that is set holds (grpc/doc/environment_variables.md). gRPC does not know capitals."""
EXCEPT = ("no_grpc_proxy", "no_proxy")


def judge(scene: Scene, heard: Heard[NetworkFacts]) -> Iterator[Finding]:
    """Of TensorFlow's servers; what the others speak goes through no proxy."""
    caught: dict[tuple[str, str], list[tuple[str, TaskId, tuple[str, ...]]]] = {}
    places = places_of(scene.plan)
    for host, facts in heard.first.items():
        names = [place.name for place in places if place.serves and place.host != host]
        for task in scene.plan.on_host(host) if scene.plan.cluster.strategy not in TELLS_ITS_ADDRESS else ():
            env = {**(facts["proxies"] if task.keep_proxy else {}), **task.env}
            if (sent := through(env, names)) is not None:
                caught.setdefault((sent[0], env[sent[0]]), []).append((host, task.id, sent[1]))
    exempt = ",".join(dict.fromkeys(place.name for place in places))
    for (variable, value), group in caught.items():
        reached = tuple(sorted({name for _, _, each in group for name in each}))
        fields = {"variable": variable, "value": value, "names": reached, "exempt": exempt}
        hosts = dict.fromkeys(host for host, _, _ in group)
        yield found("proxy", hosts, (task for _, task, _ in group), **fields)
    if not any(task.keep_proxy for task in scene.plan.tasks):
        yield from _left_out(heard)


def _left_out(heard: Heard[NetworkFacts]) -> Iterator[Finding]:
    """Of each host the first that its logins have."""
    alike: dict[tuple[str, str], list[str]] = {}
    for host, facts in heard.first.items():
        told = (one for one in facts["proxies"].items() if not one[0].lower().startswith("no_") and one[1])
        if (first := next(told, None)) is not None:
            alike.setdefault(first, []).append(host)
    for (variable, value), hosts in alike.items():
        yield found("proxy_left_out", hosts, variable=variable, value=value)


def through(env: Mapping[str, str], names: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """The variable, and those of `names` (hosts of addresses) that would be reached by its proxy; None: nobody."""
    variable = next((name for name in TAKEN if env.get(name)), None)
    if variable is None:
        return None
    exempt = next((env[name] for name in EXCEPT if env.get(name)), "")
    entries = [entry.strip() for entry in exempt.split(",") if entry.strip()]
    caught = tuple(dict.fromkeys(name for name in names if not any(_covers(entry, name) for entry in entries)))
    return (variable, caught) if caught else None


def _covers(entry: str, name: str) -> bool:
    """By the end of a name, or as a network (http_proxy_mapper.cc)."""
    if name.lower().endswith(entry.lower()):
        return True
    try:
        return ipaddress.ip_address(name) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
