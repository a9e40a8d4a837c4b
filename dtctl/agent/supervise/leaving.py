"""Orders that an agent gives its own tasks: its host shuts down, is cut off, or others have taken its places.

When its host shuts down, the agent receives SIGTERM: its tasks save and end, and are held until an agent starts again.
The system sends SIGTERM to the trainers at the same moment, and all that is left is killed after 90 s
(DefaultTimeoutStopSec of systemd). So the agent holds its tasks by itself, and the coordinator learns it from that.

Where hosts have taken the places of others, the agent ends what its host has no more, and the next one begins with the
rest.
"""

from __future__ import annotations

from ..host import errors
from ..records.kinds import InvalidValue
from ..records.reasons import because, fact
from ..records.values import FINAL
from ..run import drains, gang, intents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.run_state import Entries, Intents
    from ..records.spec import Moved, Spec
    from ..run.runfiles import RunFiles

GRACE_S = 75.0
"""The longest that trainers have: the system gives no more."""

LIMIT_S = 85.0
REPORT_S = 2.0
"""By then the reports to the coordinator are sent, and its orders are received."""


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


def moved_away(files: RunFiles, spec: Spec, moved: Moved, wanted: Intents) -> Optional[Intents]:
    """Those that end what the host has no more, at once: others may have it already. None where the moves are no such.

    They are in the answer when they are obeyed as well.
    """
    try:
        leaving = set(gang.leaving(spec, gang.seated(files.original(), moved)))
    except InvalidValue as wrong:
        errors.note("moves: %s" % wrong)
        return None
    held = {task: intent for task, intent in wanted.items() if task in leaving}
    ended = intents.stopped(held, by="coordinator", why=fact("moved_away", host=spec["host"]))
    for intent in ended.values():
        intent["grace_s"] = 0.0
    return {**held, **ended}


def write_moves(files: RunFiles, moved: Moved) -> bool:
    """Whether the next agent will read it."""
    try:
        files.write_moved(moved)
    except OSError as error:  # a full disk: later
        errors.note("moves: %s" % error)
        return False
    return True
