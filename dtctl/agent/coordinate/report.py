"""What an agent tells the coordinator of its host."""

from __future__ import annotations

from ..records.kinds import Wrong, checked
from ..records.messages import EVENTS_AT_ONCE, PROTOCOL
from ..records.whole_run import Event

__all__ = ["EVENTS_AT_ONCE", "events_since", "hello", "news"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..records.messages import Hello, News, Told
    from ..records.run_state import State
    from ..records.spec import Spec
    from ..run.event_log import EventLog
    from ..run.intents import Followed


def hello(spec: Spec, state: State, intent: Followed, events: int) -> Hello:
    """The first message of an agent. `events`: how many lines its events.jsonl has."""
    assert state["agent"] is not None, "a supervisor has written its own name into its state"
    return {
        "type": "hello",
        "v": PROTOCOL,
        "run": spec["run"],
        "host": spec["host"],
        "agent": state["agent"],
        "events": events,
        **_told(state, intent),
    }


def news(state: State, intent: Followed) -> News:
    """Whatever has changed."""
    return {"type": "state", **_told(state, intent)}


def _told(state: State, intent: Followed) -> Told:
    value = intent.value
    return {
        "state": state,
        "intents": value["tasks"],
        "kept": value["session"] is None,
        "lost_session": intent.lost_session,
    }


def events_since(log: EventLog, begin: int) -> List[Optional[Event]]:
    """At most EVENTS_AT_ONCE of this host's events; None keeps the place of a damaged line."""
    return [_event(line) for line in log.since(begin, EVENTS_AT_ONCE)]


def _event(line: Dict[str, object]) -> Optional[Event]:
    try:
        return checked(Event, line)
    except Wrong:
        return None
