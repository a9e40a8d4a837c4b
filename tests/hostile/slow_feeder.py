"""Stands in for `python3` on a compromised host of a `data push`: it sends the others a byte of their files at a time.

Everything else is the genuine agent: it has the push's credentials, its frames are valid, and each byte is the right
one. Only the words -ISc CODE are understood.
"""

import importlib.machinery
import sys
import time
from pathlib import Path

MODULE = ".bundles.relay"
PAUSE_S = 1.0


def drip(self, index, at, end, wire):  # type: ignore[no-untyped-def]
    """In place of Relay._send."""
    with Path(self._tree.place(self._tree.manifest.files[index][0])).open("rb") as source:
        source.seek(at)
        while at < end:
            at += 1
            wire.send({"type": "file", "index": index, "encoding": "raw", "last": at == end}, source.read(1))
            time.sleep(PAUSE_S)


class Compromised(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        spec = super().find_spec(fullname, path, target) if fullname.endswith(MODULE) else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module):  # type: ignore[no-untyped-def]
                load(module)
                module.Relay._send = drip

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if __name__ == "__main__":
    sys.meta_path.insert(0, Compromised)
    _, code, *words = sys.argv[1:]
    sys.argv = ["-c", *words]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
