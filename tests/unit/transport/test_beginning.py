"""Requests are sent along with the start of the agent: a distant host is waited for once, not twice."""

from __future__ import annotations

import queue

import pytest

from dtctl.errors import AgentError, ConnectionLost, TransportError
from dtctl.model import Host, Local
from dtctl.transport import payload
from dtctl.transport.stream import RemoteExit, StreamSession, converse
from dtctl.transport.timeouts import SilenceTimer, Waiting
from dtctl.transport.wire import encode
from tests.unit.transport.test_timeouts import GREETING

STATUS, ABORT = {"type": "status"}, {"type": "abort"}
LACKING = {"type": "lacking"}
RESULT = {"type": "result"}
REFUSAL = {"type": "error", "code": "python_too_old", "summary": "too old", "detail": "3.6", "hint": "3.8"}


class Pipe:
    """The sent bytes, and those that are still to be read; b"" is the end."""

    def __init__(self, *coming: bytes, broken: bool = False, exit_code: int | None = None) -> None:
        self.sent: list[bytes] = []
        self.coming: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        for one in coming:
            self.coming.put(one)
        self._broken = broken
        self._exit_code = exit_code

    def read(self, timeout_s: float | None) -> bytes:
        try:
            return self.coming.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None

    def write(self, data: bytes, silence: SilenceTimer) -> None:
        if self._broken:
            raise BrokenPipeError("nobody reads")
        self.sent.append(data)

    def close(self) -> None: ...

    def ending(self) -> RemoteExit:
        return RemoteExit(self._exit_code)


def begun(pipe: Pipe) -> StreamSession:
    return converse(Host("gpu-3", Local()), pipe, Waiting())


def frame(fields: object) -> bytes:
    assert isinstance(fields, dict)
    return encode(fields)


def test_requests_do_not_wait_for_the_greeting() -> None:
    pipe = Pipe()
    session = begun(pipe)
    session.send(STATUS)
    assert pipe.sent == [payload.opening(), frame(STATUS)]
    pipe.coming.put(b"\x1e" + frame(GREETING) + frame(RESULT))
    assert session.receive().type == "result"
    assert session.facts["hostname"] == "gpu-3"
    assert session.greeted() > 0


def test_requests_are_repeated_after_the_agent_for_a_host_that_lacks_it() -> None:
    pipe = Pipe(b"\x1e" + frame(LACKING), frame(GREETING), frame(RESULT))
    session = begun(pipe)
    session.send(STATUS)
    session.send(ABORT)
    assert session.receive().type == "result"
    asked = frame(STATUS) + frame(ABORT)
    assert pipe.sent == [payload.opening(), frame(STATUS), frame(ABORT), payload.whole() + asked]
    session.send(STATUS)
    assert pipe.sent[4:] == [frame(STATUS)]


def test_a_host_that_lacks_the_agent_twice_is_refused() -> None:
    session = begun(Pipe(b"\x1e" + frame(LACKING) + frame(LACKING)))
    with pytest.raises(TransportError, match="gpu-3 begins with a `lacking`"):
        session.receive()


def test_the_first_answer_explains_why_an_agent_does_not_start() -> None:
    session = begun(Pipe(b"\x1e" + frame(REFUSAL)))
    session.send(STATUS)
    with pytest.raises(AgentError) as caught:
        session.receive()
    error = caught.value
    assert (error.code, error.summary, error.detail, error.hint) == ("python_too_old", "gpu-3: too old", "3.6", "3.8")


def test_garbage_in_place_of_a_frame_is_reported() -> None:
    with pytest.raises(TransportError, match="gpu-3 sent an invalid message"):
        begun(Pipe(b"\x1e" + frame(GREETING) + b"this is not JSON\n")).receive()


def test_a_host_that_reads_nothing_is_explained_by_its_exit() -> None:
    session = begun(Pipe(b"sh: no such command", b"", broken=True, exit_code=127))
    session.send(STATUS)
    with pytest.raises(TransportError, match="gpu-3 has no python3"):
        session.receive()


def test_failed_send_after_the_greeting_is_lost_at_once() -> None:
    pipe = Pipe(b"\x1e" + frame(GREETING))
    session = begun(pipe)
    session.greeted()
    pipe._broken = True
    with pytest.raises(ConnectionLost):
        session.send(STATUS)


def test_a_short_receive_leaves_the_greeting_for_later() -> None:
    pipe = Pipe()
    session = begun(pipe)
    session.send(STATUS)
    with pytest.raises(TimeoutError):
        session.receive(0.0)
    pipe.coming.put(b"\x1e" + frame(GREETING))
    with pytest.raises(TimeoutError):
        session.receive(0.0)
    pipe.coming.put(frame(RESULT))
    assert session.receive(5.0).type == "result"


def test_a_closed_session_refuses_requests() -> None:
    session = begun(Pipe(broken=True))
    session.close()
    with pytest.raises(ConnectionLost, match="is closed"):
        session.send(STATUS)
