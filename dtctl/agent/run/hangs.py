"""Detects hangs: pure rules, for the agent that watches its own tasks and for the coordinator.

They define which reasons are hangs, which tasks wait for which (and are excused while those are away), whose
checkpoints count as whose progress, and how long a task may be silent: limits that are estimated from the run itself.
"""

from __future__ import annotations

from ..records.reasons import Fact, fact
from .policy import is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Iterable, Mapping, Optional, TypeVar

    from ..records.run_state import Entry, Hang
    from ..records.spec import Member, RecoverySpec

    T = TypeVar("T", bound=Any)

HANGS = ("hung", "still_silent", "at_barrier", "never_began")
"""The losses that are hangs: of one task, which its agent detects after `recovery.stall`, and of all tasks."""


def why_hung(hang: Hang) -> Fact:
    """The hang of a task as people read it."""
    return fact("frozen" if hang["kind"] == "frozen" else "stalled", seconds=hang["seconds"])


def trains_alone(member: Member, strategy: Optional[str]) -> bool:
    """Whether no task waits for it, and others' checkpoints are not its progress: a worker of asynchronous training."""
    return member["role"] == "worker" and not member["serves"] and strategy == "async-ps"


def is_waited_for(member: Member, strategy: Optional[str]) -> bool:
    """Whether other tasks may be silent while it is away."""
    return member["role"] != "evaluator" and not trains_alone(member, strategy)


def is_judged_by_progress(member: Member) -> bool:
    """Whether silence after it is ready is a hang; not for a server, or an evaluator of others' checkpoints."""
    return member["role"] not in ("ps", "evaluator")


IDLE_S = 120.0
"""A run whose tasks have all been idle for so long has not begun."""

NEVER_BEGAN_S = 600.0
"""A task that has not begun is restarted after this long even if it may wait for something outside the run."""

APART_S = 10.0
"""A task that was idle so much before all others is likely to be the one that they wait for."""

WAITING_AT_START = (
    "CreateSession still waiting",
    "Waiting for model to be ready",
    "tasks to connect",
    "Example stragglers",
)
"""Words in complaints of tasks that wait for a peer at their start."""


def has_begun(entries: Iterable[Entry]) -> bool:
    """Whether any task has ever reported a step."""
    return any(
        entry["step"] is not None or any(past["step"] is not None for past in entry["history"]) for entry in entries
    )


def idle_first(idle_since: Mapping[T, float]) -> Optional[T]:
    """The task that was idle well before all others, by one clock; None if there is none."""
    order = sorted((since, task) for task, since in idle_since.items())
    return order[0][1] if len(order) > 1 and order[1][0] - order[0][0] >= APART_S else None


def awaits_a_peer(entries: Collection[Entry], idle_since: Mapping[str, float]) -> bool:
    """Whether tasks of a run that has not begun, and that all are idle, wait for one of them.

    Some listen and others do not, one complains of a peer, or one was idle well before the others. What waits for
    something outside the run does so in all tasks alike. `idle_since`: of those that train, by one clock.
    """
    complaints = [entry["complaint"]["text"] for entry in entries if entry["complaint"] is not None]
    complains = any(mark in text for text in complaints for mark in WAITING_AT_START)
    return complains or len({entry["ready"] for entry in entries}) > 1 or idle_first(idle_since) is not None


AFTER_CUT_S = 60.0
GAPS_AFTER_CUT = 2
"""A task that makes no step for so long after a cut or a loss, or for so many of its longest gaps, hangs if its peers
do.
"""


def limit_after_cut(entry: Entry, recovery: RecoverySpec) -> Optional[float]:
    """None: the user's own limit applies."""
    return max(AFTER_CUT_S, GAPS_AFTER_CUT * entry["longest_gap_s"]) if recovery["stall_s"] is None else None


LEAST_LEARNT_S = 300.0
GAPS = 10
"""The estimated limit, in longest gaps between two signs of progress."""

MOST_DOUBLINGS = 10
"""The most doublings, after which the shortest limit is three days."""


def learnt_limit(longest_s: float, least_s: Optional[float] = None) -> float:
    """The limit estimated from the longest time between two signs of progress; `least_s`: the user's own limit."""
    return max(LEAST_LEARNT_S if least_s is None else least_s, GAPS * longest_s)


def is_done(step: Optional[int], target: Optional[int]) -> bool:
    """Whether the last step has been reported: a program that closes is silent."""
    return step is not None and target is not None and step >= target


