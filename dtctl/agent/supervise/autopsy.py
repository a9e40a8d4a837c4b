"""What an attempt ended of: the last words of its log, and what on the host may have caused it."""

from __future__ import annotations

import os
import re
import signal

from ..host import machine, paths, ports
from ..logs.lines import end_of, last_lines
from ..records.reasons import fact
from ..run import exits
from ..run.cause import cause_of_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Match, Optional

    from ..host.secrets import Masks
    from ..records.reasons import Fact
    from ..records.run_state import Ending, Left
    from ..records.spec import RecoverySpec
    from .attempt import Attempt

_MOST_NAMED = 3
_LONGEST_COMMAND = 200
_LONGEST_FRAME = 200
"""Processes, and characters of their commands and of a frame, that a reason names; state.json has them all."""


_STACKS = (
    re.compile(r'Thread \S+ \([^)\n]*\): "MainThread"\n\s+(?P<function>[^\n]+) \((?P<file>[^()\n]+):(?P<line>\d+)\)'),
    re.compile(
        r"(?:Current thread|Thread) 0x[0-9a-f]+[^\n]*\(most recent call first\):\n"
        r'  File "(?P<file>[^"\n]+)", line (?P<line>\d+) in (?P<function>[^\n]+)'
    ),
    re.compile(r"  thread \d+ \([^\n]*\) waits in (?P<function>(?!0\n|\?)\S+)"),
)
"""The innermost frame of the main thread as py-spy tells it, as Python's faulthandler does, and as the kernel does."""

_STACK_BYTES = 1 << 16


class Autopsy:
    """`log`: its end, secrets masked."""

    __slots__ = ("_log", "verdict")

    def __init__(self, verdict: exits.Verdict, log: str) -> None:
        self.verdict = verdict
        self._log = log

    @property
    def tail(self) -> str:
        return last_lines(self._log)

    def hung_in(self, directory: str) -> List[Fact]:
        """Where one that hung was, by what was asked of it before it was killed."""
        told = paths.tail(os.path.join(directory, "stack"), _STACK_BYTES)
        for pattern, text in zip(_STACKS, (told, self._log, told)):
            frames = list(pattern.finditer(text))
            current = [one for one in frames if one.group().startswith("Current")]
            if frames:
                return [fact("hung_in", text=_frame(current[-1] if current else frames[0]))]
        return []


def _frame(found: Match[str]) -> str:
    named = found.groupdict()
    where = "%s:%s" % (os.path.basename(named["file"]), named["line"]) if "file" in named else "the kernel"
    return " ".join(("%s (%s)" % (named["function"], where)).split())[:_LONGEST_FRAME]


def examine(attempt: Attempt, ending: Ending, recovery: RecoverySpec, masks: Masks) -> Autopsy:
    """Of an attempt of which nothing is left."""
    log = end_of(os.path.join(attempt.directory, "log"), masks)
    return Autopsy(exits.verdict(ending, cause_of_end(log, ending["code"]), recovery), log)


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
