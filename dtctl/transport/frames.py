"""What a host says is checked here, once, before anything is made of it (dtctl/agent/records).

The errors go without the traceback of the check: it would keep all that was said, which may be 100 MB, for as long as
the error is kept.
"""

from __future__ import annotations

from typing import Any, TypeVar

from dtctl.agent.records.answers import FRAMES
from dtctl.agent.records.kinds import Wrong, checked
from dtctl.agent.records.requests import PROTOCOL
from dtctl.errors import TransportError
from dtctl.transport.seam import Message

R = TypeVar("R")


def checked_frame(host: str, message: Message) -> Message:
    """The frame with the fields of its record and no others. Raises TransportError."""
    if message.type == "result":  # checked by whoever knows what it answers
        return message
    if message.type == "greeting" and message.fields.get("protocol") != PROTOCOL:
        raise TransportError(f"the agent on {host} speaks another protocol", detail=str(message.fields)[:1000])
    record = FRAMES.get(message.type)
    if record is None:
        raise untrue(host, f"sends a frame `{message.type[:40]}`, which no agent sends")
    try:
        fields: dict[str, Any] = checked(record, message.fields)
    except Wrong as wrong:
        raise untrue(host, f"sent an invalid `{message.type}`: {wrong}") from wrong.with_traceback(None)
    return Message({**fields, "type": message.type}, message.payload, message.size)


def checked_result(host: str, kind: str, message: Message, record: type[R]) -> R:
    """The answer to a request of this kind. Raises TransportError."""
    try:
        return checked(record, message.fields)
    except Wrong as wrong:
        raise untrue(host, f"answered `{kind}` with an invalid record: {wrong}") from wrong.with_traceback(None)


def untrue(host: str, what: str) -> TransportError:
    """A host has said what no agent of dtctl says; nothing is done with it."""
    return TransportError(
        f"{host} {what}",
        hint=f"nothing of it was used: is dtctl's agent on {host} damaged, or has somebody tampered with it?",
    )
