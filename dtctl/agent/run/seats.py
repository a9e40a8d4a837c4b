"""Seats: the places of the hosts that `up` has given tasks to, and who has them now.

A run's spec is written once. Where hosts have taken the places of others, what an agent or a session reads of it is
laid over it here: the roster, and the tasks of this host.
"""

from __future__ import annotations

from ..records.kinds import InvalidValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from ..records.spec import Member, Moved, Spec


def seated(spec: Spec, moved: Moved) -> Spec:
    """The spec of `up`, after these moves. Raises InvalidValue if they cannot be of its run."""
    seats = {seat: host for seat, host in moved["seats"].items() if host != seat}
    _check(spec, seats)
    own = spec["host"]
    tasks = [] if own in seats else list(spec["tasks"])
    for seat in [seat for seat, host in seats.items() if host == own]:
        tasks += spec["seats"][seat]
    roster = [_placed(spec, member, seats) for member in spec["roster"]]
    after: Spec = {**spec, "moved": moved, "tasks": tasks, "roster": roster}
    return after


def _placed(spec: Spec, member: Member, seats: Dict[str, str]) -> Member:
    host = seats.get(member["host"])
    if host is None:
        return member
    address = spec["spares"][host]["addresses"][member["task"]]
    return {**member, "host": host, "address": address, "seat": member["host"]}


def _check(spec: Spec, seats: Dict[str, str]) -> None:
    for seat, host in seats.items():
        tasks = [member["task"] for member in spec["roster"] if member["host"] == seat]
        can = spec["spares"][host]["addresses"] if host in spec["spares"] else {}
        if not tasks or not all(task in can for task in tasks) or (host == spec["host"] and seat not in spec["seats"]):
            raise InvalidValue.at(("moved", "seats", seat), "a spare that can take this place", host)


def leaving(before: Spec, after: Spec) -> List[str]:
    """The tasks that this host has no more."""
    kept = {task["id"] for task in after["tasks"]}
    return [task["id"] for task in before["tasks"] if task["id"] not in kept]
