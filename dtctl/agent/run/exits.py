"""Classes of exits: which may be tried again, and which would only be repeated.

As the restart policy `ExitCode` of Kubeflow's TFJob tells the two apart. A signal counts as 128 and its number.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence

    from ..records.reasons import Fact
    from ..records.run_state import Ending, Exit, Left
    from ..records.spec import RecoverySpec

USAGE = 2
"""What argparse, absl and most programs answer to a wrong command line."""

CANNOT_EXECUTE = 126
CANNOT_RUN = 127
"""A shell's exit code for a command that could not be run at all."""

_AFTERWORDS = 5
"""A traceback that more lines follow was only reported, and is not what the program has died of."""

_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Iteration)(?::.*)?\Z")
_OF_THE_CODE = re.compile(r"(?:ImportError|ModuleNotFoundError|SyntaxError|IndentationError|TabError)\b")


class Verdict:
    """`retry`: the exit may be tried again; `because`: what in its log speaks against it, if anything.

    `beside`: what was found on the host that may be the cause, or was left there. `killed_after_s`: it was asked to
    end, and did not within this grace period.
    """

    __slots__ = ("because", "beside", "killed_after_s", "retry")

    def __init__(self, retry: bool, because: str = "", beside: Optional[List[Fact]] = None) -> None:
        self.retry = retry
        self.because = because
        self.beside = beside or []
        self.killed_after_s: Optional[float] = None


def verdict(ending: Ending, tail: str, recovery: RecoverySpec) -> Verdict:
    """Judges an ending by its code and the end of its log; `retry` and `permanent` of `recovery` come first."""
    number = _number(ending)
    if number in recovery["retry"]:
        return Verdict(True)
    if number in recovery["permanent"] or number in (USAGE, CANNOT_EXECUTE):
        return Verdict(False)
    if number == CANNOT_RUN and ending["error"]:
        return Verdict(False)
    error = unmendable_error(tail) if number == 1 else ""
    return Verdict(not error, error)


def unmendable_error(tail: str) -> str:
    """The exception at the end of a log, if it says that code cannot be loaded; else empty."""
    for line in reversed(tail.rstrip().splitlines()[-_AFTERWORDS:]):
        if _EXCEPTION.match(line):
            return line if _OF_THE_CODE.match(line) else ""
    return ""


def told(ending: Ending, verdict: Verdict, tail: str, left_behind: Sequence[Left] = ()) -> Exit:
    """As state.json tells it."""
    return {
        "code": ending["code"],
        "signal": ending["signal"],
        "error": ending["error"],
        "why": ending["why"],
        "ended": ending["ended"],
        "retry": verdict.retry,
        "left_behind": list(left_behind),
        "killed_after_s": verdict.killed_after_s,
        "tail": tail,
    }


def _number(ending: Ending) -> Optional[int]:
    """None of an end that nobody has seen."""
    return ending["code"] if ending["signal"] is None else 128 + ending["signal"]
