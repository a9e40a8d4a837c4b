"""A bundle's way from a code directory into a host's root, both ends in this process."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from dtctl.agent.bundles import store
from dtctl.bundle import Bundle
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender
from dtctl.errors import ConnectionLost
from tests.agent.link.ends import PipeSession, conversation

ENSURE = """
from dtctl.agent.bundles import store
return store.obtain(args[0], args[1], wire)
"""
"""For `agent_process`: the arguments are the root and the id."""


def push(bundle: Bundle, root: Path) -> tuple[str, list[str]]:
    """Sends the bundle to an agent in a thread: the directory of the tree, and which files were sent."""
    with conversation(lambda wire: store.ensure(str(root), bundle.id, wire)) as (session, outcome):
        asked = serve(bundle, session)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0], asked


def placed(code: Path, root: Path) -> tuple[Bundle, Path]:
    """A bundle of this directory, and its tree on the host."""
    bundle = scan(code)
    return bundle, Path(push(bundle, root)[0])


def serve(bundle: Bundle, session: PipeSession) -> list[str]:
    asked: list[str] = []
    with Sender(bundle) as sender:
        while True:
            try:
                message = session.receive()
            except ConnectionLost:
                return asked
            if message.type == "need":
                sender.serve(session, message)
                asked += [bundle.manifest.files[index].path for index in message.fields.get("files", [])]
            elif message.type == "result":
                return asked


def content(tree: Path) -> dict[str, Any]:
    """Mode and content of everything below a directory."""
    found: dict[str, Any] = {}
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = (mode, None if path.is_dir() else path.read_bytes())
    return found


def left_in(root: Path) -> set[str]:
    return {path.name for path in (root / "bundles").iterdir() if path.suffix != ".lock"}
