"""Imports the agent's modules from one file of code that this version of Python has compiled (keeping.py).

It stands in the head of that file, and is run before there is anything to import.
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
    """By a module's name: its path in the program, and where its code is in the file's body, and the code's digest."""

DIGEST_BYTES = 16


class Modules:
    """Finder and loader. A module whose code was damaged is compiled from the program's own text."""

    def __init__(self, path: str, body: int, index: Index, sources: Callable[[], Dict[str, str]]) -> None:
        self._path = path
        self._body = body
        self._index = index
        self._sources = sources

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
        file, offset, size, digest = self._index[name]
        data = self._read(self._body + offset, size)
        if blake2b(data, digest_size=DIGEST_BYTES).digest() == digest:
            code: CodeType = marshal.loads(data)
            return code
        from contextlib import suppress

        with suppress(OSError):
            os.unlink(self._path)  # the next start compiles all of it anew
        text = self.get_source(name)
        if text is None:
            raise ImportError("the agent's program on this host is damaged: %s" % os.path.dirname(self._path))
        return compile(text, file, "exec", dont_inherit=True)

    def get_source(self, name: str) -> Optional[str]:
        """For tracebacks, too."""
        return self._sources().get(self._index[name][0])

    def _read(self, offset: int, size: int) -> bytes:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(file, size, offset)
        finally:
            os.close(file)


def install(path: str, body: int, index: Index, sources: Callable[[], Dict[str, str]]) -> None:
    finder: Any = Modules(path, body, index, sources)
    sys.meta_path.insert(0, finder)
