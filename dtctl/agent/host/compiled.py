"""Imports the agent's modules from one file of code that this version of Python has compiled (keeping.py).

A module is compiled when a process first needs it, and `save` adds it to the file. The head of that file contains
this text, which runs before any module can be imported.
"""

from __future__ import annotations

import marshal
import os
import sys
from _blake2 import blake2b
from _frozen_importlib import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Callable, Dict, Mapping, Optional, Tuple

    Index = Mapping[str, Tuple[str, int, int, bytes]]
    """A module's name -> its path in the program, the place of its code in the file's body, and the code's digest.

    A module without code has the size 0.
    """

DIGEST_BYTES = 16
FIXED_BYTES = 24
"""The size of the data before the head: Python's number for its code, the head's size and digest."""


class Modules:
    """Finder and loader. A module whose code is missing or damaged is compiled from the program's own text."""

    def __init__(self, path: str, body: int, index: Index, sources: Callable[[], Dict[str, str]]) -> None:
        self._path = path
        self._body = body
        self._index = index
        self._sources = sources
        self._read_from: Tuple[int, int] = (0, 0)
        """The inode and time of the file that the index was last read from here."""
        self._texts: Dict[str, str] = {}
        self._made: Dict[str, bytes] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> Optional[ModuleSpec]:
        if name not in self._index:
            return None
        place = os.path.join(os.path.dirname(self._path), self._index[name][0])
        spec = ModuleSpec(name, self, origin=place, is_package=place.endswith("/__init__.py"))  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> CodeType:
        data = self._code(name) or (self._code(name) if self._read_index() else b"")
        if data:
            code: CodeType = marshal.loads(data)
            return code
        file = self._index[name][0]
        self._texts = self._texts or self._sources()
        text = self._texts.get(file)
        if text is None:
            raise ImportError("the agent's program on this host is damaged: %s" % os.path.dirname(self._path))
        made: CodeType = compile(text, file, "exec", dont_inherit=True)
        self._made[name] = marshal.dumps(made)
        return made

    def get_source(self, name: str) -> Optional[str]:
        """The module's source, also for tracebacks."""
        return self._sources().get(self._index[name][0])

    def save(self) -> None:
        """Adds the modules that this process compiled to the file; one process at a time does."""
        if self._made:
            from importlib import import_module

            keeping, locks = (import_module("dtctl_agent.host." + name) for name in ("keeping", "locks"))
            with locks.closing(locks.await_lock(self._path, exclusive=True, patience_s=locks.PATIENCE_S)) as lock:
                kept = self._kept()
                if lock is not None and not self._made.keys() <= kept.keys():
                    content = keeping.compiled(self._texts or self._sources(), {**kept, **self._made})
                    keeping.write(self._path, content)
        self._texts, self._made = {}, {}

    def _kept(self) -> Dict[str, bytes]:
        self._read_index()
        codes = {name: self._code(name) for name in self._index}
        return {name: code for name, code in codes.items() if code}

    def _code(self, name: str) -> bytes:
        """The code of a module; empty if it is missing at the place in the index."""
        _, offset, size, digest = self._index[name]
        data = self._read(self._body + offset, size) if size else b""
        return data if data and _digest(data) == digest else b""

    def _read_index(self) -> bool:
        """Reads it again where another process has replaced the file; whether it has."""
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        file = (found.st_ino, found.st_mtime_ns)
        if file == self._read_from:
            return False
        fixed = self._read(0, FIXED_BYTES)
        end = FIXED_BYTES + int.from_bytes(fixed[4:8], "little")
        head = self._read(FIXED_BYTES, end - FIXED_BYTES)
        if not head or _digest(head) != fixed[8:]:
            return False
        self._read_from, self._body, self._index = file, end, marshal.loads(head)[1]
        return True

    def _read(self, offset: int, size: int) -> bytes:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(file, size, offset)
        finally:
            os.close(file)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def install(path: str, body: int, index: Index, sources: Callable[[], Dict[str, str]]) -> None:
    finder: Any = Modules(path, body, index, sources)
    sys.meta_path.insert(0, finder)
