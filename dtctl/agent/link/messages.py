"""What each end of the link may say is checked on arrival (records/messages.py, docs/agent.md, "The link")."""

from __future__ import annotations

from ..records.kinds import Wrong, checked
from ..records.messages import FROM_AGENT, FROM_COORDINATOR, PROTOCOL
from .lines import Violation

__all__ = ["BEAT", "FROM_AGENT", "FROM_COORDINATOR", "PROTOCOL", "check"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Literal, Mapping, TypedDict, Union

    from ..records.messages import Events, Hello, News, Orders, Progress, Refusal, Welcome

    class Gone(TypedDict):
        """A connection has ended; `heard`: when something last came by it, on the monotonic clock."""

        type: Literal["gone"]
        reason: str
        heard: float

    class Lied(TypedDict):
        """What a host said was invalid; its connection was closed."""

        type: Literal["lied"]
        reason: str

    class Superseded(TypedDict):
        """The agent of an earlier run was told that this is over."""

        type: Literal["past"]
        run: str

    class Connected(TypedDict):
        """It is time to say hello."""

        type: Literal["connected"]

    FromHub = Union[Hello, News, Progress, Events, Gone, Lied, Superseded]
    FromDialer = Union[Welcome, Orders, Refusal, Gone, Connected]

BEAT = {"type": "beat"}


def check(message: Dict[str, Any], records: Mapping[str, Any]) -> Any:
    """The message as the record of its type. Raises Violation."""
    name = message["type"]
    if name not in records:
        raise Violation("a message of an unknown type was sent")
    if name in ("hello", "welcome") and message.get("v") != PROTOCOL:
        raise Violation("it speaks another version of the protocol, not version %d" % PROTOCOL)
    try:
        return checked(records[name], message)
    except Wrong as wrong:
        raise Violation("the message %s is invalid: %s" % (name, wrong)) from None
