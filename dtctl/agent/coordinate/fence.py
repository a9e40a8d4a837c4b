"""When a host that is cut off holds its tasks still, and when it ends them by itself, before others have them.

It holds them (SIGSTOP) for as long as the coordinator does not answer: a cut costs nothing but its time, and whoever
starts others in their place waits until they are held. Only where others take them without a person are they ended.

An agent sends its coordinator numbered pings, and it answers while it has its lease. What the agent knows by that is
never newer than what the coordinator has received from it, even if messages are late or lost. The coordinator itself
counts from the last message of the host, which is later.
"""

from __future__ import annotations

import time
from contextlib import suppress

from ..host import errors, paths, processes
from ..records.spec import DRIFT, KILL_S, Spec, fence_s, given_up_s, hold_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional

    from ..run.runfiles import RunFiles

PING_S = 3.0
WRITE_S = 5.0
PAUSE_S = 5.0
"""A longer gap between two calls means that the machine or the process was suspended, so a lease may be older than it
seems."""

DOUBT_S = 8.0
"""How long a lease does not count after such a gap: one that is valid afterwards was requested after the gap."""


def clock() -> float:
    """A monotonic time that includes the time in which the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Fence:
    """Holds this host's tasks still, and ends them, before another host may start them.

    Times are of `clock`. Does nothing if no host may take them.
    """

    def __init__(self, files: RunFiles, spec: Spec, now: float) -> None:
        self.limit_s = fence_s(spec)
        self.hold_s = hold_s(spec)
        self._given_up_s = given_up_s(spec) or 0.0
        self._grace_s = spec["grace_s"]
        self._files = files
        self._path = files.path("confirmed")
        self._confirmed = self._read(now) if self.is_needed else now
        self._is_closed = False
        self._write_at = now
        self._ping_at = now
        self._sent: Dict[int, float] = {}
        self._number = 0
        self._looked = now
        self._doubts_until = now
        self.confirm(self._confirmed, now)

    @property
    def is_needed(self) -> bool:
        """Whether others may be started in the place of this host's tasks."""
        return self.limit_s is not None or self.hold_s is not None

    def ping(self, now: float) -> Optional[int]:
        """The number of the ping to send now; None if none is due."""
        if not self.is_needed or now < self._ping_at:
            return None
        self._ping_at = now + PING_S
        self._number += 1
        self._sent = {number: at for number, at in self._sent.items() if number > self._number - 100}
        self._sent[self._number] = now
        return self._number

    def ping_at_once(self) -> None:
        self._ping_at = float("-inf")

    def answered(self, number: int, now: float) -> None:
        if number in self._sent:
            self.confirm(self._sent.pop(number), now)

    def look(self, has_lease: bool, now: float) -> bool:
        """Returns whether the coordinator certainly has its lease. If so, its own host's tasks are confirmed, too."""
        if now - self._looked > PAUSE_S:
            self._doubts_until = now + DOUBT_S
        self._looked = now
        is_sure = has_lease and now >= self._doubts_until
        if is_sure:
            self.confirm(now, now)
        return is_sure

    def confirm(self, at: float, now: float) -> None:
        """Records that the coordinator received a ping sent at `at`, also on the disk for the next agent."""
        if self._is_closed:
            return
        self._confirmed = max(self._confirmed, at)
        if self.is_needed and now >= self._write_at:
            self._write_at = now + WRITE_S
            try:
                paths.write_text(self._path, "%s %.3f\n" % (processes.boot_id(), self._confirmed))
            except OSError as error:  # then the next agent ends its tasks earlier
                errors.note("fence: %s" % error)

    def close(self) -> None:
        """The run has ended while this host was cut off: its tasks have no more time than they had before it knew.

        Others may have been started in their place, by somebody who has counted from the end of the run.
        """
        self._is_closed = True

    def holds(self, now: float) -> bool:
        """Whether this host's tasks must not act: others may be in their place."""
        return self.hold_s is not None and now - self._confirmed >= self.hold_s

    def grace_s(self, now: float) -> Optional[float]:
        """The grace period for the tasks if they must end now; None if they may run on."""
        silent_s = now - self._confirmed
        if self.limit_s is None or silent_s < self.limit_s:
            return None
        return min(max(self._given_up_s / DRIFT - KILL_S - silent_s, 0.0), self._grace_s)

    def _read(self, now: float) -> float:
        """The last confirmation of an earlier agent; if unknown, the start of the run.

        After a reboot, now: nothing runs.
        """
        began = now - max(0.0, time.time() - paths.modified(self._files.path("spec.json")))
        with suppress(OSError, ValueError):
            boot, at = (paths.read_text(self._path) or "").split()
            return min(float(at), now) if boot == processes.boot_id() else now
        return began