def limit_of_first_step(entry: Entry, recovery: RecoverySpec, peers_took_s: float) -> Optional[float]:
    """How long a task may be silent before its first step; None: without limit, as it may report none.

    The user's own limit applies, else an estimate from its earlier attempts, or, if none has reported enough, from its
    peers: `peers_took_s` is the longest that they took for their first step, or 0. That estimate counts once, as a task
    that is silent again may never report anything.
    """
    stall_s = recovery["stall_s"]
    if recovery["first_step_s"] is not None:
        return recovery["first_step_s"]
    learnt_s = entry["first_step_s"] or (peers_took_s if has_never_hung(entry) else 0.0)
    if learnt_s:
        return learnt_limit(learnt_s, stall_s)
    if any(past["step"] is not None for past in entry["history"]):  # lost too soon to estimate it
        return learnt_limit(entry["longest_gap_s"], max(stall_s or LEAST_LEARNT_S, LEAST_LEARNT_S))
    return None


def limit_of_readiness(entry: Entry, recovery: RecoverySpec) -> Optional[float]:
    """How long a task may be silent until it is ready, estimated from its earlier attempts; None: without limit."""
    if recovery["first_step_s"] is not None:
        return recovery["first_step_s"]
    return learnt_limit(entry["ready_s"], recovery["stall_s"]) if entry["ready_s"] else None


def patience(limit_s: float, in_vain: int) -> float:
    """The limit after `in_vain` timeouts in a row: it doubles each time, as it may be too short."""
    return float(limit_s * 2.0 ** min(in_vain, MOST_DOUBLINGS))


def has_never_hung(entry: Entry) -> bool:
    return not any(past["hung"] for past in entry["history"])


def hung_in_a_row(entry: Entry) -> int:
    """The number of a task's last attempts in a row that hung."""
    own = [past for past in entry["history"] if is_own(past)]
    return next((count for count, past in enumerate(reversed(own)) if not past["hung"]), len(own))


FROZEN_S = 60.0
FROZEN_AT_MOST_S = 30.0
"""The limit for a frozen task if the user has set one: at most half of that, because tasks that wait for it are not
hung."""

PAUSE_S = 10.0
"""A longer time between two updates means that the machine, or this process, was suspended."""

ADVANCES = 2
"""After this many steps following the first, the pauses between two are known."""

LEAST_FIRST_S = 0.1
"""The least recorded time for a first step; 0 would mean that there was none."""


class Signs:
    """Observations since the last update.

    `saved`: there is a newer checkpoint, which may be another task's. `excused`: it may be silent without limit,
    because its target step is reached and it closes, or because a task that it may wait for was lost. `idle_s`: for how
    long its processes have done nothing, whatever its host receives.
    """

    __slots__ = ("excused", "frozen", "grew", "idle_s", "ready", "saved", "stepped")

    def __init__(
        self,
        ready: bool,
        frozen: bool = False,
        grew: bool = False,
        stepped: bool = False,
        saved: bool = False,
        excused: bool = False,
        idle_s: float = 0.0,
    ) -> None:
        self.ready = ready
        self.frozen = frozen
        self.grew = grew
        self.stepped = stepped
        self.saved = saved
        self.excused = excused
        self.idle_s = idle_s


