"""The agent as bytes: the same from the same sources, and small enough to be sent with every connection."""

from __future__ import annotations

import ast
import io
import shlex
import zlib

from dtctl.transport.payload import LOADER, agent_program, opening, whole


def test_the_program_is_the_same_every_time() -> None:
    first = agent_program()
    agent_program.cache_clear()
    second = agent_program()
    assert first == second
    assert first is not second


def test_the_program_holds_the_agent_and_can_be_run() -> None:
    names = set(agent_program().files)
    assert {"__main__.py", "dtctl_agent/__init__.py", "dtctl_agent/requests/session.py"} <= names
    assert "dtctl_agent/bootstrap.py" not in names


def test_the_opening_is_the_bootstrap_and_the_name_of_the_program_alone() -> None:
    stream = io.BytesIO(opening())
    bootstrap = stream.read(int(stream.readline()))
    ast.parse(bootstrap)
    assert stream.read() == b"0 %b\n" % agent_program().sha256.encode()
    assert len(opening()) < 32_000  # one window of TCP


def test_the_whole_is_the_program() -> None:
    stream = io.BytesIO(whole())
    size = int(stream.readline())
    assert zlib.decompress(stream.read(size)) == agent_program().content
    assert stream.read() == b""


def test_the_loader_is_one_word_for_every_login_shell() -> None:
    """sh, csh and fish agree on single quotes, as long as nothing inside is a quote, a ! or a backslash."""
    assert shlex.split(LOADER)[:2] == ["python3", "-ISc"]
    code = LOADER.partition("'")[2].rstrip("'")
    assert not set(code) & set("'!\\\n")
    compile(code, "loader", "exec")
