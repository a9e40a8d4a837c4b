"""What the bootstrap reads before there is an agent."""

from __future__ import annotations

import io

import pytest

from dtctl.agent.bootstrap import size_of_program


@pytest.mark.parametrize(
    ("sent", "size", "rest"),
    [
        (b"3\nabc", b"3\n", b"abc"),
        (b'{"type":"status"}\n{"type":"abort"}\n3\nabc{"type":"status"}\n', b"3\n", b'abc{"type":"status"}\n'),
        (b'{"type":"file","bytes":4}\n{"\n2{"type":"abort"}\n3\nabc', b"3\n", b"abc"),
        (b'{"type":"status"}\n', b"-1", b""),
        (b"", b"-1", b""),
    ],
)
def test_what_was_asked_before_there_was_an_agent_is_passed_over(sent: bytes, size: bytes, rest: bytes) -> None:
    reader = io.BytesIO(sent)
    assert size_of_program(reader) == size
    assert reader.read() == rest
