"""Both ends of a conversation in one test: a Session for the controller's half, the agent's Wire for the other."""

from __future__ import annotations

import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dtctl.agent.conversation import Wire
from dtctl.agent.records.requests import START
from dtctl.errors import AgentError, ConnectionLost
from dtctl.model import Host, Local
from dtctl.transport import wire
from dtctl.transport.seam import Message
from tests.waiting import PATIENCE_S

CHECKOUT = Path(__file__).resolve().parents[3]

AgentHalf = Callable[[Wire], Any]


class PipeSession:
    """A `Session` over one end of a socket pair."""

    def __init__(self, connection: socket.socket, name: str = "here") -> None:
        self.host = Host(name, Local())
        self.facts: Mapping[str, Any] = {}
        self.received: list[Message] = []
        self._connection = connection
        self._decoder = wire.Decoder()
        self._decoder.feed(START)
        self._arrived: list[Message] = []

    def greeted(self) -> float:
        return time.time()

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        try:
            self._connection.sendall(wire.encode(fields, payload))
        except OSError as error:
            raise ConnectionLost("the agent has gone") from error

    def receive(self, timeout_s: float | None = None) -> Message:
        while not self._arrived:
            if not select.select([self._connection], [], [], timeout_s)[0]:
                raise TimeoutError
            try:
                data = self._connection.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                raise ConnectionLost("the agent has gone")
            self._arrived += self._decoder.feed(data)
        message = wire.checked_frame("h1", self._arrived.pop(0))
        self.received.append(message)
        if message.type == "error":
            raise AgentError(message["code"], message["summary"], detail=message["detail"], hint=message["hint"])
        return message

    def close(self) -> None:
        self._connection.close()


@contextmanager
def conversation(agent: AgentHalf) -> Iterator[tuple[PipeSession, list[Any]]]:
    """Runs the agent's half in a thread; its outcome (a value, or what it raised) is in the list afterwards."""
    ours, theirs = socket.socketpair()
    outcome: list[Any] = []

    def run() -> None:
        reader, writer = theirs.makefile("rb"), theirs.makefile("wb")
        try:
            outcome.append(agent(Wire(reader, writer)))
        except Exception as error:
            outcome.append(error)
        finally:
            for closing in (reader, writer, theirs):
                with suppress(OSError):  # what was still to be written has no reader
                    closing.close()

    thread = threading.Thread(target=run)
    session = PipeSession(ours)
    thread.start()
    try:
        yield session, outcome
    finally:
        session.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


_CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from dtctl.agent.conversation import Gone, Wire
from dtctl.agent.host.errors import Refused
wire = Wire(sys.stdin.buffer, sys.stdout.buffer)
def agent(wire, args):
    {body}
try:
    wire.send({{"type": "result", "value": agent(wire, sys.argv[2:])}})
    wire.receive()
except Refused as e:
    wire.send(dict(type="error", code=e.code, summary=e.summary, detail=e.detail, hint=e.hint))
except Gone:
    pass
"""


@contextmanager
def agent_process(
    python: str, body: str, *args: str, under: tuple[str, ...] = ()
) -> Iterator[tuple[PipeSession, subprocess.Popen[bytes]]]:
    """Runs `body`, which has `wire` and `args` and returns a JSON value, in a process of its own with no other modules.

    It waits for the end of the conversation before it ends.
    """
    ours, theirs = socket.socketpair()
    script = _CHILD.format(body=body.strip().replace("\n", "\n    "))
    process = subprocess.Popen(
        [*under, python, "-IS", "-c", script, str(CHECKOUT), *args], stdin=theirs.fileno(), stdout=theirs.fileno()
    )
    theirs.close()
    session = PipeSession(ours)
    try:
        yield session, process
    finally:
        session.close()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
