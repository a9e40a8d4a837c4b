"""What Python has compiled of this program and cannot read any more is compiled again.

A disk that was full (https://github.com/python/cpython/issues/126606) or has lost its power leaves files that are cut
short. Python would fail at each of them from then on: it sees only that they are as new as the source.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import SourceFileLoader
    from types import CodeType
    from typing import Any, Optional

_PROGRAM = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


def mend_damaged() -> None:
    """From now on, for all modules of this program that are imported."""
    loader: Any = type(__spec__.loader)  # SourceFileLoader, whose module would have to be found first
    read = loader.get_code

    def get_code(self: SourceFileLoader, name: str) -> Optional[CodeType]:
        try:
            code: Optional[CodeType] = read(self, name)
        except (EOFError, ValueError, TypeError):  # what `marshal` raises
            if not _forget(self.get_filename(name)):
                raise
            code = read(self, name)
        return code

    loader.get_code = get_code


def _forget(source: str) -> bool:
    """False for what is not ours, and where there is nothing, or it cannot be removed."""
    from importlib.util import cache_from_source

    try:
        if not source.startswith(_PROGRAM + os.sep):
            return False
        os.unlink(cache_from_source(source))
    except OSError:
        return False
    return True
