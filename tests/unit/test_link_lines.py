"""Lines and messages of the link, and the rules of what may be said."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordination.lines import LINE_LIMIT, LineBuffer, Lost, Violation, decode, encode
from dtctl.agent.coordination.messages import FROM_AGENT, FROM_COORDINATOR, check

STATE: dict[str, Any] = {"type": "state", "state": {}, "intents": {}, "kept": True, "lost_session": False}


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
    with pytest.raises(Violation, match="no message"):
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
    with pytest.raises(Violation, match=f"state was sent without a proper '{next(iter(wrong))}'"):
        check({**STATE, **wrong}, FROM_AGENT)


def test_true_is_no_number() -> None:
    check({"type": "welcome", "v": 1, "events_from": 0}, FROM_COORDINATOR)
    with pytest.raises(Violation):
        check({"type": "welcome", "v": 1, "events_from": False}, FROM_COORDINATOR)


def test_another_version_is_named_as_such_whatever_else_it_says() -> None:
    with pytest.raises(Violation, match="another version"):
        check({"type": "hello", "v": 2}, FROM_AGENT)
