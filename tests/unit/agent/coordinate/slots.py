"""Specs of runs with spares, as each of their hosts has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.spec import Moved, Spec, TaskSpec, comes_back_alone
from tests.unit.agent.coordinate.world import spec_of

REPLACE_S = 60.0


def with_spares(strategy: str, places: Mapping[str, str], *spares: str, **fields: Any) -> Spec:
    """As the lead's host has it. Every host votes, and each spare can take any place."""
    hosts = [*dict.fromkeys(places.values()), *spares, *fields.get("arbiters", [])]
    voters = [{"host": host, "address": f"{host}:2221", "port": 2221} for host in hosts]
    ports = {task: 2222 + index for index, task in enumerate(places)}
    own = {host: {"address": host, "addresses": {task: f"{host}:{ports[task]}" for task in places}} for host in spares}
    recovery = {"replace_s": REPLACE_S, **fields.pop("recovery", {})}
    first = next(one for one in voters if one["host"] == spec_of(strategy, places)["host"])
    voters.sort(key=lambda one: one is not first)
    fields = {"spares": own, "voters": voters[:7], "coordinator": first, **fields}
    return on(spec_of(strategy, places, recovery=recovery, **fields), first["host"])


def on(spec: Spec, host: str) -> Spec:
    """As this host has it at the beginning."""
    slots = {member["host"] for member in spec["roster"]} if host in spec["spares"] else set()
    tasks = {slot: [_task(spec, one["task"]) for one in spec["roster"] if one["host"] == slot] for slot in slots}
    own = [_task(spec, one["task"]) for one in spec["roster"] if one["host"] == host]
    return made(Spec, **{**spec, "host": host, "tasks": own, "slots": tasks})


def _task(spec: Spec, task: str) -> TaskSpec:
    member = next(one for one in spec["roster"] if one["task"] == task)
    own = comes_back_alone(member["role"], member["scope"])
    return made(TaskSpec, id=task, argv=["x"], env={}, secrets=[], code=False, own=own, ready="listening")


def moved(number: int = 1, /, **slots: str) -> Moved:
    return made(Moved, number=number, slots=slots)
