"""What is so, in one line for each thing: hosts that have the same are told together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dtctl.operations.checks.topic import Line, Said
from dtctl.render.health.findings import filled, valued
from dtctl.render.words import fold

SAID: Mapping[str, str] = {
    "shared": "checkpoints: {where} is one directory for {hosts}",
    "not_shared": "checkpoints: {where} is on {lead} alone",
    "sharing_not_known": "checkpoints: who sees what {lead} saves cannot be told without {lead}",
    "connections": "{reached} of {tried} connections between {hosts} work: every port from every other host, at the "
    "address that the tasks are given",
    "connections_sampled": "{reached} of {tried} connections between {hosts} work; these are a part of the {whole} "
    "that there are: each host tried, and was tried by, {partners} others, in rotation, and the ps and the "
    "coordinator by more",
    "doors_open": "{open} of {doors} task ports answer this machine, which is none of the hosts",
    "doors_closed": "none of {doors} task ports answers this machine, which is none of the hosts",
    "doors_inside": "this machine is one of the hosts: what strangers reach cannot be told from here",
    "not_exchanged": "how fast hosts exchange data was not measured: the ports of their tasks are a live "
    "run's, or taken",
    "speed": "{pairs} pairs measured: {latency_ms} ms there and back, {rate_bytes} a second; the slowest is {slowest} "
    "({slowest_bytes} a second), the farthest {farthest} ({farthest_ms} ms)",
    "step_to_ps": "one step moves {moved_bytes} to each ps and back (the newest checkpoint, shared among them): "
    "{least_ms} ms at least",
    "step_to_peers": "a step that exchanges {moved_bytes} (the newest checkpoint) takes {least_ms} ms at least",
    "step_by_size": "a step that moves {moved_bytes} each way takes {least_ms} ms at least",
    "logins": "a login takes {least} to {most} s with the start of Python (the slowest: {slowest}); up to {width} at "
    "once",
}
"""Templates of what is so of the cluster as a whole, by the kinds of Said."""

_MOST_VALUES = 6
"""That differ from host to host; of more only the ends are told."""


def shown(lines: Iterable[Line | Said], hosts: int) -> list[tuple[str, str]]:
    """Labels and what is told under them; `hosts`: how many there are."""
    return [row for one in lines if (row := _row(one, hosts)) is not None]


def _row(one: Line | Said, hosts: int) -> tuple[str, str] | None:
    if isinstance(one, Said):
        fields = {name: valued(name, value) for name, value in one.fields.items() if value not in (None, "")}
        return "", filled(SAID[one.kind], fields)
    without = [host for host, value in one.values.items() if value in (None, "")]
    known = {host: value for host, value in one.values.items() if host not in without}
    if not known:
        return None
    label = _label(one.what)
    alike: dict[str, list[str]] = {}
    for host, value in known.items():
        alike.setdefault(valued(one.what, value), []).append(host)
    if len(alike) == 1 and len(known) == hosts:
        return label, next(iter(alike))
    told = [f"{fold(names)}: {value}" for value, names in alike.items()]
    if len(alike) > _MOST_VALUES:
        told = [_span(one.what, known)]
    return label, "; ".join([*told, *([f"{fold(without)}: none"] if without else [])])


def _span(what: str, known: Mapping[str, Any]) -> str:
    """The least and the most of many different values, with the hosts that have them."""
    (least_host, least), *_, (most_host, most) = sorted(known.items(), key=lambda item: item[1])
    return f"{valued(what, least)} ({least_host}) to {valued(what, most)} ({most_host})"


def _label(what: str) -> str:
    """`memory_bytes` -> memory; what has no such end stands as it is."""
    for end in ("_bytes", "_flops", "_share", "_s"):
        what = what.removesuffix(end)
    return what.replace("_", " ")
