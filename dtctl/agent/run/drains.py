"""Drained hosts, tasks beyond the number to which a job is scaled, and the tasks that they hold: pure functions.

Holds are recorded only in the tasks' intents. So every agent has them on its disk, and every coordinator receives them
from the agents. The reason of an intent is made from its holds, for people; no decision reads it.
"""

from __future__ import annotations

from ..records.kinds import made
from ..records.reasons import Fact, because, fact
from ..records.run_state import Hold
from ..records.spec import Member, job_of, may_be_absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional, Sequence

    from ..records.run_state import Entry, Intent, Release
    from ..records.values import HoldKind

DRAINED: HoldKind = "drained"
SHUTTING_DOWN: HoldKind = "shutting_down"
CUT_OFF: HoldKind = "cut_off"
"""Kinds of holds of a host: until `undrain`, until its agent starts again, or until the coordinator has its report."""

SCALED_DOWN: HoldKind = "scaled_down"
"""The hold of a task until its job is scaled up again."""

LEFT_OUT: HoldKind = "left_out"
"""The hold of a host that was left out, until it has been connected for a while."""

DRAINED_ALONE: HoldKind = "drained_alone"
"""The hold of a drained host without which the others continue (`min_workers`)."""

BAD_HOST: HoldKind = "bad_host"
"""The hold of a host that was left out because tasks have failed on it again and again (bad_hosts.py)."""

ALONE = (SCALED_DOWN, LEFT_OUT, DRAINED_ALONE, BAD_HOST)
"""Kinds that hold no other task, even if all train together: the others restart without them (gang.py)."""

UNDRAINED = "undrained"
RESUMED = "resumed"
SCALED_UP = "scaled_up"
RESIZED = "resized"
"""Kinds of reasons for tasks that are no longer held: they wait for all that need each other, or start."""


MOST_NAMED = 7
"""The most holders that a reason names."""


def of_host(kind: HoldKind, host: str, by: str, why: Optional[Fact] = None) -> Hold:
    return made(Hold, kind=kind, holder=host, by=by, why=why or fact(kind, host=host, by=by))


def is_drained(intent: Intent) -> bool:
    """Whether the task is held: its host, or one that it needs, is drained or shuts down, or its job is scaled down."""
    return intent["want"] == "hold" and bool(intent["holds"])


def is_bad(holds: Iterable[Hold]) -> bool:
    """Whether its own host is to blame for the failures of a task with these holds."""
    return any(one["kind"] == BAD_HOST for one in holds)


def is_left_out_as_bad(host: str, own: Mapping[str, Intent]) -> bool:
    """Whether the run leaves this host out for the failures on it, by the intents of its tasks; also after its end."""
    return any(is_bad([one]) and one["holder"] == host for intent in own.values() for one in intent["holds"])


def excuse(intents: Mapping[str, Intent], host: str) -> None:
    """Ends these holds of a host in a run that has ended: `up` asks for no more than that."""
    for intent in intents.values():
        intent["holds"] = [one for one in intent["holds"] if (one["kind"], one["holder"]) != (BAD_HOST, host)]


def is_returning(intent: Intent) -> bool:
    """Whether nothing holds it any more, and it waits for all tasks that need each other."""
    released = intent["released"]
    return intent["want"] == "hold" and not intent["holds"] and released is not None and released["together"]


def holders(intents: Mapping[str, Intent]) -> Dict[str, Hold]:
    """Hosts and surplus tasks that hold tasks -> the hold of each."""
    drained = [intent for intent in intents.values() if is_drained(intent)]
    return {one["holder"]: one for intent in drained for one in intent["holds"]}


def drained_hosts(intents: Mapping[str, Intent]) -> List[str]:
    """Hosts that are out until a person undrains them: they may be away without limit."""
    return [host for host, one in holders(intents).items() if one["kind"] in (DRAINED, DRAINED_ALONE, BAD_HOST)]


def left_out_hosts(intents: Mapping[str, Intent]) -> List[str]:
    """Hosts that were left out, while the others train."""
    return [host for host, one in holders(intents).items() if one["kind"] == LEFT_OUT]


def cut_off_hosts(intents: Mapping[str, Intent]) -> List[str]:
    """Hosts that have stopped their tasks because they were cut off."""
    return [host for host, one in holders(intents).items() if one["kind"] == CUT_OFF]


def confirmed(intent: Intent, allowed_holders: Optional[Collection[str]]) -> Intent:
    """An intent as a host's agent reports it, without holders that it may not name.

    `allowed_holders`: None: any.
    """
    if allowed_holders is None or all(one["holder"] in allowed_holders for one in intent["holds"]):
        return intent
    return {**intent, "holds": [one for one in intent["holds"] if one["holder"] in allowed_holders]}


def with_hold(intent: Intent, hold: Hold) -> List[Hold]:
    """The holds of the intent with this one, which replaces another of the same holder."""
    others = intent["holds"] if is_drained(intent) else []
    return [*(one for one in others if one["holder"] != hold["holder"]), hold]


