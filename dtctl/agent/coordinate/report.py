"""What an agent reports to its coordinator: a hello, then whatever is new, and its events."""

from __future__ import annotations

from ..records.kinds import Wrong, checked, fields_of
from ..records.messages import EVENTS_AT_ONCE, PROTOCOL
from ..records.run_state import Advance
from ..records.whole_run import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union

    from ..records.messages import Hello, News, Progress, Told
    from ..records.run_state import Entry, State
    from ..records.spec import Spec
    from ..run.intents import IntentFollower
    from ..run.runfiles import EventLog


_ADVANCES = frozenset(fields_of(Advance))


class Report:
    """What is to be reported on one connection, after its hello. `brief`: the coordinator takes `progress`."""

    def __init__(self, brief: bool) -> None:
        self._brief = brief
        self._reported: object = None
        self._state: Optional[State] = None
        """As it was reported, where a part of it may follow."""

    def news(self, state: State, intent: IntentFollower) -> Union[News, Progress, None]:
        """None when nothing has changed since the last time; what this returns counts as reported."""
        value = intent.value
        reported = (value["serial"], value["session"] is None, intent.lost_session)
        before = self._state if reported == self._reported else None
        if before is not None and state["serial"] == before["serial"]:
            return None
        progress = _progress(before, state) if self._brief and before is not None else None
        self._reported, self._state = reported, _kept(state)
        return progress or news(state, intent)


def _kept(state: State) -> State:
    """As it is now: its tasks' fields are replaced, and never changed themselves."""
    kept = state.copy()
    kept["tasks"] = {task: entry.copy() for task, entry in state["tasks"].items()}
    return kept


def _progress(before: State, state: State) -> Optional[Progress]:
    """What is new in a state; None where that is more than how far its tasks are."""
    was: Any = before
    for name, value in state.items():
        if name not in ("serial", "machine", "tasks") and value != was[name]:
            return None
    if state["tasks"].keys() != before["tasks"].keys():
        return None
    tasks: Dict[str, Any] = {}
    for task, entry in state["tasks"].items():
        changed = _changed(before["tasks"][task], entry)
        if not _ADVANCES.issuperset(changed):
            return None
        if changed:
            tasks[task] = changed
    progress: Progress = {"type": "progress", "serial": state["serial"], "tasks": tasks}
    if state["machine"] != before["machine"]:
        progress["machine"] = state["machine"]
    return progress


def _changed(before: Entry, entry: Entry) -> Dict[str, Any]:
    was: Any = before
    return {name: value for name, value in entry.items() if value != was[name]}


def hello(spec: Spec, state: State, intent: IntentFollower, events: int) -> Hello:
    """The first message of an agent. `events`: how many lines its events.jsonl has."""
    assert state["agent"] is not None, "a supervisor has written its own name into its state"
    return {
        "type": "hello",
        "v": PROTOCOL,
        "run": spec["run"],
        "host": spec["host"],
        "agent": state["agent"],
        "events": events,
        **_fields(state, intent),
    }


def news(state: State, intent: IntentFollower) -> News:
    """Whatever has changed."""
    return {"type": "state", **_fields(state, intent)}


def _fields(state: State, intent: IntentFollower) -> Told:
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
