"""Beats: what a session sends while a request has nothing else to say, so that its host is not taken for hung.

A thread says them, not the loops that work, because most of what takes long has no loop of ours in it: the checksum of
a large file, the removal of a million, a read from a file server, fsync. So a beat tells that the machine, the process
and the connection are well, and not that the work gets on. What hangs in the kernel would beat for ever: that is why a
beat says what the session is at, and for how long, and leaves the rest to whoever reads it.
"""

from __future__ import annotations

import _thread
import time

from .wire import Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.answers import Alive
    from .wire import Wire

BEAT_S = 5.0


class Beats:
    """Beats of one conversation; none while it is the controller's turn to speak."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._at: Optional[str] = None
        self._since = 0.0
        self._begun = False

    def at(self, what: Optional[str]) -> None:
        """What the session is at from now on; None: it waits for the controller."""
        self._since = time.monotonic()
        self._at = what
        if what is not None and not self._begun:
            self._begun = True
            _thread.start_new_thread(self._beat, ())

    @property
    def now_at(self) -> Optional[str]:
        return self._at

    def _beat(self) -> None:
        pause_s = BEAT_S
        try:
            while True:
                time.sleep(pause_s)
                what = self._at
                pause_s = BEAT_S
                if what is not None:
                    beat: Alive = {"at": what, "for_s": max(0.0, round(time.monotonic() - self._since, 1))}
                    pause_s = self._wire.fill_silence(dict(beat, type="beat"), BEAT_S)
        except (Gone, ValueError):
            pass  # ValueError: the stream was closed