def release(intent: Intent, holder: str, member: Member, strategy: Optional[str]) -> Dict[str, Any]:
    """The fields of an intent whose hold by this host has ended; others may still hold it."""
    holds = [one for one in intent["holds"] if one["holder"] != holder]
    released: Release = {"host": holder, "together": needs_the_run(member, strategy)}
    return {"holds": holds, "released": released, **because(why_held(holds) or [why_released(released)])}


def why_released(released: Release) -> Fact:
    """The reason for a task that nothing holds any more, since a host is in service again."""
    return fact(UNDRAINED if released["together"] else RESUMED, host=released["host"])


def tasks_of(holder: str, intents: Mapping[str, Intent]) -> List[str]:
    """The tasks that it holds."""
    return [task for task, intent in intents.items() if holder in holders({task: intent})]


def back_in_service(host: str, own: Iterable[Intent]) -> bool:
    """Whether its agent, or a session there, has ended what held the host's own tasks."""
    held = [intent for intent in own if intent["want"] == "hold"]
    returned = any(each["released"] is not None and each["released"]["host"] == host for each in held)
    return returned and not any(host in holders({"": intent}) for intent in held)


def needs_the_run(member: Member, strategy: Optional[str]) -> bool:
    """Whether other tasks cannot continue without this one, nor it without them."""
    return not may_be_absent(member["role"], member["scope"], strategy)


def beyond(job: str, count: int, by: str, tasks: Iterable[str]) -> Dict[str, Hold]:
    """Surplus tasks of a job that `by` scales to `count` -> the hold of each."""
    places = [task.partition(":") for task in tasks]
    too_many = ["%s:%s" % (name, index) for name, _, index in places if name == job and int(index) >= count]
    why = {task: fact(SCALED_DOWN, task=task, text=job, count=count, by=by) for task in too_many}
    return {task: made(Hold, kind=SCALED_DOWN, holder=task, by=by, count=count, why=why[task]) for task in too_many}


def scaled_down(job: str, intents: Mapping[str, Intent]) -> List[str]:
    """The job's tasks that are held as surplus."""
    found = holders(intents).values()
    return [one["holder"] for one in found if one["kind"] == SCALED_DOWN and job_of(one["holder"]) == job]


def held(
    holds: Mapping[str, Hold],
    members: Iterable[Member],
    strategy: Optional[str],
    intents: Mapping[str, Intent],
    ended: Collection[str],
) -> Dict[str, List[Hold]]:
    """The tasks that these hold, and what holds each; its own host, or its own hold, comes first.

    A host holds its own tasks, and all that train if others cannot continue without one of these. `members`: tasks of
    hosts that take part in the run. `ended`: ended tasks that no task needs.
    """
    wanted = [member for member in members if intents[member["task"]]["want"] != "stop"]
    needed = {one["host"] for one in wanted if one["task"] not in ended and needs_the_run(one, strategy)}
    pausing = [holds[name] for name in sorted(holds) if name in needed and holds[name]["kind"] not in ALONE]
    found: Dict[str, List[Hold]] = {}
    for member in wanted:
        own = [holds[name] for name in (member["host"], member["task"]) if name in holds]
        others = pausing if member["role"] != "evaluator" else []
        if own or others:
            found[member["task"]] = [*own, *(one for one in others if one["holder"] != member["host"])]
    return found


def held_by(
    host: str,
    members: Iterable[Member],
    strategy: Optional[str],
    intents: Mapping[str, Intent],
    ended: Collection[str],
    *,
    alone: bool = False,
) -> List[str]:
    """The tasks that a drain of the host holds (`held`). `alone`: the others restart without them."""
    hold = of_host(DRAINED_ALONE if alone else DRAINED, host, "")
    return [*held({host: hold}, members, strategy, intents, ended)]


def why_held(holds: Sequence[Hold]) -> List[Fact]:
    """The reason that people read; it names the first holders only."""
    facts: List[Fact] = []
    for one in holds[:MOST_NAMED]:
        facts += [*([fact("and")] if facts else []), one["why"]]
    return [*facts, *([fact("and_more")] if len(holds) > MOST_NAMED else [])]


def hold(intent: Intent, entry: Entry, *, gang: bool, failed: bool = False) -> Dict[str, Any]:
    """Fields of the intent that holds a task. An ended task stays ended, unless all restart together (`gang`).

    `failed`: one that has failed is to start again afterwards, as its host was to blame.
    """
    state = entry["state"]
    idle = intent["want"] == "hold" and state == "pending" and entry["generation"] >= intent["generation"]
    has_ended = state == "stopped" or (state == "failed" and not failed) or (state == "succeeded" and not gang)
    generation = intent["generation"] + (not (idle or has_ended))
    held = {"want": "hold", "generation": generation, "restarts": entry["restarts"], "early": False}
    return {**held, "repair": None}
