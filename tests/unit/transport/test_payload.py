"""The agent as bytes: the same from the same sources, and small enough to be sent with every connection."""

from __future__ import annotations

import ast
import inspect
import io
import shlex
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

from dtctl.transport.payload import LOADER, agent_program, once, opening, whole


def test_the_program_is_the_same_every_time() -> None:
    made_anew = inspect.unwrap(agent_program)
    assert made_anew() == agent_program()
    assert made_anew() is not agent_program()


def test_threads_that_ask_at_the_same_moment_get_one_program() -> None:
    made: list[object] = []
    everyone = threading.Barrier(8)

    def make() -> object:
        made.append(object())
        time.sleep(0.05)  # long enough for the others to ask as well
        return made[-1]

    asked = once(make)

    def ask(_: int) -> object:
        everyone.wait()
        return asked()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == set(made)
    assert len(made) == 1


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
