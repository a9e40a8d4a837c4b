"""From who reached whom to causes: names and addresses first, then what the matrix of hosts shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dtctl.agent.records.network import Bound
from dtctl.operations.networking.matrix import matrix_causes
from dtctl.operations.networking.view import Attempt, Cause, View, is_loopback

MOST_ALIKE = 3
"""Causes of a kind that are told one by one."""

Rest = list[Attempt]
"""Attempts that failed, and that nothing explains yet."""


def judge(view: View) -> tuple[Cause, ...]:
    """Every attempt that failed is explained by one of them."""
    rest = [attempt for attempt in view.attempts if attempt.hindrance]
    found = [*_taken(view), *_tried(view), *_own_names(view)]
    for explain in (_unresolved, _loopback, _wrong_addresses, _other_hosts, _half_open):
        causes, rest = explain(view, rest)
        found += causes
    found += matrix_causes(view.attempts, rest)
    return tuple(_few(found))


def _few(causes: list[Cause]) -> Iterator[Cause]:
    """Of each kind some, and the hosts of the others."""
    kinds: dict[str, list[Cause]] = {}
    for cause in causes:
        kinds.setdefault(cause.kind, []).append(cause)
    for kind, alike in kinds.items():
        yield from alike[:MOST_ALIKE]
        if rest := alike[MOST_ALIKE:]:
            hosts = tuple(dict.fromkeys(host for cause in rest for host in cause.hosts))
            others = tuple(dict.fromkeys(host for cause in rest for host in cause.others))
            yield Cause("more_alike", hosts, others, {"of": kind, "count": len(rest)})


def _taken(view: View) -> Iterator[Cause]:
    """Of each port one, with who has it on the first of its hosts."""
    ports: dict[int | None, dict[str, Bound]] = {}
    for host, slots in view.bound.items():
        for slot in slots:
            if slot["state"] == "taken":
                ports.setdefault(slot["port"], {})[host] = slot
    for port, on in ports.items():
        first, slot = next(iter(on.items()))
        fields = {"port": port, "whose": tuple(one["whose"] for one in on.values()), "holder": slot["holder"]}
        yield Cause("port_taken", tuple(on), fields=fields | ({"on": first} if len(on) > 1 else {}))


def _tried(view: View) -> Iterator[Cause]:
    """By another check, at the same time."""
    hosts = {
        host: {slot["port"] or 0 for slot in slots if slot["state"] == "tried"} for host, slots in view.bound.items()
    }
    on = tuple(host for host, ports in hosts.items() if ports)
    if on:
        yield Cause("tried_by_another", on, fields={"ports": tuple(sorted(set().union(*hosts.values())))})


def _own_names(view: View) -> Iterator[Cause]:
    """Harmless to TensorFlow, which listens on every address; gloo and others tell their peers what it stands for."""
    found: dict[str, dict[str, str]] = {}
    for host, names in view.resolved.items():
        for named in names:
            looped = [address for address in named["addresses"] if is_loopback(address)]
            if looped and looped == named["addresses"] and not is_loopback(named["name"]):
                found.setdefault(looped[0], {})[host] = named["name"]
    for address, on in found.items():
        name = {"name": next(iter(on.values()))} if len(on) == 1 else {}
        yield Cause("own_loopback", tuple(on), fields={"address": address, **name})


def _unresolved(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    named = [attempt for attempt in rest if attempt.hindrance == "unresolved"]
    causes = [
        Cause("unresolved", sources(group), (group[0].target,), _named(group[0], text=group[0].text))
        for group in grouped(named, lambda attempt: (attempt.target, attempt.place.name))
    ]
    return causes, _without(rest, named)


def _loopback(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    looped = [attempt for attempt in rest if is_loopback(attempt.at)]
    causes = [
        Cause(
            "literal_loopback" if is_loopback(group[0].place.name) else "loopback_name",
            sources(group),
            (group[0].target,),
            _named(group[0], address=group[0].at, has=tuple(sorted(view.addresses(group[0].target)))),
        )
        for group in grouped(looped, lambda attempt: (attempt.target, attempt.place.name, attempt.at))
    ]
    return causes, _without(rest, looped)


def _wrong_addresses(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    """Names that stand for an address that their host does not have. (An address that is reached may be translated.)"""
    reached = {(attempt.target, attempt.at) for attempt in view.attempts if not attempt.hindrance}
    wrong = [
        attempt
        for attempt in rest
        if (own := view.addresses(attempt.target))
        and attempt.at not in own
        and (attempt.target, attempt.at) not in reached
    ]
    causes = []
    for group in grouped(wrong, lambda attempt: (attempt.target, attempt.place.name, attempt.at)):
        first = group[0]
        others = {one.at for one in view.attempts if one.target == first.target and one.place.name == first.place.name}
        usual = sorted((others - {first.at}) & view.addresses(first.target))
        fields = _named(first, address=first.at, has=tuple(sorted(view.addresses(first.target))))
        if usual:
            fields |= {"usual": usual[0]}
            causes.append(Cause("other_address", sources(group), (first.target,), fields))
        else:
            causes.append(Cause("wrong_interface", (first.target,), sources(group), fields))
    return causes, _without(rest, wrong)


def _other_hosts(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    """The right address, and somebody else answers there."""
    answered = [attempt for attempt in rest if attempt.hindrance in ("other_host", "stranger")]
    causes = []
    for group in grouped(answered, lambda attempt: (attempt.target, attempt.at, attempt.hindrance, attempt.by)):
        first = group[0]
        fields = _named(first, address=first.at, ports=_ports(group)) | ({"by": first.by} if first.by else {})
        causes.append(Cause(first.hindrance, (first.target,), sources(group), fields))
    return causes, _without(rest, answered)


def _half_open(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    """Connections are made, and what is sent over them does not arrive."""
    half = [attempt for attempt in rest if attempt.hindrance in ("cut_off", "silent")]
    causes = []
    for group in grouped(half, lambda attempt: (attempt.hindrance,)):
        kind = "large_packets" if group[0].hindrance == "cut_off" else "silent"
        fields = {"from_hosts": sources(group), "ports": _ports(group)}
        causes.append(Cause(kind, targets(group), sources(group), fields))
    return causes, _without(rest, half)


def grouped(attempts: Iterable[Attempt], key: Callable[[Attempt], object]) -> list[Rest]:
    groups: dict[object, Rest] = {}
    for attempt in attempts:
        groups.setdefault(key(attempt), []).append(attempt)
    return list(groups.values())


def sources(attempts: Iterable[Attempt]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(attempt.source for attempt in attempts))


def targets(attempts: Iterable[Attempt]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(attempt.target for attempt in attempts))


def _ports(attempts: Iterable[Attempt]) -> tuple[int, ...]:
    return tuple(sorted({attempt.place.port for attempt in attempts}))


def _named(attempt: Attempt, **fields: object) -> dict[str, object]:
    return {"name": attempt.place.name, **fields}


def _without(rest: Rest, explained: Rest) -> Rest:
    gone = set(map(id, explained))
    return [attempt for attempt in rest if id(attempt) not in gone]
