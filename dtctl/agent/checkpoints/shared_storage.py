"""Whether this host sees the checkpoints that the lead writes: by a file that the lead's agent puts beside them.

Looked for by a thread: a file server that does not answer holds up whoever asks it.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from ..host import log
from ..records.spec import has_lead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..records.spec import Spec

LOOK_S = 10.0
OLD_S = 60.0
"""What was seen longer ago is not known any more."""


def unseen(spec: Spec, directories: List[str]) -> List[str]:
    """Those without the mark of the lead's agent."""
    return [path for path in directories if not os.path.exists(_mark(spec, path))]


def _mark(spec: Spec, directory: str) -> str:
    return os.path.join(directory, ".dtctl-%s" % spec["run"])


class SharedStorage:
    """Of a run with spares. `directories`: of checkpoints, as they are here."""

    def __init__(self, spec: Spec, directories: List[str]) -> None:
        self._writes = has_lead(spec)
        self._spec = spec
        self._directories = directories if spec["spares"] else []
        self._look_at = 0.0
        self._thread: Optional[threading.Thread] = None
        self._seen_at = float("-inf")
        self._unseen: List[str] = []

    def unseen(self, now: float) -> Optional[List[str]]:
        """Directories that are not the lead's; None while that is unknown."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread, self._seen_at = None, now
        if self._directories and self._thread is None and now >= self._look_at:
            self._look_at = now + LOOK_S
            thread = threading.Thread(target=self._look, daemon=True)
            with suppress(RuntimeError):  # as many threads as the user may have
                thread.start()
                self._thread = thread
        return self._unseen if now - self._seen_at < OLD_S else None

    def close(self) -> None:
        """At the end of the run nothing of it stays."""
        for directory in self._directories if self._writes else ():
            with suppress(OSError):
                os.unlink(_mark(self._spec, directory))

    def _look(self) -> None:
        if self._writes:
            for directory in self._directories:
                self._mark(directory)
        self._unseen = unseen(self._spec, self._directories)

    def _mark(self, directory: str) -> None:
        try:
            os.close(os.open(_mark(self._spec, directory), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644))
        except FileNotFoundError:
            pass  # the trainer makes it
        except OSError as error:
            log.note("checkpoints: %s" % error)
