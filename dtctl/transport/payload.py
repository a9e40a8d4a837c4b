"""The agent as bytes, and the start of a conversation with it (docs/agent.md, "Start of a conversation")."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from typing import TypeVar

from dtctl.dataclass import dataclass

R = TypeVar("R")

_READ = 'import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),"dtctl","exec"))'
LOADER = f"python3 -ISc '{_READ:400}'"
"""The remote command line: constant, so that it needs no quoting and exposes nothing in `ps`.

The blanks at its end leave room for the agent's own command line, which replaces it."""

BEGINS = b"dtctl-begins"
"""What a login shell prints when its start-up files are done: nothing of them replaces it, or waits for input."""
BY_SHELL = f"echo {BEGINS.decode()}; {LOADER}"
"""The loader as a login shell runs it. Without `exec`, which restricted shells refuse."""

_PACKAGE = "dtctl_agent"
_BOOTSTRAP = "bootstrap.py"
PACKING = 6
"""The level of zlib; 9 takes twice as long and saves 2 %."""


@dataclass(frozen=True)
class AgentProgram:
    """`content`: a line of JSON with the paths and sizes of the files that a host keeps, and then the files."""

    content: bytes
    sha256: str


def once(work: Callable[[], R]) -> Callable[[], R]:
    """Caches a result like `cache`; the threads of a fan-out, which all call at once, wait for the first of them."""
    lock, kept = threading.Lock(), cache(work)

    @wraps(work)
    def done() -> R:
        with lock:
            return kept()

    return done


@once
def agent_program() -> AgentProgram:
    files = {f"{_PACKAGE}/{name}": source for name, source in _sources().items()}
    files["__main__.py"] = files.pop(f"{_PACKAGE}/{_BOOTSTRAP}")
    index = json.dumps([(path, len(source)) for path, source in files.items()]).encode()
    content = b"\n".join([index, b"".join(files.values())])
    return AgentProgram(content, hashlib.sha256(content).hexdigest())


def opening(stay: str = "") -> bytes:
    """The first bytes of a conversation, which suffice for a host that has the agent.

    `stay`: the name and the lifetime of the fork server that the session leaves behind.
    """
    bootstrap = _sources()[_BOOTSTRAP]
    words = f"0 {agent_program().sha256} {stay}".rstrip()
    return b"%d\n%b%b\n" % (len(bootstrap), bootstrap, words.encode())


@once
def whole() -> bytes:
    """The reply to a host that is `lacking` the agent."""
    packed = zlib.compress(agent_program().content, PACKING)
    return b"%d\n%b" % (len(packed), packed)


@once
def _sources() -> dict[str, bytes]:
    """Python files of the agent, by their paths in it, in order."""
    return dict(sorted(_below(str(Path(__file__).parents[1] / "agent"), "")))


def _below(directory: str, path: str) -> Iterator[tuple[str, bytes]]:
    """Python files below a directory. Uses `scandir`, because importlib.resources takes three times as long."""
    for entry in os.scandir(directory):
        if entry.name.endswith(".py"):
            with open(entry.path, "rb", buffering=0) as file:  # noqa: PTH123 (twice as fast)
                yield path + entry.name, file.read()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _below(entry.path, f"{path}{entry.name}/")
