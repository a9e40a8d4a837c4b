"""Whether something is being saved in a run's checkpoint directories, as a sign of progress."""

from __future__ import annotations

import os
from itertools import islice

from ..host import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import List, Optional, Sequence, Tuple

LOOK_S = 5.0
_MOST_ENTRIES = 1000


class CheckpointSigns:
    """Looks when it is asked to, in a thread of its own: the file system of checkpoints may hang, and we must not."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = directories
        self._changes = 0
        self._seen: Optional[List[Tuple[str, int]]] = None
        self._next_look = 0.0
        self._looking: Optional[threading.Thread] = None

    def changes(self, now: float) -> int:
        """How often something was found to have been saved so far; another look is begun every 5 s."""
        if self._directories and now >= self._next_look and (self._looking is None or not self._looking.is_alive()):
            import threading  # rarely needed

            self._next_look = now + LOOK_S
            self._looking = threading.Thread(target=self._look, daemon=True)
            self._looking.start()
        return self._changes

    def _look(self) -> None:
        found = [sign for directory in self._directories for sign in _times(directory)]
        if self._seen is not None and found != self._seen:
            self._changes += 1
        self._seen = found


def _times(directory: str) -> List[Tuple[str, int]]:
    """When entries were last added to or removed from a directory and those in it, as every save does."""
    try:
        with os.scandir(directory) as entries:
            below = sorted(entry.path for entry in islice(entries, _MOST_ENTRIES) if files.leads_on(entry))
        return [(path, os.stat(path).st_mtime_ns) for path in [directory, *below]]
    except OSError:
        return []  # nothing has been saved yet, or it changes just now
