"""Frames of the agent protocol as bytes (docs/agent.md, "Frames"), the controller's side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dtctl.agent.records import PROTOCOL
from dtctl.agent.records.kinds import InvalidValue, checked, parse_json
from dtctl.agent.records.requests import START
from dtctl.agent.rooms import FRAMES, load
from dtctl.errors import TransportError
from dtctl.transport.seam import Message

NOISE_BYTES = 4096
LINE_LIMIT = 16 << 20
PAYLOAD_LIMIT = 8 << 20
"""The longest log line has half of that (dtctl/agent/logs/lines.py)."""

PAYLOAD_LIMITS = {"output": 1 << 20, "progress": 1 << 20, "piece": 1 << 17, "event_file": 1 << 20}
"""Limits for data that agents send as a pipe yields it."""


class WireError(ValueError):
    """The other side does not speak the protocol."""


def encode(fields: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """One frame; `bytes` is added to the fields if there is a payload."""
    whole = {**fields, "bytes": len(payload)} if payload else fields
    return json.dumps(whole, separators=(",", ":"), allow_nan=False).encode() + b"\n" + payload


class Decoder:
    """Splits a stream of bytes, in pieces of any size, into frames. Work and memory are linear in its size."""

    def __init__(self) -> None:
        self.noise = b""
        """The end of the bytes before the first frame."""
        self.started = False
        self._buffer = bytearray()
        self._searched = 0
        self._fields: dict[str, Any] | None = None
        self._missing = 0
        self._line_size = 0

    def feed(self, data: bytes) -> list[Message]:
        """The frames that `data` completes. Raises WireError."""
        if not self.started:
            data = self._after_noise(data)
        self._buffer += data
        return list(self._frames())

    def _after_noise(self, data: bytes) -> bytes:
        noise, marker, rest = data.partition(START)
        self.noise = (self.noise + noise[-NOISE_BYTES:])[-NOISE_BYTES:]
        self.started = bool(marker)
        return rest

    def _frames(self) -> Iterator[Message]:
        while True:
            if self._fields is None:
                line = self._line()
                if line is None:
                    return
                self._fields, self._line_size = _fields(line), len(line)
                self._missing = _payload_size(self._fields)
            if len(self._buffer) < self._missing:
                return
            yield Message(self._fields, self._take(self._missing), self._line_size + self._missing)
            self._fields, self._missing = None, 0

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._searched)
        size = end if end >= 0 else len(self._buffer)
        if size > LINE_LIMIT:
            raise WireError(f"a frame's line is longer than {LINE_LIMIT} bytes")
        if end >= 0:
            self._searched = 0
            return self._take(end + 1)
        self._searched = size
        return None

    def _take(self, size: int) -> bytes:
        with memoryview(self._buffer) as view:
            taken = bytes(view[:size])
        del self._buffer[:size]  # bytearray moves its start, not its bytes
        return taken


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(line)
    except ValueError as error:
        raise WireError(f"not a frame: {line[:200]!r} ({error})") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("type"), str):
        raise WireError(f"not a frame: {line[:200]!r}")
    return fields


def _payload_size(fields: dict[str, Any]) -> int:
    size = fields.get("bytes", 0)
    limit = PAYLOAD_LIMITS.get(fields["type"], PAYLOAD_LIMIT)
    if type(size) is not int or not 0 <= size <= limit:
        raise WireError(f"a frame of {fields['type'][:40]!r} with {str(size)[:40]} bytes")
    return size


def checked_frame(host: str, message: Message) -> Message:
    """The frame with the fields of its record and no others. Raises TransportError."""
    if message.type == "result":  # its request checks it
        return message
    if message.type == "greeting" and message.fields.get("protocol") != PROTOCOL:
        raise TransportError(f"the agent on {host} speaks another protocol", detail=str(message.fields)[:1000])
    record = FRAMES.get(message.type)
    if record is None:
        raise untrue(host, f"sends a frame `{message.type[:40]}`, which no agent sends")
    try:
        fields: dict[str, Any] = checked(load(record), message.fields)
    except InvalidValue as wrong:
        raise untrue(host, f"sent an invalid `{message.type}`: {wrong}") from wrong.with_traceback(None)
    return Message({**fields, "type": message.type}, message.payload, message.size)


def untrue(host: str, what: str) -> TransportError:
    """The error for a host that sent what no agent of dtctl sends; none of it is used."""
    return TransportError(
        f"{host} {what}",
        hint=f"dtctl used none of it: is the agent on {host} damaged, or has somebody tampered with it?",
    )
