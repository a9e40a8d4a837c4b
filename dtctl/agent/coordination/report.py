"""What an agent tells the coordinator of its host."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

EVENTS_AT_ONCE = 100


def report(kind: str, state: Mapping[str, Any], intent: Mapping[str, Any]) -> Dict[str, Any]:
    """A hello's or a state's common fields."""
    return {
        "type": kind,
        "state": dict(state),
        "intents": intent["tasks"],
        "kept": intent["session"] is None,
        "lost_session": intent["lost_session"],
        "stop_run": intent["stop_run"],
    }
