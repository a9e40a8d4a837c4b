"""Files that are looked at again and again."""

from __future__ import annotations

import os

from . import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic, Optional, Tuple, Type, TypeVar

    R = TypeVar("R")

    class _Of(Generic[R]):
        pass

else:
    R = None

    class _Of:
        def __class_getitem__(cls, _):
            return cls


class SeenRecord(_Of[R]):
    """A record in a file that others replace: read, and checked, only when it is another file than at the last look."""

    def __init__(self, path: str, kind: Type[R]) -> None:
        self._path = path
        self._kind = kind
        self._look: Optional[Tuple[int, int, int]] = None
        self._value: Optional[R] = None

    def read(self) -> Optional[R]:
        """None when there is no such file. Raises paths.Damaged. The caller must not change the value."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        look = (found.st_ino, found.st_mtime_ns, found.st_size)
        if look != self._look:
            self._value = paths.read_record(self._path, self._kind)
            self._look = look
        return self._value
