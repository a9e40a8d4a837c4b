"""Stands in for `python3` on a compromised host of a `data push`: it sends the others a byte of their files at a time.

Everything else is the genuine agent: it has the push's credentials, its frames are valid, and each byte is the right
one. Only the words -ISc CODE are understood.
"""

import builtins
import sys
import time
from pathlib import Path

MODULE = "dtctl_agent.rooms.data.relay"
PAUSE_S = 1.0

genuine = builtins.__import__


def drip(self, index, at, end, wire):  # type: ignore[no-untyped-def]
    """Sends in place of FileServer._send."""
    with Path(self._tree.place(self._tree.manifest.files[index][0])).open("rb") as source:
        source.seek(at)
        while at < end:
            at += 1
            wire.send({"type": "file", "index": index, "encoding": "raw", "last": at == end}, source.read(1))
            time.sleep(PAUSE_S)


def compromised(*args, **fields):  # type: ignore[no-untyped-def]
    """The agent's modules come from an importer of its own."""
    found = genuine(*args, **fields)
    server = getattr(sys.modules.get(MODULE), "FileServer", None)
    if server is not None:
        server._send = drip
    return found


if __name__ == "__main__":
    builtins.__import__ = compromised
    _, code, *words = sys.argv[1:]
    sys.argv = ["-c", *words]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
