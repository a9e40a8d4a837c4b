"""Classes of exits: which may be tried again, and which would only be repeated.

As the restart policy `ExitCode` of Kubeflow's TFJob tells the two apart. A signal counts as 128 and its number.
"""

from __future__ import annotations

from .cause import Cause
from .signatures import CANNOT_LOAD, OTHERS, SHORTAGE

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

_WORDLESS = (1, 2, 9, 15)
"""SIGHUP, SIGINT, SIGKILL, SIGTERM: somebody else ended the program, whatever its log says."""


class Verdict:
    """`retry`: the exit may be tried again; `cause`: what its log says of it, if anything.

    `beside`: what was found on the host that may be the cause, or was left there. `always`: it may be, however often it
    ends alike. `killed_after_s`: it was asked to end, and did not within this grace period.
    """

    __slots__ = ("always", "beside", "cause", "killed_after_s", "retry")

    def __init__(
        self, retry: bool, cause: Optional[Cause] = None, beside: Optional[List[Fact]] = None, *, always: bool = False
    ) -> None:
        self.retry = retry
        self.cause = cause or Cause()
        self.always = always or self.cause.kind in (OTHERS, SHORTAGE)
        self.beside = beside or []
        self.killed_after_s: Optional[float] = None


def verdict(ending: Ending, told: Cause, recovery: RecoverySpec) -> Verdict:
    """Judges an ending by its code and what its log tells; `retry` and `permanent` of `recovery` come first."""
    number = _number(ending)
    cause = told if ending["code"] != 0 and ending["signal"] not in _WORDLESS and not ending["error"] else Cause()
    if number in recovery["retry"]:
        return Verdict(True, cause, always=True)
    if number == USAGE and cause.kind == SHORTAGE:  # what a shell answers that cannot fork
        return Verdict(True, cause)
    if number in recovery["permanent"] or number in (USAGE, CANNOT_EXECUTE):
        return Verdict(False, cause)
    if number == CANNOT_RUN and ending["error"]:
        return Verdict(False)
    return Verdict(number != 1 or cause.kind != CANNOT_LOAD, cause)


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
