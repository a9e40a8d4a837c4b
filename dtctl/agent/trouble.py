"""What goes wrong while nobody is there to be told: into agent.log, each text once."""

from __future__ import annotations

import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Set

_told: Set[str] = set()


def note(text: str) -> None:
    """Never raises: the disk of the log may be what is full."""
    if text not in _told:
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)
            _told.add(text)
