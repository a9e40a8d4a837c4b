"""Lines and messages of the link, and the rules of what may be said."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.link.peer import LINE_LIMIT, LineBuffer, Violation, check, decode, encode
from dtctl.agent.link.tls import Lost
from dtctl.agent.records.kinds import made
from dtctl.agent.records.messages import FROM_AGENT, FROM_COORDINATOR, PROTOCOL
from dtctl.agent.records.run_state import State
from tests.fuzz import cases

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
def test_what_is_no_number_is_not_sent(number: float) -> None:
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
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(Violation, match="not a message"):
        decode(line)


def test_unknown_fields_are_no_fault_and_unknown_types_are() -> None:
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


def test_true_is_no_number() -> None:
    check({"type": "welcome", "v": PROTOCOL, "events_from": 0}, FROM_COORDINATOR)
    with pytest.raises(Violation):
        check({"type": "welcome", "v": PROTOCOL, "events_from": False}, FROM_COORDINATOR)


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
