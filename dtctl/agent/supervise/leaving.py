"""A host that shuts down, as SIGTERM tells its agent: its tasks save and end, and are held until an agent starts again.

The trainers are sent SIGTERM by the system at the same moment, and all that is left is killed after 90 s
(DefaultTimeoutStopSec of systemd). So the agent holds its tasks by itself, and the coordinator learns it from that.
"""

from __future__ import annotations

from ..records.reasons import because, fact
from ..records.values import FINAL
from ..run import drains, intents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..records.run_state import Entries, Intents
    from ..records.spec import Spec

GRACE_S = 75.0
"""The longest that trainers have: the system gives no more."""

LIMIT_S = 85.0
REPORT_S = 2.0
"""What the coordinator is told is on its way by then, and what it has ordered is."""


def held(spec: Spec, wanted: Intents, entries: Entries) -> Intents:
    """Orders that end the tasks of this host and hold them."""
    return held_for(drains.SHUTTING_DOWN, min(spec["grace_s"], GRACE_S), spec, wanted, entries)


def held_for(kind: str, grace_s: float, spec: Spec, wanted: Intents, entries: Entries) -> Intents:
    """`kind`: of the reason."""
    members = {member["task"]: member for member in spec["roster"]}
    orders: Intents = {}
    for task, intent in wanted.items():
        if intent["want"] in ("run", "hold") and not drains.is_drained(intent):
            fields = drains.hold(intent, entries[task], gang=members[task]["scope"] == "gang")
            why = because([fact(kind, host=spec["host"])])
            orders[task] = intent.copy()
            intents.change(orders[task], **fields, by=spec["host"], grace_s=grace_s, **why)
    return orders


def released(spec: Spec, wanted: Intents) -> Intents:
    """Orders that undo this: the coordinator lets the tasks run."""
    members = {member["task"]: member for member in spec["roster"]}
    orders: Intents = {}
    for task, intent in wanted.items():
        one = drains.holders({task: intent}).get(spec["host"])
        if one is not None and one["kind"] == drains.SHUTTING_DOWN:
            kind = drains.kind_of_return(members[task], spec["strategy"])
            orders[task] = intent.copy()
            intents.change(orders[task], by=spec["host"], grace_s=None, **because([fact(kind, host=spec["host"])]))
    return orders


def has_left(entries: Entries, since: float, now: float) -> bool:
    """Whether the agent may end: nothing runs, and that is reported, or the system is about to kill it."""
    going = any(entry["state"] not in (*FINAL, "pending", "backoff") for entry in entries.values())
    return now - since >= (LIMIT_S if going else REPORT_S)
