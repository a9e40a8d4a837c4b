"""What each end of the link may say (docs/agent.md, "The link")."""

from __future__ import annotations

from .lines import Violation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Tuple, Union

    Kind = Union[type, Tuple[type, ...]]
    Shapes = Mapping[str, Mapping[str, Kind]]

VERSION = 1
BEAT = {"type": "beat"}

_OPTIONAL = (dict, type(None))

FROM_AGENT: Shapes = {
    "hello": {
        "v": int,
        "run": str,
        "host": str,
        "agent": dict,
        "kept": bool,
        "lost_session": bool,
        "events": int,
        "state": dict,
        "intents": dict,
        "stop_run": _OPTIONAL,
    },
    "state": {"state": dict, "intents": dict, "kept": bool, "lost_session": bool, "stop_run": _OPTIONAL},
    "events": {"from": int, "events": list},
    "beat": {},
}
FROM_COORDINATOR: Shapes = {
    "welcome": {"v": int, "events_from": int},
    "orders": {"intents": dict, "mending": bool, "over": bool},
    "refused": {"reason": str},
    "beat": {},
}


def check(message: Dict[str, Any], shapes: Shapes) -> None:
    """Its type is one of these, and it has that type's fields. Raises Violation."""
    name = message["type"]
    if name not in shapes:
        raise Violation("a message of an unknown type was sent")
    if name in ("hello", "welcome") and message.get("v") != VERSION:
        raise Violation("another version of the protocol is spoken, %d is wanted" % VERSION)
    for field, kind in shapes[name].items():
        if not _is(message.get(field), kind):
            raise Violation("%s was sent without a proper %r" % (name, field))


def _is(value: object, kind: Kind) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