class Watchdog:
    """Watches one attempt for hangs: decides only by its observations, on the monotonic clock.

    Every task is checked from the start for being frozen (stopped by a signal). Lack of progress is judged once a task
    is ready, and only if the task has shown that it makes progress: it has reported a step, or its log has grown for as
    long as the limit without a longer pause. Other tasks may have a limit for the first step, which counts from their
    start: a task that hangs before it listens keeps the others waiting. This also applies to a server, which is judged
    until it listens, and then may wait for others.

    Times of an attempt are recorded in `entry`, the task's in state.json, for later attempts.
    """

    def __init__(self, entry: Entry, member: Member, recovery: RecoverySpec, now: float) -> None:
        self.longest_gap_s = entry["longest_gap_s"]
        self.first_step_s = 0.0
        """The time that this attempt took for its first step, once others have followed."""
        self.has_waited = False
        """Whether it was excused before its first step, whose time then means little."""
        self._entry = entry
        self._recovery = recovery
        self._trains = is_judged_by_progress(member)
        self._proven = entry["step"] is not None and entry["longest_gap_s"] > 0
        self._first_s: Optional[float] = None
        self._ready_limit_s = limit_of_readiness(entry, recovery)
        self._in_vain = hung_in_a_row(entry) if recovery["first_step_s"] is None else 0
        """The number of attempts in a row that were ended for silence: restoring may take longer than the limit."""
        self._adopted = entry["step"] is not None or entry["progress"] is not None
        """Whether it worked before: the time of its first step is unknown."""
        self._began = self._looked = self._sign = self._regular_since = self._stepped_at = now
        self._first: Optional[float] = None
        self._signs = 0
        self._steps = int(entry["step"] is not None)
        self._frozen_since: Optional[float] = None

    @property
    def limit_s(self) -> float:
        stall_s = self._recovery["stall_s"]
        return learnt_limit(self.longest_gap_s) if stall_s is None else stall_s

    def is_quiet(self, now: float) -> bool:
        """Whether an expensive check for progress is worthwhile."""
        return (self._proven or self._steps > 0) and now - self._sign > self.limit_s / 4

    def update(
        self, now: float, signs: Signs, peers_took_s: float = 0.0, behind_s: Optional[float] = None
    ) -> Optional[Hang]:
        """The hang, or None. `peers_took_s`: see `limit_of_first_step`.

        `behind_s`: for so long after a cut its peers have made steps, and this task has not.
        """
        if self._recovery["stall_s"] == 0:
            return None
        self._first_s = limit_of_first_step(self._entry, self._recovery, peers_took_s)
        hung = self._judge(now, signs) or self._judge_after_cut(now, signs, behind_s)
        self._entry["longest_gap_s"] = round(self.longest_gap_s, 1)
        if not (self.has_waited and self._entry["first_step_s"]):
            self._entry["first_step_s"] = max(self._entry["first_step_s"], round(self.first_step_s, 1))
        return hung

    def _judge(self, now: float, signs: Signs) -> Optional[Hang]:
        if now - self._looked > PAUSE_S:
            self._sign = self._regular_since = now
            self._frozen_since = None
        self._looked = now
        if signs.frozen:
            return self._judge_frozen(now)
        self._frozen_since = None
        if signs.stepped and self._first is None:
            self._first = max(now - self._began, LEAST_FIRST_S)
        if not signs.ready:
            self._look_at_start(now, signs)
        elif signs.excused and not signs.stepped:
            self.has_waited = self.has_waited or self._first is None
            self._sign = self._regular_since = now
        elif signs.grew or signs.stepped or signs.saved:
            self._note(now, signs)
        if now - self._sign >= self._patience_s(signs):
            return {"kind": "silent", "seconds": now - self._sign}
        return None

    def _judge_after_cut(self, now: float, signs: Signs, behind_s: Optional[float]) -> Optional[Hang]:
        """A task that computes, loads or saves does not hang, whatever its peers do."""
        if signs.stepped:
            self._stepped_at = now
        silent_s = now - self._stepped_at
        if behind_s is None or signs.excused or not (self._proven and self._trains):
            return None
        is_idle = signs.idle_s >= behind_s / 2 and not (signs.grew or signs.saved)
        return {"kind": "silent", "seconds": silent_s} if is_idle and silent_s >= behind_s else None

    def _look_at_start(self, now: float, signs: Signs) -> None:
        """Judges a task that is not ready, which is never excused, as the others wait for it."""
        self._regular_since = now
        if signs.grew or not (self._first_s or self._ready_limit_s):
            self._sign = now

    def _patience_s(self, signs: Signs) -> float:
        first_s = (self._first_s if self._trains else None) or float("inf")
        if not signs.ready:
            return min(first_s, self._ready_limit_s or float("inf"))
        if self._proven and self._trains:
            return self.limit_s
        if self._steps and self._trains:
            return self._recovery["stall_s"] or patience(self._limit_after_first_s(), self._in_vain)
        return patience(first_s, self._in_vain)

    def _limit_after_first_s(self) -> float:
        """The limit after the first step: the second may compile, or restore, like the first."""
        return learnt_limit(max(self.longest_gap_s, self._first or 0.0))

    def _judge_frozen(self, now: float) -> Optional[Hang]:
        if self._frozen_since is None:
            self._frozen_since = now
        stall_s = self._recovery["stall_s"]
        limit = FROZEN_S if stall_s is None else min(stall_s / 2, FROZEN_AT_MOST_S)
        frozen_s = now - self._frozen_since
        return {"kind": "frozen", "seconds": frozen_s} if frozen_s >= limit else None

    def _note(self, now: float, signs: Signs) -> None:
        gap, limit = now - self._sign, self.limit_s
        if gap > limit:
            self._regular_since = now
        counts = gap <= limit or (signs.stepped and self._steps)  # not what it has waited for others
        if signs.saved or (self._signs and counts):  # a silent program may save seldom, the first time too
            self.longest_gap_s = max(self.longest_gap_s, gap)
        self._sign = now
        self._signs += 1
        self._steps += signs.stepped
        if self._steps > ADVANCES and not self._adopted:
            self.first_step_s = self._first or LEAST_FIRST_S
        self._proven = self._proven or self._steps > ADVANCES or now - self._regular_since >= limit
