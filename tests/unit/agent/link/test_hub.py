"""The coordinator's hub: who is let in, what may be said on a line, and when it is read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.link import hub as hubs
from dtctl.agent.link.acceptor import PLACES, Caller, in_turn, surplus
from dtctl.agent.link.hub import MANY, REST_S, Hub
from dtctl.agent.link.peer import LINE_LIMIT, LineBuffer, Violation, check, decode, encode
from dtctl.agent.link.tls import Lost
from dtctl.agent.records.kinds import made
from dtctl.agent.records.messages import FROM_AGENT, FROM_COORDINATOR, PROTOCOL
from dtctl.agent.records.run_state import State
from tests.agent.link.links import hello, state
from tests.fuzz import cases

SENT_BYTES = 1 << 16


class PlainStream:
    """In place of a TlsStream: the other end is in a test's hands, and reads when the test does."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._own, self.far = socket.socketpair()
        self._own.setblocking(False)
        self._pulled = b""
        self._queue = b""

    def fileno(self) -> int:
        return self._own.fileno()

    @property
    def is_waiting(self) -> bool:
        return bool(self._queue)

    def pull(self) -> bool:
        self._pulled = self._own.recv(1 << 20)
        return True

    def read(self) -> bytes:
        pulled, self._pulled = self._pulled, b""
        return pulled

    def write(self, data: bytes) -> None:
        self._queue += data
        self.push()

    def push(self) -> None:
        try:
            while self._queue:
                self._queue = self._queue[self._own.send(self._queue) :]
        except BlockingIOError:
            pass

    def finish(self) -> None: ...

    def discard(self) -> None: ...

    def close(self) -> None:
        self._own.close()
        self.far.close()


class Door:
    """In place of the Acceptor: lets in whom a test brings."""

    is_resting = False

    def __init__(self, *_: Any) -> None:
        self.brought: list[Any] = []
        self._end, self._far = socket.socketpair()

    def step(self, now: float) -> list[Any]:
        brought, self.brought = self.brought, []
        return brought

    def fileno(self) -> int:
        return self._end.fileno()

    def due(self) -> None:
        return None

    def close(self) -> None:
        self._end.close()
        self._far.close()


