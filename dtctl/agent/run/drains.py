"""Drained hosts, tasks beyond the number to which a job is scaled, and the tasks that they hold: pure functions.

It is recorded only in the tasks' intents: `hold`, with a reason that names the host or the task, and who requested it.
So every agent has it on its disk, and every coordinator receives it from them.
"""

from __future__ import annotations

from ..records.reasons import HOLDING, Fact, because, fact, headline, why_of
from ..records.spec import Member, may_be_absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional

    from ..records.run_state import Entry, Intent

DRAINED = "drained"
SHUTTING_DOWN = "shutting_down"
CUT_OFF = "cut_off"
"""Kinds of reasons for which a host's tasks are held: until `undrain`, until its agent starts again, or until the
coordinator has its report.
"""

SCALED_DOWN = "scaled_down"
"""The kind for a task until its job is scaled up again."""

LEFT_OUT = "left_out"
"""The kind for a host that was left out, until it has been connected for a while."""

DRAINED_ALONE = "drained_alone"
"""The kind for a drained host without which the others continue (`min_workers`)."""

ALONE = (SCALED_DOWN, LEFT_OUT, DRAINED_ALONE)
"""Kinds that hold no other task, even if all train together: the others restart without them (gang.py)."""

UNDRAINED = "undrained"
RESUMED = "resumed"
SCALED_UP = "scaled_up"
RESIZED = "resized"
"""Kinds of reasons for tasks that are no longer held: they wait for all that need each other, or start."""


def is_drained(intent: Intent) -> bool:
    """Whether the task is held: its host, or one that it needs, is drained or shuts down, or its job is scaled down."""
    return intent["want"] == "hold" and bool(_facts(intent))


def is_returning(intent: Intent) -> bool:
    """Whether nothing holds it any more, and it waits for all tasks that need each other."""
    return intent["want"] == "hold" and headline(why_of(intent)) in (UNDRAINED, RESIZED)


def _facts(intent: Intent) -> List[Fact]:
    return [one for one in why_of(intent) if one["kind"] in HOLDING]


def _holder(one: Fact) -> str:
    """The holder that a reason names: the drained host, or the surplus task. No host is named like a task."""
    return one["task"] if one["kind"] == SCALED_DOWN else one["host"]


def holders(intents: Mapping[str, Intent]) -> Dict[str, Fact]:
    """Hosts and surplus tasks that hold tasks -> the reason that names each."""
    drained = [intent for intent in intents.values() if is_drained(intent)]
    return {_holder(one): one for intent in drained for one in _facts(intent)}


def drained_hosts(intents: Mapping[str, Intent]) -> List[str]:
    """Hosts that a person has drained: they may be away without limit."""
    return [host for host, one in holders(intents).items() if one["kind"] in (DRAINED, DRAINED_ALONE)]


def left_out_hosts(intents: Mapping[str, Intent]) -> List[str]:
    """Hosts that were left out, while the others train."""
    return [host for host, one in holders(intents).items() if one["kind"] == LEFT_OUT]


def cut_off_hosts(intents: Mapping[str, Intent]) -> List[str]:
    """Hosts that have stopped their tasks because they were cut off."""
    return [host for host, one in holders(intents).items() if one["kind"] == CUT_OFF]


def believed(intent: Intent, may_hold: Optional[Collection[str]]) -> Intent:
    """An intent as a host's agent reports it, without holders that it may not name.

    `may_hold`: allowed holders; None: any.
    """
    why = _facts(intent)
    if may_hold is None or all(_holder(one) in may_hold for one in why):
        return intent
    return {**intent, **because([one for one in why if _holder(one) in may_hold])}


def tasks_of(holder: str, intents: Mapping[str, Intent]) -> List[str]:
    """The tasks that it holds."""
    return [task for task, intent in intents.items() if holder in holders({task: intent})]


def kind_of_return(member: Member, strategy: Optional[str]) -> str:
    """The kind of reason for a task that is no longer held."""
    return UNDRAINED if needs_the_run(member, strategy) else RESUMED


def back_in_service(host: str, own: Iterable[Intent]) -> bool:
    """Whether its agent, or a session there, has ended what held the host's own tasks."""
    held = [intent for intent in own if intent["want"] == "hold"]
    returned = any(one["kind"] in (UNDRAINED, RESUMED) and one["host"] == host for each in held for one in why_of(each))
    return returned and not any(host in holders({"": intent}) for intent in held)


def needs_the_run(member: Member, strategy: Optional[str]) -> bool:
    """Whether other tasks cannot continue without this one, nor it without them."""
    return not may_be_absent(member["role"], member["scope"], strategy)


def beyond(job: str, count: int, by: str, tasks: Iterable[str]) -> Dict[str, Fact]:
    """Surplus tasks of a job that `by` scales to `count` -> the reason why each is held."""
    places = [task.partition(":") for task in tasks]
    too_many = ["%s:%s" % (name, index) for name, _, index in places if name == job and int(index) >= count]
    return {task: fact(SCALED_DOWN, task=task, text=job, count=count, by=by) for task in too_many}


def scaled_down(job: str, intents: Mapping[str, Intent]) -> List[str]:
    """The job's tasks that are held as surplus."""
    return [task for task, one in holders(intents).items() if one["kind"] == SCALED_DOWN and one["text"] == job]


def held_by(
    holder: str,
    members: Iterable[Member],
    strategy: Optional[str],
    intents: Mapping[str, Intent],
    ended: Collection[str],
    *,
    alone: bool = False,
) -> List[str]:
    """The tasks that a host, or one task, holds: its own, or all that train if others cannot continue without one.

    `members`: tasks of hosts that take part in the run. `ended`: ended tasks that no task needs. `alone`: the others
    restart without them.
    """
    wanted = [member for member in members if intents[member["task"]]["want"] != "stop"]
    own = [member for member in wanted if holder in (member["host"], member["task"])]
    pauses = not alone and any(member["task"] not in ended and needs_the_run(member, strategy) for member in own)
    return [one["task"] for one in wanted if one in own or (pauses and one["role"] != "evaluator")]


def why_held(own_host: str, drained: Iterable[Fact]) -> List[Fact]:
    """Why a task is held: its own host comes first."""
    facts: List[Fact] = []
    for one in sorted(drained, key=lambda one: _holder(one) != own_host):
        facts += [*([fact("and")] if facts else []), one]
    return facts


def hold(intent: Intent, entry: Entry, *, gang: bool) -> Dict[str, Any]:
    """Fields of the intent that holds a task. An ended task stays ended, unless all restart together (`gang`)."""
    state = entry["state"]
    idle = intent["want"] == "hold" and state == "pending" and entry["generation"] >= intent["generation"]
    has_ended = state in ("failed", "stopped") or (state == "succeeded" and not gang)
    generation = intent["generation"] + (not (idle or has_ended))
    held = {"want": "hold", "generation": generation, "restarts": entry["restarts"], "early": False}
    return {**held, "repair": None}
