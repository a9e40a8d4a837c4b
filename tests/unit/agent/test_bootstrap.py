"""What the bootstrap reads before there is an agent."""

from __future__ import annotations

import io
import sys
import zlib
from pathlib import Path

import pytest

from dtctl.agent import bootstrap
from dtctl.agent.host import keeping
from dtctl.transport.payload import agent_program


@pytest.mark.parametrize(
    ("sent", "program", "rest"),
    [
        (b"3\nabc", b"abc", b""),
        (b'{"type":"status"}\n{"type":"abort"}\n3\nabc{"type":"status"}\n', b"abc", b'{"type":"status"}\n'),
        (b'{"type":"file","bytes":4}\n{"\n2{"type":"abort"}\n3\nabc', b"abc", b""),
    ],
)
def test_frames_before_the_program_are_passed_over(
    sent: bytes, program: bytes, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "say", lambda **frame: None)
    reader = io.BytesIO(sent)
    assert bootstrap.received(reader, 0) == program
    assert reader.read() == rest


@pytest.mark.parametrize("sent", [b'{"type":"status"}\n', b"", b"3\nab"])
def test_the_session_ends_when_the_controller_goes_before_the_program_has_arrived(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "say", lambda **frame: None)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit):
        bootstrap.received(io.BytesIO(sent), 0)


def refuse(*said: str) -> None:
    pytest.fail(": ".join(said))


def kept(directory: Path) -> Path:
    """A program, kept as a session does."""
    program = directory / agent_program().sha256
    packed = zlib.compress(agent_program().content)
    keeping.keep(str(program), agent_program().files, packed, bootstrap.compiled_path(str(program)), refuse)
    return program


def test_the_head_of_the_compiled_program_fits_into_one_read(tmp_path: Path) -> None:
    code = Path(bootstrap.compiled_path(str(kept(tmp_path)))).read_bytes()
    assert int.from_bytes(code[4:8], "little") < bootstrap.HEAD_BYTES / 2


def test_sources_are_those_that_the_name_of_the_program_promises(tmp_path: Path) -> None:
    program = kept(tmp_path)
    assert bootstrap.sources(str(program)) == agent_program().files
    source = program / "source"
    for damaged in (source.read_bytes()[:-1], zlib.compress(b"{}"), b""):
        source.write_bytes(damaged)
        assert bootstrap.sources(str(program)) == {}


def test_what_another_user_may_write_or_has_made_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"123")
    file.chmod(0o600)
    assert bootstrap.content(str(file), 2) == b"12"
    file.chmod(0o620)
    assert bootstrap.content(str(file), 2) == b""
    (tmp_path / "link").symlink_to(file)
    file.chmod(0o600)
    assert bootstrap.content(str(tmp_path / "link"), 2) == b""
    assert bootstrap.content(str(tmp_path), 2) == b""
