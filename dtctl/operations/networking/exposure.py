"""Whether strangers reach the ports of tasks: what this machine can connect to, and addresses of the internet. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dtctl.agent.records.network import NetworkFacts
from dtctl.operations.checks.topic import Heard, Said, Scene, found
from dtctl.operations.diagnosis.signature import Finding
from dtctl.operations.networking.dialling import Dialled, Door
from dtctl.operations.networking.view import (
    COORDINATOR,
    Place,
    addresses_of,
    is_loopback,
    is_public,
    open_places,
    places_of,
)

MOST_DOORS = 256


def doors(scene: Scene, heard: Heard[NetworkFacts]) -> tuple[Door, ...]:
    """What this machine is to try while the hosts listen: each host by its address, and as it is logged in to.

    Of many hosts one port each. How a host is reached is never taken from a host. The coordinator's port is not among
    them: it answers nobody without the run's credentials.
    """
    if scene.brief or len(heard.rounds) != 1:
        return ()
    found = [
        Door(place.host, place.whose, name, place.port, live)
        for place, live in _task_places(scene, heard).items()
        if not scene.host(place.host).is_local
        for name in dict.fromkeys([place.name, scene.reached_at.get(place.host, place.name)])
        if not is_loopback(name) and name != "localhost"
    ]
    if len(found) > MOST_DOORS:
        found = list({(door.host, door.name): door for door in reversed(found)}.values())[::-1][:MOST_DOORS]
    return tuple(found)


def _task_places(scene: Scene, heard: Heard[NetworkFacts]) -> dict[Place, bool]:
    found = open_places(scene.plan, {host: facts["bound"] for host, facts in heard.first.items()})
    return {place: live for place, live in found.items() if place.whose != COORDINATOR}


def judge(scene: Scene, heard: Heard[NetworkFacts]) -> Iterator[Finding]:
    opened = _opened(heard)
    if opened:
        hosts = tuple(dict.fromkeys(one.door.host for one in opened))
        public = next((one.address for one in opened if is_public(one.address)), None)
        ports = tuple(sorted({one.door.port for one in opened}))
        tasks = [task.id for task in scene.plan.tasks if str(task.id) in {one.door.whose for one in opened}]
        yield found("exposed", hosts, tasks, ports=ports, seen_from=opened[0].seen_from, public=public)
    yield from _public(scene, heard, {one.door.host for one in opened})


def _opened(heard: Heard[NetworkFacts]) -> list[Dialled]:
    """Nothing where this machine is one of the hosts: what it reaches tells nothing of others."""
    own = {address for facts in heard.first.values() for address in addresses_of(facts)}
    return [one for one in heard.dialled if one.seen_from not in own]


def _public(scene: Scene, heard: Heard[NetworkFacts], known: set[str]) -> Iterator[Finding]:
    """Addresses that were not tried from here: those that were, and did not open, are closed to this machine."""
    tried = {place.name for place in places_of(scene.plan)} | set(scene.reached_at.values())
    ports: dict[str, set[int]] = {}
    for place in _task_places(scene, heard):
        ports.setdefault(place.host, set()).add(place.port)
    for host, facts in heard.first.items():
        untried = [one for one in addresses_of(facts) if is_public(one) and one not in tried]
        if untried and host in ports and host not in known:
            yield found("public_address", (host,), address=untried[0], ports=tuple(sorted(ports[host])))


def tell(scene: Scene, heard: Heard[NetworkFacts]) -> Iterator[Said]:
    if heard.tried_doors:
        opened = _opened(heard)
        inside = bool(heard.dialled) and not opened
        kind = "doors_inside" if inside else "doors_open" if opened else "doors_closed"
        open_doors = len({(one.door.host, one.door.port) for one in opened})
        yield Said(kind, {"open": open_doors, "doors": heard.tried_doors})


def is_exposed(finding: Finding) -> bool:
    return finding.signature.name in ("exposed", "public_address")
