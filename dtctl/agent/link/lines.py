"""One JSON object a line: bytes to messages and back. What the other end sends may be anything."""

from __future__ import annotations

import json

from ..records import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping

    Message = Dict[str, Any]

LINE_LIMIT = 1 << 20
"""The most bytes of a line, without its line end."""


class Lost(Exception):
    """This connection is of no more use; the text says why, in plain words."""


class Violation(Lost):
    """Because the other end does not keep to the protocol."""


class LineBuffer:
    """Cuts a stream into lines. An unfinished one is kept, up to the limit."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def feed(self, data: bytes) -> List[bytes]:
        """The lines that are complete now. Raises Violation."""
        *complete, rest = data.split(b"\n")
        lines: List[bytes] = []
        for piece in complete:
            self._add(piece)
            lines.append(bytes(self._begun))
            self._begun.clear()
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        if len(self._begun) + len(piece) > LINE_LIMIT:
            raise Violation("a line of more than %d bytes was sent" % LINE_LIMIT)
        self._begun += piece


def encode(message: Mapping[str, Any]) -> bytes:
    """The line. Raises Lost for one that the other end would not take."""
    try:
        line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError as error:
        raise Lost("a message (%s) cannot be sent: %s" % (message.get("type"), error)) from None
    if len(line) > LINE_LIMIT:
        raise Lost("a message of %d bytes (%s) is too long to be sent" % (len(line), message.get("type")))
    return line + b"\n"


def decode(line: bytes) -> Message:
    """The message, whatever its type. Raises Violation."""
    try:
        message = json_text.parse(line)
    except ValueError:
        raise Violation("a line that is not a message was sent") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise Violation("a line that is not a message was sent")
    return message
