"""What counts as a hang: pure rules, for the agent that watches its own tasks and for the coordinator.

Which reasons are hangs, who waits for whom (and so is silent for good reason while that one is away), whose saves are
whose progress, and how long a silence is taken for work: limits that are learnt from what was seen of a run.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.run_state import Entry
    from ..records.spec import Member

HANGS = ("stalled", "hung", "frozen", "still_silent", "never_began")
"""Kinds of reasons for which a task that still ran was ended."""

STALLS = ("stalled", "hung", "frozen")
"""Those that an agent's own watch finds, after the time of `recovery.stall`."""

LOST_PROGRESS = ("stalled", "hung", "frozen", "still_silent")
"""Those of tasks that had made progress before: who only waits, as some programs do, makes none."""


def trains_alone(member: Member, strategy: Optional[str]) -> bool:
    """Nobody waits for it, and what others save says nothing of it: a worker of asynchronous training."""
    return member["role"] == "worker" and not member["serves"] and strategy == "async-ps"


def is_waited_for(member: Member, strategy: Optional[str]) -> bool:
    """Others may be silent for as long as it is away."""
    return member["role"] != "evaluator" and not trains_alone(member, strategy)


def is_judged_by_progress(member: Member) -> bool:
    """The silence of one that serves, or evaluates what others have saved, says nothing once it is ready."""
    return member["role"] not in ("ps", "evaluator")


LEAST_LEARNT_S = 300.0
GAPS = 10
"""The learnt limit, in longest gaps between two signs of progress."""

MOST_DOUBLINGS = 10
"""By then it is longer than anybody waits."""


def learnt_limit(longest_gap_s: float) -> float:
    """From the longest gap between two signs of progress."""
    return max(LEAST_LEARNT_S, GAPS * longest_gap_s)


def limit_of_first_step(entry: Entry, peers_took_s: float, stall_s: Optional[float]) -> Optional[float]:
    """How long a task may be silent before its first step; None: for ever, as nobody knows whether it tells any.

    Its earlier attempts teach that. Where none has told enough, its peers do: `peers_took_s` is the longest that they
    took for theirs, or 0. What they teach counts once, as a task that is silent again may never say anything.
    `stall_s`: the user's own limit for a silence.
    """
    least_s = LEAST_LEARNT_S if stall_s is None else stall_s
    learnt_s = entry["first_step_s"] or (peers_took_s if has_never_hung(entry) else 0.0)
    if learnt_s:
        return max(least_s, GAPS * learnt_s)
    if any(past["step"] is not None for past in entry["history"]):  # too soon lost to have taught how long it takes
        return max(least_s, learnt_limit(entry["longest_gap_s"]))
    return None


def limit_of_readiness(entry: Entry, first_step_s: Optional[float], stall_s: Optional[float]) -> Optional[float]:
    """How long a task may say nothing until it is ready; None: for ever. Its earlier attempts teach that.

    `first_step_s`, `stall_s`: the user's own limits.
    """
    if first_step_s is not None:
        return first_step_s
    least_s = LEAST_LEARNT_S if stall_s is None else stall_s
    return max(least_s, GAPS * entry["ready_s"]) if entry["ready_s"] else None


def patience(limit_s: float, in_vain: int) -> float:
    """A limit that was too short so many times in a row, as it may be: it doubles each time."""
    return float(limit_s * 2.0 ** min(in_vain, MOST_DOUBLINGS))


def has_never_hung(entry: Entry) -> bool:
    return not any(past["hung"] for past in entry["history"])


def hung_in_a_row(entry: Entry) -> int:
    """How many of a task's last attempts were ended because they did nothing any more."""
    own = [past for past in entry["history"] if not past["asked"]]
    return next((count for count, past in enumerate(reversed(own)) if not past["hung"]), len(own))
