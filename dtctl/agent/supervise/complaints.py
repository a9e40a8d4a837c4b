"""Lines by which a trainer that lives tells what it waits for, or cannot do."""

from __future__ import annotations

import re

from ..records.words import MOST_REASON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple

    from ..records.vitals import Complaint

MARKS = (
    b"CreateSession still waiting for response",
    b"Waiting for model to be ready",
    b"tasks to connect",
    b"Example stragglers",
    b"stopped sending heartbeats",
    b"UNAVAILABLE",
    b"Unavailable:",
    b"UnavailableError",
    b"DeadlineExceeded",
    b"failed to connect",
    b"Connection refused",
    b"Connection timed out",
    b"Connection reset by peer",
    b"Socket closed",
    b"No route to host",
    b"Name or service not known",
    b"Temporary failure in name resolution",
    b"DNS resolution failed",
    b"Address already in use",
    b"Graph handle is not found",
    b"different incarnation",
    b"No space left on device",
    b"Disk quota exceeded",
    b"Permission denied",
    b"OOM when allocating",
    b"ran out of memory",
    b"loss = NaN",
    b"Invalid loss",
)
"""Looked for one by one, which costs less than a regular expression of them all."""

_HEAD = re.compile(
    r"(?:\d{4}-\d\d-\d\d [\d:.]+: [IWEF]|[IWEF]\d{4} [\d:.]+ +\d+) \S+:\d+\] |(?:INFO|WARNING|ERROR):\w+:"
)
"""Of glog and of logging: when and where it was written."""

_LONGEST = min(400, MOST_REASON)
_CURRENT_S = 3600.0


def last_complaint(data: bytes) -> Tuple[bytes, bytes]:
    """The last line of whole ones with a mark in it, and what follows it; both empty where there is none."""
    at = max(data.rfind(mark) for mark in MARKS)
    if at < 0:
        return b"", b""
    begin = max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1
    end = data.find(b"\n", at)
    end = len(data) if end < 0 else end
    return data[begin:end].strip(), data[end:]


def complaint_after(before: Optional[Complaint], line: bytes, wall: float) -> Optional[Complaint]:
    """With a line that has come just now, or none. Complaints of one kind go on, whatever numbers are in them."""
    if not line:
        return before
    text = _HEAD.sub("", " ".join(line.decode("utf-8", "replace").split()))[:_LONGEST]
    goes_on = before is not None and wall - before["last"] < _CURRENT_S and kind(before["text"]) == kind(text)
    return {"text": text, "since": before["since"] if goes_on and before is not None else wall, "last": wall}


def kind(text: str) -> Optional[bytes]:
    """The mark by which it is known."""
    data = text.encode("utf-8", "replace")
    return next((mark for mark in MARKS if mark in data), None)