class ManyAgents:
    """A hub and agents that have said hello; the time is 100."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.door = Door()
        monkeypatch.setattr(hubs, "Acceptor", lambda *_: self.door)
        identity: Any = object()
        self.hub = Hub("127.0.0.1:0", 0, identity, [], lambda _: ([], False), 99.0)
        self.streams = [PlainStream(f"h{number}") for number in range(count)]
        self.door.brought = [(stream, identity) for stream in self.streams]
        self.hub.step(99.0)
        for stream in self.streams:
            stream.far.send(encode(hello(stream.host)))
        assert len(self.hub.step(99.5)) == count
        self.hub.step(99.9)

    def say(self, number: int) -> None:
        self.streams[number].far.send(encode(state()))

    def heard(self, now: float) -> list[str]:
        return [host for host, message in self.hub.step(now) if message["type"] == "state"]

    @property
    def is_awaited(self) -> bool:
        """The hub is to be woken up when somebody says something."""
        return self.hub._selector.fileno() in self.hub.readers()


@pytest.fixture
def gather(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[ManyAgents] = []

    def gather(count: int) -> ManyAgents:
        made.append(ManyAgents(monkeypatch, count))
        return made[-1]

    yield gather
    for one in made:
        one.hub.close()


def test_one_poll_serves_several_agents(gather: Any) -> None:
    agents = gather(MANY)
    agents.say(0)
    assert agents.heard(100.0) == ["h0"], "who speaks first is heard at once"
    assert not agents.is_awaited
    assert agents.hub.due() <= 100.0 + REST_S
    agents.say(1)
    agents.say(2)
    assert agents.heard(100.0 + REST_S / 2) == []
    assert not agents.is_awaited
    assert sorted(agents.heard(100.0 + REST_S)) == ["h1", "h2"]
    assert agents.heard(100.0 + 2 * REST_S) == []
    assert agents.is_awaited


def test_few_agents_are_all_served_in_one_poll(gather: Any) -> None:
    agents = gather(MANY - 1)
    for number, now in enumerate([100.0, 100.001, 100.002]):
        agents.say(number)
        assert agents.is_awaited
        assert agents.heard(now) == [f"h{number}"]


def test_an_agent_that_does_not_read_is_written_to_when_it_does(gather: Any) -> None:
    agents = gather(2)
    agents.hub.send("h0", {"type": "welcome", "v": PROTOCOL, "events_from": 0})
    watched = agents.hub._selector.get_key(agents.streams[0])
    for _ in range(100):
        agents.hub.send("h0", {"type": "orders", "text": "x" * SENT_BYTES})
    assert agents.streams[0].is_waiting
    assert agents.hub._selector.get_key(agents.streams[0]) != watched
    agents.streams[0].far.setblocking(False)
    now, read = 100.0, 0
    while agents.streams[0].is_waiting:
        try:
            read += len(agents.streams[0].far.recv(1 << 20))
        except BlockingIOError:
            now += 0.001
            agents.hub.step(now)
    agents.hub.step(now)
    assert read > 50 * SENT_BYTES
    assert agents.hub._selector.get_key(agents.streams[0]) == watched


class Identity:
    def __init__(self, run: str) -> None:
        self.run = run


@pytest.mark.parametrize("run", ["r1", "r0"])
def test_host_may_report_leaving_only_for_itself_and_only_a_run_that_is_over(
    monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    door = Door()
    monkeypatch.setattr(hubs, "Acceptor", lambda *_: door)
    live: Any = Identity("r1")
    asked: list[tuple[str, str]] = []

    def removed(run: str, host: str) -> bool:
        asked.append((run, host))
        return True

    hub = Hub("127.0.0.1:0", 0, live, [], lambda _: ([], False), 99.0, removed=removed)
    stream = PlainStream("h7")
    door.brought = [(stream, live if run == "r1" else Identity(run))]
    hub.step(99.0)
    stream.far.send(encode({"type": "leave", "host": "h1", "run": "r1"}))
    received = hub.step(99.5)
    answer = decode(stream.far.recv(1000).strip())
    hub.close()
    if run == "r1":
        assert received == []
        assert answer == {"type": "refused", **dict.fromkeys(("text", "reason"), "the run is not over here")}
    else:
        assert received == [("h7", {"type": "left", "run": "r0"})]
        assert answer == {"type": "over", "removed": True}
        assert asked == [("r0", "h7")]


def test_an_agent_does_not_leave_after_its_hello(gather: Any) -> None:
    agents = gather(1)
    agents.streams[0].far.send(encode({"type": "leave"}))
    assert [message["type"] for _, message in agents.hub.step(100.0)] == ["invalid", "gone"]


NO_SOCKET: Any = None


def strangers(address: str, count: int, since: float) -> list[Caller]:
    return [Caller(NO_SOCKET, address, since + number / 1000) for number in range(count)]


def test_the_oldest_connection_of_an_address_is_evicted() -> None:
    some = strangers("10.0.0.1", PLACES + 2, 0.0)
    assert surplus(some[::-1]) == some[:2]


def test_a_flood_from_one_address_evicts_no_other() -> None:
    old = strangers("10.0.0.2", 3, 0.0)
    flood = strangers("10.0.0.1", 10 * PLACES, 1.0)
    going = surplus([*old, *flood])
    assert len(going) == 9 * PLACES + 3
    assert not set(going) & set(old)


def test_two_floods_share_the_slots() -> None:
    everybody = [*strangers("10.0.0.1", 2 * PLACES, 0.0), *strangers("10.0.0.2", PLACES, 1.0)]
    left = set(everybody) - set(surplus(everybody))
    assert sorted(stranger.address for stranger in left) == ["10.0.0.1"] * (PLACES // 2) + ["10.0.0.2"] * (PLACES // 2)


def test_of_one_address_the_newest_begins_first_and_the_oldest_continues_first() -> None:
    some = strangers("10.0.0.1", 4, 0.0)
    some[0].begun = some[1].begun = True
    assert in_turn(some) == [some[0], some[1], some[3], some[2]]


def test_a_flood_from_one_address_delays_no_other_handshake() -> None:
    agents, one = strangers("10.0.0.1", 100, 0.0), strangers("10.0.0.2", 1, 1.0)
    for caller in agents:
        caller.begun = True
    assert one[0] in in_turn([*agents, *one])[:2]


STATE: dict[str, Any] = {
    "type": "state",
    "state": made(State, run="r1", host="h1", tasks={"worker:0": {}}),
    "intents": {"worker:0": {}},
    "kept": True,
    "lost_session": False,
}


def test_messages_come_back_as_sent_however_the_stream_is_cut() -> None:
    messages: list[dict[str, Any]] = [
        {"type": "beat"},
        {"type": "state", "text": "line\nbreak 训", "n": [1, -2.5, None]},
    ]
    sent = b"".join(encode(message) for message in messages)
    for size in (1, 2, 7, len(sent)):
        lines = LineBuffer()
        pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
        assert [decode(line) for piece in pieces for line in lines.feed(piece)] == messages


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    longest = encode({"type": "x", "text": "y" * (LINE_LIMIT - 22)})
    assert len(longest) == LINE_LIMIT + 1
    assert LineBuffer().feed(longest) == [longest[:-1]]
    with pytest.raises(Violation):
        LineBuffer().feed(b"y" + longest)
    with pytest.raises(Lost, match="a message of 1048577 bytes"):
        encode({"type": "x", "text": "y" * (LINE_LIMIT - 21)})


def test_an_endless_line_is_not_kept() -> None:
    lines = LineBuffer()
    for _ in range(LINE_LIMIT // 65536):
        assert lines.feed(b"x" * 65536) == []
    with pytest.raises(Violation, match="more than 1048576 bytes"):
        lines.feed(b"x")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_nan_and_infinity_are_not_sent(number: float) -> None:
    with pytest.raises(Lost):
        encode({"type": "state", "step": number})


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"type": 1}',
        b'{"type": "x"} {}',
        b'{"type": "\xff"}',
        b'{"type": "x", "n": 1e999}',
        b'{"type": "x", "n": -Infinity}',
        b'{"type": "x", "n": NaN}',
        b'{"type": "x", "n": ' + b"9" * 100_000 + b"}",
        b'{"type": "x", "n": ' + b"[" * 100_000,
        b'{"type": "x", "n": ' + b'{"a":' * 100_000,
    ],
    ids=range(13),
)
def test_invalid_messages_are_refused(line: bytes) -> None:
    with pytest.raises(Violation, match="not a message"):
        decode(line)


def test_unknown_fields_are_ignored_and_unknown_types_refused() -> None:
    check({**STATE, "more": 1}, FROM_AGENT)
    with pytest.raises(Violation, match="unknown type"):
        check({"type": "more"}, FROM_AGENT)
    with pytest.raises(Violation, match="unknown type"):
        check(STATE, FROM_COORDINATOR)


@pytest.mark.parametrize(
    "wrong", [{"state": None}, {"state": []}, {"kept": 1}, {"kept": None}, {"lost_session": "no"}], ids=str
)
def test_a_field_has_to_be_of_its_kind(wrong: dict[str, Any]) -> None:
    with pytest.raises(Violation, match=f"the message state is invalid: {next(iter(wrong))}: expected"):
        check({**STATE, **wrong}, FROM_AGENT)


def test_another_version_is_named_as_such_whatever_else_it_says() -> None:
    with pytest.raises(Violation, match="another version"):
        check({"type": "hello", "v": PROTOCOL + 1}, FROM_AGENT)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
NAMES = st.sampled_from([*FROM_AGENT, *FROM_COORDINATOR, "more"])


@cases
@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes_are_messages_or_a_violation_wherever_they_are_cut(data: bytes, cuts: list[int]) -> None:
    buffer, ends = LineBuffer(), sorted({*cuts, len(data)})
    lines = [line for begin, end in zip([0, *ends], ends, strict=False) for line in buffer.feed(data[begin:end])]
    assert lines == data.split(b"\n")[:-1]
    for line in lines:
        with suppress(Violation):
            assert isinstance(decode(line)["type"], str)


@cases
@given(name=NAMES, fields=st.dictionaries(st.sampled_from([*STATE, "v", "run", "host", "agent", "events"]), JSON))
def test_whatever_a_message_holds_it_is_checked_or_a_violation(name: str, fields: dict[str, Any]) -> None:
    for records in (FROM_AGENT, FROM_COORDINATOR):
        for message in ({**fields, "type": name}, {**STATE, **fields, "type": name}):
            refusal = ""
            try:
                value = check(message, records)
                assert check(decode(encode(value)[:-1]), records) == value
            except Violation as violation:
                refusal = str(violation)
            assert refusal.isprintable()
            assert len(refusal) < 500
