"""A host that sends nothing, reads nothing, or never ends: it is reported on the screen, then it times out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dtctl.agent.records import PROTOCOL
from dtctl.errors import TransportError
from dtctl.model import Host, Local
from dtctl.operations import client
from dtctl.operations.client import frames_of
from dtctl.operations.coordinator import status_of_hosts
from dtctl.transport import stream, timeouts
from dtctl.transport.seam import Session
from dtctl.transport.stream import RemoteExit, StreamSession
from dtctl.transport.timeouts import SilenceTimer, Waiting
from dtctl.transport.wire import encode
from tests.unit.coordinated import Agents, record
from tests.unit.fakes import FakeTransport
from tests.waiting import PATIENCE_S

GREETING = {
    "type": "greeting", "protocol": PROTOCOL, "python": "3.11", "hostname": "gpu-3", "user": "train",
    "home": "/home/train",
    "root": "/home/train/.dtctl", "pid": 7, "time": 1.0, "free_bytes": 1, "cpus": 1,
}  # fmt: skip
Told = list[tuple[str, float, float]]
READ_S = 0.001
"""The duration of a read."""


class Clock:
    """The time of a client. It advances only while something waits for bytes or sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


CLOCK = Clock()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All limits divided by a hundred."""
    monkeypatch.setattr(stream, "SILENCE_LIMIT_S", 0.3)
    monkeypatch.setattr(stream, "GREETING_TIMEOUT_S", 0.6)
    monkeypatch.setattr(timeouts, "TOLD_AFTER_S", 0.1)
    for module in (stream, timeouts, client):
        monkeypatch.setattr(module, "time", CLOCK)


class Scripted:
    """A stream whose bytes come from a generator; b"" is a while without any, and its end lasts forever."""

    def __init__(self, script: Iterator[bytes], deaf: bool = False) -> None:
        self._script = script
        self._deaf = deaf
        self.read_bytes = 0

    def read(self, timeout_s: float | None) -> bytes:
        assert timeout_s is not None, "nobody waits without a limit"
        data = next(self._script, b"")
        CLOCK.sleep(READ_S)
        if not data:
            CLOCK.sleep(min(timeout_s, 0.05))
            raise TimeoutError
        self.read_bytes += len(data)
        return data

    def write(self, data: bytes, silence: SilenceTimer) -> None:
        while self._deaf:
            CLOCK.sleep(READ_S + min(silence.wait_s, 0.05))
            silence.check()

    def close(self) -> None: ...

    def ending(self) -> RemoteExit:
        return RemoteExit()


def greeted(script: Iterator[bytes], reports: Told | None = None, *, deaf: bool = False) -> StreamSession:
    def whole() -> Iterator[bytes]:
        yield b"\x1e" + encode(GREETING)
        yield from script

    def waiting(host: str, silent_s: float, limit_s: float) -> None:
        if reports is not None:
            reports.append((host, silent_s, limit_s))

    source = Scripted(whole())
    session = StreamSession(Host("gpu-3", Local()), source, Waiting(waiting))
    session.greeted()
    source._deaf = deaf
    return session


def again(data: bytes) -> Iterator[bytes]:
    while True:
        yield data


def test_a_hanging_host_is_reported_once_and_then_times_out() -> None:
    reports: Told = []
    begun = CLOCK.now
    with pytest.raises(TransportError, match=r"gpu-3 has been silent for 0\.3 s"):
        greeted(iter([]), reports).receive()
    assert CLOCK.now - begun < 2
    assert reports == [("gpu-3", 0.1, 0.3)]


def test_a_host_that_does_not_greet_is_reported_and_times_out() -> None:
    reports: Told = []
    waiting = Waiting(lambda *what: reports.append(what))
    session = StreamSession(Host("gpu-3", Local()), Scripted(iter([b"Welcome!"])), waiting)
    with pytest.raises(TransportError, match=r"the agent on gpu-3 did not answer within 0.6 s") as caught:
        session.greeted()
    assert reports == [("gpu-3", 0.1, 0.6)]
    assert caught.value.detail == "Welcome!"


def test_endless_noise_is_no_greeting() -> None:
    session = StreamSession(Host("gpu-3", Local()), Scripted(again(b"." * 1000)))
    with pytest.raises(TransportError, match="did not answer"):
        session.greeted()


def test_a_host_that_reads_nothing_times_out() -> None:
    reports: Told = []
    session = greeted(iter([]), reports, deaf=True)
    with pytest.raises(TransportError, match="gpu-3 has been silent"):
        session.send({"type": "status"})
    assert reports == [("gpu-3", 0.1, 0.3)]


def test_beats_prevent_a_timeout_and_are_not_returned() -> None:
    result = encode({"type": "result", "run": None, "time": 1.0})
    assert greeted(iter([*(b"", encode({"type": "beat"})) * 20, result])).receive().type == "result"


def beats(*before: bytes) -> Iterator[bytes]:
    yield from before
    while True:
        yield from (b"", encode({"type": "beat"}))


PROGRESS = encode({"type": "progress", "phase": "gc"})
EVENT = encode({"type": "event", "time": 1.0})
LONG_EVENT = encode({"type": "event", "time": 1.0, "reason": "x" * 4000})
ENDLESS: dict[str, tuple[Callable[[], Iterator[bytes]], dict[str, Any], str]] = {
    "only beats": (beats, {"within_s": 1.0}, "gpu-3 did not finish its answer within 1 s"),
    "beats after progress": (
        lambda: beats(*[PROGRESS] * 5),
        {"within_s": 60.0, "quiet_s": 0.2},
        "gpu-3 reported no progress for 0.2 s",
    ),
    "progress": (
        lambda: again(PROGRESS * 1000),
        {"most_bytes": None, "within_s": 0.5, "quiet_s": 0.2},
        "gpu-3 did not finish its answer within 0.5 s",
    ),
    "events": (
        lambda: again(EVENT * 20),
        {"most_bytes": None, "within_s": 0.3},
        "did not finish its answer within 0.3 s",
    ),
    "too many bytes": (lambda: again(LONG_EVENT), {"most_bytes": 1 << 20}, "answered with more than 1 MiB"),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_an_endless_answer_times_out(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_BYTES", 1 << 20)
    script, limits, why = ENDLESS[case]
    begun = CLOCK.now
    with pytest.raises(TransportError, match=why):
        for _ in frames_of(greeted(script()), "progress", "event", **limits):
            pass
    assert CLOCK.now - begun < 3


def test_occasional_bytes_do_not_prevent_a_timeout() -> None:
    def drops() -> Iterator[bytes]:
        yield b'{"type":"result","x":"'
        while True:
            yield from (b"", b"x")

    with pytest.raises(TransportError, match="silent"):
        greeted(drops()).receive()


def test_a_large_frame_on_a_slow_line_does_not_time_out() -> None:
    def slow() -> Iterator[bytes]:
        frame = encode({"type": "result", "x": "x" * (1 << 20)})
        for at in range(0, len(frame), 70_000):
            yield from (b"", b"", frame[at : at + 70_000])

    assert greeted(slow()).receive().type == "result"


def test_the_rate_of_frames_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FRAMES_PER_S", 100)
    session = greeted(again(encode({"type": "progress", "phase": "receive"}) * 1000))
    begun, frames = CLOCK.now, 0
    while CLOCK.now - begun < 1.5:
        session.receive()
        frames += 1
    assert 100 <= frames <= 300


def test_a_flood_of_beats_does_not_extend_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        greeted(again(encode({"type": "beat"}))).receive(timeout_s=0.2)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ({"type": "progress", "phase": 7}, "sent an invalid `progress`: phase: expected"),
        ({"type": "log", "task": "../x", "attempt": 1, "offset": 0, "end": 1, "time": 1.0}, "`log`.* task: expected"),
        ({"type": "error", "code": 7, "summary": "x"}, "invalid `error`: code"),
        ({"type": "surprise"}, "sends a frame `surprise`, which no agent sends"),
        ({"type": "need", "files": [-1]}, "invalid `need`: files.0"),
    ],
)
def test_an_invalid_frame_is_reported_with_host_and_field(frame: dict[str, object], why: str) -> None:
    with pytest.raises(TransportError, match=f"gpu-3 .*{why}"):
        greeted(iter([encode(frame)])).receive()


def test_an_invalid_greeting_is_refused() -> None:
    script = iter([b"\x1e" + encode({**GREETING, "pid": "7"})])
    with pytest.raises(TransportError, match="gpu-3 sent an invalid `greeting`: pid"):
        StreamSession(Host("gpu-3", Local()), Scripted(script)).greeted()


def test_one_hung_host_does_not_delay_other_answers() -> None:
    """d never answers; the answers of the others are there as soon as d has timed out."""
    honest = FakeTransport(Agents())

    class OneHangs:
        def open(self, host: Host) -> Session:
            return greeted(iter([])) if host.name == "d" else honest.open(host)

    begun = CLOCK.now
    found = status_of_hosts(record(), OneHangs())
    assert CLOCK.now - begun < 3
    assert {str(task): one.state.value for task, one in found.tasks.items()} == {
        **dict.fromkeys(("ps:0", "ps:1", "worker:0"), "running"),
        "worker:1": "lost",
    }
    assert "silent" in found.errors["d"].summary


def test_a_sender_waits_for_a_slow_reader() -> None:
    from dtctl.operations.client.streams import QUEUED_BYTES, Streams

    with Streams(FakeTransport(Agents())) as streams:
        count = 0

        def tell() -> None:
            nonlocal count
            for _ in range(100):
                streams.put("x", QUEUED_BYTES // 10)
                count += 1

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        teller.join(0.3)
        assert count <= 10
        read = (what for what in streams.all(0.1) if what is not None)
        for _ in range(100):
            assert next(read) == "x"
        teller.join(PATIENCE_S)
        assert count == 100
