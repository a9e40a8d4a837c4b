"""Hosts that are drained for maintenance, and the tasks that this holds: pure functions of records.

What is drained is recorded in the tasks' intents alone: `hold`, with a reason that names the host and who asked. So
every agent has it on its disk, and every coordinator learns it from them.
"""

from __future__ import annotations

from ..records.reasons import because, fact, headline, why_of
from ..records.spec import may_be_absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional

    from ..records.reasons import Fact
    from ..records.run_state import Entry, Intent
    from ..records.spec import Member

DRAINED = "drained"
SHUTTING_DOWN = "shutting_down"
CUT_OFF = "cut_off"
"""Kinds of reasons for which a host's tasks are held: until `undrain`, until its agent starts again, or until the
coordinator has heard of it.
"""

UNDRAINED = "undrained"
RESUMED = "resumed"
"""And for which they are held no longer: they wait for all that need each other, or start."""


def is_drained(intent: Intent) -> bool:
    """The task is held because of a host, its own or one that it needs, that is drained or shuts down."""
    return intent["want"] == "hold" and bool(_facts(intent))


def is_returning(intent: Intent) -> bool:
    """Nothing holds it any more, and it waits for all that need each other."""
    return intent["want"] == "hold" and headline(why_of(intent)) == UNDRAINED


def _facts(intent: Intent) -> List[Fact]:
    return [one for one in why_of(intent) if one["kind"] in (DRAINED, SHUTTING_DOWN, CUT_OFF)]


def hosts(intents: Mapping[str, Intent]) -> Dict[str, Fact]:
    """The hosts that hold tasks, and the reason that names each."""
    drained = [intent for intent in intents.values() if is_drained(intent)]
    return {one["host"]: one for intent in drained for one in _facts(intent)}


def drained_hosts(intents: Mapping[str, Intent]) -> List[str]:
    """Those that a person has drained: they may be away for as long as it takes."""
    return [host for host, one in hosts(intents).items() if one["kind"] == DRAINED]


def cut_off_hosts(intents: Mapping[str, Intent]) -> List[str]:
    """Those that have ended their tasks, as they were cut off."""
    return [host for host, one in hosts(intents).items() if one["kind"] == CUT_OFF]


def believed(intent: Intent, may_hold: Optional[Collection[str]]) -> Intent:
    """As a host's agent reports it, less what it says of other hosts. `may_hold`: the hosts that may hold it; any."""
    why = _facts(intent)
    if may_hold is None or all(one["host"] in may_hold for one in why):
        return intent
    return {**intent, **because([one for one in why if one["host"] in may_hold])}


def tasks_of(host: str, intents: Mapping[str, Intent]) -> List[str]:
    """Those that its drain holds."""
    return [task for task, intent in intents.items() if host in hosts({task: intent})]


def kind_of_return(member: Member, strategy: Optional[str]) -> str:
    """The kind of reason of a task that nothing holds any more."""
    return UNDRAINED if needs_the_run(member, strategy) else RESUMED


def back_in_service(host: str, own: Iterable[Intent]) -> bool:
    """Whether its agent, or a session there, has ended what held the host's own tasks."""
    held = [intent for intent in own if intent["want"] == "hold"]
    returned = any(one["kind"] in (UNDRAINED, RESUMED) and one["host"] == host for each in held for one in why_of(each))
    return returned and not any(host in hosts({"": intent}) for intent in held)


def needs_the_run(member: Member, strategy: Optional[str]) -> bool:
    """Whether other tasks cannot continue without this one, nor it without them."""
    return not may_be_absent(member["role"], member["scope"], strategy)


def held_by(
    host: str, members: Iterable[Member], strategy: Optional[str], intents: Mapping[str, Intent], ended: Collection[str]
) -> List[str]:
    """The tasks that draining the host holds: its own, or all that train where others cannot continue without one.

    `members`: of hosts that have a part in the run. `ended`: tasks that have, and are needed by nobody.
    """
    wanted = [member for member in members if intents[member["task"]]["want"] != "stop"]
    own = [member for member in wanted if member["host"] == host]
    pauses = any(member["task"] not in ended and needs_the_run(member, strategy) for member in own)
    return [one["task"] for one in wanted if one in own or (pauses and one["role"] != "evaluator")]


def why_held(own_host: str, drained: Iterable[Fact]) -> List[Fact]:
    """Why a task is held by these hosts: its own comes first."""
    facts: List[Fact] = []
    for one in sorted(drained, key=lambda one: one["host"] != own_host):
        facts += [*([fact("and")] if facts else []), one]
    return facts


def hold(intent: Intent, entry: Entry, *, gang: bool) -> Dict[str, Any]:
    """Fields of the intent that holds a task. One that has ended stays so, unless all start again together (`gang`)."""
    state = entry["state"]
    idle = intent["want"] == "hold" and state == "pending" and entry["generation"] >= intent["generation"]
    has_ended = state in ("failed", "stopped") or (state == "succeeded" and not gang)
    generation = intent["generation"] + (not (idle or has_ended))
    return {"want": "hold", "generation": generation, "restarts": entry["restarts"], "early": False}
