"""What an attempt ended of: the last words of its log, and what on the host may have caused it."""

from __future__ import annotations

import os
import signal

from ..host import machine, ports
from ..logs.tail import end_of, last_lines
from ..records.reasons import fact
from ..run import exits
from ..run.cause import cause_of_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..host.secrets import Masks
    from ..records.reasons import Fact
    from ..records.run_state import Ending, Left
    from ..records.spec import RecoverySpec
    from .attempt import Attempt

_MOST_NAMED = 3
_LONGEST_COMMAND = 200
"""Processes, and characters of their commands, that a reason names; state.json has them all."""


class Autopsy:
    """`tail`: the last lines of the log, secrets masked."""

    __slots__ = ("tail", "verdict")

    def __init__(self, verdict: exits.Verdict, tail: str) -> None:
        self.verdict = verdict
        self.tail = tail


def examine(attempt: Attempt, ending: Ending, recovery: RecoverySpec, masks: Masks) -> Autopsy:
    """Of an attempt of which nothing is left."""
    log = end_of(os.path.join(attempt.directory, "log"), masks)
    return Autopsy(exits.verdict(ending, cause_of_end(log, ending["code"]), recovery), last_lines(log))


def found_beside(attempt: Attempt, ending: Ending, port: Optional[int]) -> List[Fact]:
    """What else may have caused an end that nobody asked for: who listens on its port, a host without memory."""
    found: List[Fact] = []
    if port is not None and ports.listening(port):  # of the attempt nothing is left that could
        found.append(fact("port_held", port=port, text=ports.holder(port)))
    killed = machine.oom_kills() - attempt.oom_kills_before if ending["signal"] == signal.SIGKILL else 0
    if killed > 0:
        found.append(fact("out_of_memory", count=killed))
    return found


def left_behind(left: List[Left]) -> List[Fact]:
    """What a trainer went away from, as one does that puts itself into the background."""
    if not left:
        return []
    named = ["pid %d, %s" % (each["pid"], each["command"][:_LONGEST_COMMAND]) for each in left[:_MOST_NAMED]]
    more = ["and %d more" % (len(left) - _MOST_NAMED)] if len(left) > _MOST_NAMED else []
    return [fact("and"), fact("left_behind", count=len(left), text="; ".join([*named, *more]))]
