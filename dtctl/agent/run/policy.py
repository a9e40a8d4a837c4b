"""What happens to a task whose process has ended: pure functions of facts."""

from __future__ import annotations

import signal

from ..records.words import brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Union

    from ..records.run_state import Ending, Entry, Intent, Past
    from ..records.spec import RecoverySpec
    from ..records.words import TaskState
    from .exits import Verdict

FINAL = ("succeeded", "failed", "stopped")

KEEPER_KILLED = "exit status unknown (its keeper was killed)"
HOST_RESTARTED = "exit status unknown (the host was restarted)"


class Decision:
    """The next state of a task; `delay_s` counts for `backoff` alone, and None leaves the start to the coordinator."""

    __slots__ = ("delay_s", "reason", "restarts", "state")

    def __init__(self, state: TaskState, reason: str, restarts: int, delay_s: Optional[float] = None) -> None:
        self.state = state
        self.reason = reason
        self.restarts = restarts
        self.delay_s = delay_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self._fields() == other._fields()

    __hash__ = None  # type: ignore[assignment]

    def _fields(self) -> tuple[object, ...]:
        return (self.state, self.reason, self.restarts, self.delay_s)

    def __repr__(self) -> str:
        return "Decision(%r, %r, %r, %r)" % self._fields()


def replaced(intent: Intent, generation: int) -> bool:
    """True when an attempt of this generation is to give way to another; not once the run's outcome is decided."""
    return intent["want"] in ("run", "hold") and intent["generation"] > generation


def after_exit(
    ending: Ending,
    verdict: Verdict,
    entry: Entry,
    intent: Intent,
    lived_s: float,
    recovery: RecoverySpec,
    own: bool,
    jitter: float,
) -> Decision:
    """What follows an ending.

    `entry` is the task's as it was when the attempt ended. `own`: it is restarted here without asking.
    `jitter` lies between 0 and 1.
    """
    stalled = entry["state"] == "stalled"
    what = entry["reason"] if stalled else describe_exit(ending)
    if verdict.beside:
        what = "%s; %s" % (what, verdict.beside)
    restarts = entry["restarts"]
    if ending["code"] == 0 and not entry["asked"] and not stalled:
        return Decision("succeeded", what, restarts)  # running -> succeeded
    if intent["want"] == "stop":
        return Decision("stopped", intent["reason"] or "stopped", restarts)  # any -> stopped
    if replaced(intent, entry["generation"]):
        state: TaskState = "pending" if intent["want"] == "hold" else "starting"  # any -> pending, any -> starting
        return Decision(state, intent["reason"] or "restart asked for", intent["restarts"])
    if intent["want"] == "finish":
        return Decision("failed", what, restarts)  # running -> failed: the outcome is decided
    if not verdict.retry:
        return Decision("failed", _permanent(what, ending, verdict), restarts)  # running -> failed
    if lived_s >= recovery["reset_after_s"]:
        restarts = 0
    if not own:
        return Decision("backoff", what, restarts)  # running -> backoff: until the coordinator decides
    if restarts >= recovery["max_restarts"]:
        return Decision("failed", _past_budget(what, restarts), restarts)  # running -> failed
    restarts += 1
    return Decision("backoff", what, restarts, back_off(restarts, recovery, jitter))  # running -> backoff


def _permanent(what: str, ending: Ending, verdict: Verdict) -> str:
    if ending["error"]:
        return what
    because = " (%s)" % verdict.because if verdict.because else ""
    return "%s%s, which is not tried again" % (what, because)


def _past_budget(what: str, restarts: int) -> str:
    if not restarts:
        return what
    return "%s, after %d restart%s" % (what, restarts, "" if restarts == 1 else "s")


def back_off(restarts: int, recovery: RecoverySpec, jitter: float) -> float:
    """Seconds before restart number `restarts` (from 1): doubling, limited, and up to a tenth longer."""
    doublings = min(restarts - 1, 60)  # the limit is reached long before; floats end
    delay: float = min(recovery["backoff_min_s"] * 2.0**doublings, recovery["backoff_max_s"])
    return delay * (1 + jitter / 10)


def describe_exit(ending: Union[Ending, Past]) -> str:
    """An exit in words."""
    error = ending.get("error")
    if error:
        return str(error)
    if ending["signal"] is not None:
        return "killed by %s" % signal_name(ending["signal"])
    return "exit code %s" % ending["code"]


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def unknown_exit(ended: Optional[float], why: str) -> Ending:
    """The exit of a process that ended unseen."""
    return {"code": None, "signal": None, "error": brief(why), "ended": ended}
