"""Decides about a task whose process has ended: pure functions of facts.

They decide, like the restart policy `ExitCode` of Kubeflow's TFJob, which exits may be retried, and which would only be
repeated. A signal counts as 128 plus its number.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from ..records.kinds import made
from ..records.reasons import Fact, fact, why_of
from ..records.run_state import Ending, Evidence
from ..records.values import FINAL, TaskState
from .cause import ALWAYS_RETRIED, NEVER_RETRIED, OTHERS, PEER, SHORTAGE, kind_of_error, names_damaged_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Sequence, Tuple, TypeVar, Union

    from ..records.run_state import Entry, Exit, Intent, Left, Past
    from ..records.spec import RecoverySpec
    from ..records.values import Fault

    T = TypeVar("T")


USAGE = 2
"""The exit code of argparse, absl and most programs for a wrong command line."""

CANNOT_EXECUTE = 126
CANNOT_RUN = 127
"""A shell's exit code for a command that could not be run."""

_WORDLESS = (1, 2, 9, 15)
"""SIGHUP, SIGINT, SIGKILL, SIGTERM: the program did not end itself; its log does not count."""


class Verdict:
    """`retry`: the attempt may be repeated; `cause`: the cause that its log shows, if any, and `kind` what that means.

    `evidence`: what was found on the host that may be the cause. `beside`: the same, and processes left there, as
    people read it. `always`: it may be repeated, however
    often it ends the same way. `killed_after_s`: the grace period within which it did not end as requested.
    """

    __slots__ = ("always", "beside", "cause", "evidence", "killed_after_s", "kind", "retry")

    def __init__(self, retry: bool, cause: str = "", *, always: bool = False) -> None:
        self.retry = retry
        self.cause = cause
        self.kind = kind_of_error(cause) if cause else ""
        self.always = always or self.kind in ALWAYS_RETRIED
        self.evidence: Evidence = made(Evidence)
        self.beside: List[Fact] = []
        self.killed_after_s: Optional[float] = None


def verdict(ending: Ending, logged: str, recovery: RecoverySpec) -> Verdict:
    """Judges an ending by its code and the cause in its log; `retry` and `permanent` of `recovery` come first."""
    number = ending["code"] if ending["signal"] is None else 128 + ending["signal"]  # None of an unseen end
    cause = logged if ending["code"] != 0 and ending["signal"] not in _WORDLESS and ending["fault"] is None else ""
    if number in recovery["retry"]:
        return Verdict(True, cause, always=True)
    kind = kind_of_error(cause)
    if number == USAGE and kind == SHORTAGE:  # what a shell answers that cannot fork
        return Verdict(True, cause)
    if number in recovery["permanent"] or number in (USAGE, CANNOT_EXECUTE):
        return Verdict(False, cause)
    if number == CANNOT_RUN and ending["fault"] is not None:
        return Verdict(False)
    return Verdict(number != 1 or kind not in NEVER_RETRIED, cause)


def exit_record(ending: Ending, verdict: Verdict, tail: str, left_behind: Sequence[Left] = ()) -> Exit:
    """The exit as in state.json."""
    left, killed_after_s = list(left_behind), verdict.killed_after_s
    own = {"retry": verdict.retry, "left_behind": left, "killed_after_s": killed_after_s, "tail": tail}
    return {**ending, "limits": [], "evidence": verdict.evidence, **own}  # type: ignore[typeddict-item]


_CHANGES = re.compile(r"0x[0-9a-f]+|(?<=tmp)[\w-]{6,}|[0-9a-f]{8,}|\d+")


class Decision:
    """The next state of a task; `delay_s` counts for `backoff` alone, and None leaves the start to the coordinator.

    `failed_attempt`: it has failed by the end of this attempt, which is not the last; else 0.
    """

    __slots__ = ("delay_s", "failed_attempt", "restarts", "state", "why")

    def __init__(
        self,
        state: TaskState,
        why: List[Fact],
        restarts: int,
        delay_s: Optional[float] = None,
        *,
        failed_attempt: int = 0,
    ) -> None:
        self.state = state
        self.why = why
        self.restarts = restarts
        self.delay_s = delay_s
        self.failed_attempt = failed_attempt


def decide(
    why: List[Fact],
    recovery: RecoverySpec,
    jitter: float,
    *,
    restarts: int = 0,
    run_restarts: int = 0,
    shortage: bool = False,
) -> Decision:
    """Whether a lost task is restarted, and when: failed, or backoff with its delay.

    For the agent that restarts its own task, and for the coordinator: each passes its own counts, so that a budget is
    judged in one place. `jitter` is between 0 and 1. `shortage`: the host lacked something when it was lost.
    """
    run = ("after_run_restarts", run_restarts, recovery["max_run_restarts"])
    for kind, spent, most in (run, ("after_restarts", restarts, recovery["max_restarts"])):
        if spent >= most:
            return Decision("failed", [*why, *([fact(kind, count=spent)] if spent else [])], restarts)
    return Decision("backoff", why, restarts + 1, back_off(restarts + 1, recovery, jitter, shortage=shortage))


def replaced(intent: Intent, generation: int) -> bool:
    """Whether an attempt of this generation must be replaced; not once the run's outcome is decided."""
    return intent["want"] in ("run", "hold") and intent["generation"] > generation


def while_idle(entry: Entry, intent: Intent, *, may_start: bool, is_due: bool) -> Optional[Decision]:
    """The decision for a task without a process; None: no change. `is_due`: its delay is over."""
    want, state, restarts = intent["want"], entry["state"], entry["restarts"]
    if state in FINAL and not replaced(intent, entry["generation"]):
        return None
    has_failed = state == "backoff" and not was_early(entry)
    if has_failed and (want == "finish" or (want == "stop" and intent["by"] == "coordinator")):
        return Decision("failed", why_of(entry), restarts)  # backoff -> failed
    lost = _loss(entry) if state in ("pending", "backoff") and _is_failed_start(intent) else None
    if lost is not None:
        why = _why_lost(entry, lost)
        return Decision("failed", why, restarts, failed_attempt=failed_attempt(entry))  # pending, backoff -> failed
    if want == "run" and not may_start:
        return None
    ordered = _ordered(entry, intent)
    if ordered is not None:
        return ordered
    if want == "finish":
        return Decision("stopped", why_of(intent) or [fact("stopped")], restarts)  # pending, backoff -> stopped
    may_begin = state == "pending" or (not intent["early"] if was_early(entry) else is_due)
    if want != "run" or not may_begin:
        return None
    return Decision("starting", why_of(intent) if state == "pending" else [], restarts)  # pending, backoff -> starting


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
    """The decision after an exit.

    `entry` is the task's at the end of the attempt, with that in its history. `own`: its agent restarts it without the
    coordinator.
    """
    stalled = entry["state"] == "stalled"
    what = [*(why_of(entry) if stalled else why_ended(ending)), *_causes(verdict), *verdict.beside]
    restarts = entry["restarts"]
    if ending["code"] == 0 and not entry["asked"] and not stalled:
        return Decision("succeeded", what, restarts)  # running -> succeeded
    lost = _loss(entry) if _is_failed_start(intent) else None
    if lost is not None:
        why = _why_lost(entry, lost)
        return Decision("failed", why, restarts, failed_attempt=failed_attempt(entry))  # running -> failed
    ordered = _ordered(entry, intent, _killed(verdict))
    if ordered is not None:
        return ordered
    if intent["want"] == "finish":
        return Decision("failed", what, restarts)  # running -> failed: the outcome is decided
    if not verdict.retry:
        permanent = [] if ending["fault"] is not None else [fact("permanent")]
        return Decision("failed", [*what, *permanent], restarts)  # running -> failed
    if was_early(entry):
        return Decision("backoff", [*what, fact("early")], restarts)  # running -> backoff: until its peers are ready
    same = same_exits_in_a_row(entry["history"])
    if same >= recovery["repeat"] > 0 and not verdict.always:
        return Decision("failed", [*what, fact("same_way", count=same)], restarts)  # running -> failed
    if lived_s >= recovery["reset_after_s"]:
        restarts = 0
    if not own:
        return Decision("backoff", what, restarts)  # running -> backoff: until the coordinator decides
    shortage = had_shortage(ending, verdict)
    return decide(what, recovery, jitter, restarts=restarts, shortage=shortage)  # running -> failed, running -> backoff


def _is_failed_start(intent: Intent) -> bool:
    """Whether the run is stopped because its start has failed."""
    return intent["want"] == "stop" and intent["ends_as"] is not None and intent["ends_as"]["start"] == "failed"


def _loss(entry: Entry) -> Optional[Past]:
    """The end of its last attempt that has failed by itself; none if a later one has made a step or ended otherwise.

    An attempt that was stopped before its first step decides nothing: the one before it does.
    """
    ends = entry["history"][-2:]
    if len(ends) == 2 and ends[1]["asked"] and ends[1]["step"] is None:
        ends = ends[:1]
    return ends[-1] if ends and is_own(ends[-1]) and ends[-1]["code"] != 0 else None


def failed_attempt(entry: Entry) -> int:
    """The attempt that decides for a task of a failed start, if its last one was stopped; else 0."""
    lost = _loss(entry)
    return lost["attempt"] if lost is not None and lost is not entry["history"][-1] else 0


def _why_lost(entry: Entry, lost: Past) -> List[Fact]:
    """Why the attempt was lost, as its agent saw the end; the reason of a held task may be that of another task."""
    if entry["state"] == "backoff":
        return why_of(entry)
    return [*why_ended(lost), *([fact("cause", text=lost["cause"])] if lost["cause"] else [])]


def _ordered(entry: Entry, intent: Intent, killed: Sequence[Fact] = ()) -> Optional[Decision]:
    """The decision that the intent demands, in any state; None if it demands neither an end nor a new attempt."""
    if intent["want"] == "stop":
        why = why_of(intent) or [fact("stopped")]
        return Decision("stopped", [*killed, *why], entry["restarts"])  # any -> stopped
    if not replaced(intent, entry["generation"]):
        return None
    state: TaskState = "pending" if intent["want"] == "hold" else "starting"  # any -> pending, any -> starting
    return Decision(state, [*killed, *(why_of(intent) or [fact("restart")])], intent["restarts"])


def was_early(entry: Entry) -> bool:
    """Whether its last attempt failed before the tasks that it needs were ready."""
    return bool(entry["history"]) and entry["history"][-1]["early"]


def _killed(verdict: Verdict) -> List[Fact]:
    return [fact("killed_after", seconds=verdict.killed_after_s)] if verdict.killed_after_s is not None else []


def had_shortage(ending: Ending, verdict: Verdict) -> bool:
    """Whether the host lacked something that passes: processes, or memory."""
    return ending["shortage"] or verdict.kind == SHORTAGE


def is_own(past: Past) -> bool:
    """Whether an exit counts: dtctl had not requested it, and the tasks that it needs were ready."""
    return not (past["asked"] or past["early"])


def lost_peer(text: str) -> bool:
    """Whether an end with this cause may follow from that of another task, with which it has lost its connection."""
    return bool(text) and kind_of_error(text) == PEER


CLOCKS_AGREE_S = 1.0
"""The most by which the clocks of hosts are taken to differ, and in which hosts report an end."""

FOLLOWS_S = 30.0
"""A task that has lost a peer ends within this time: TensorFlow notices a silent one after 20 s."""


def may_follow(ended: float, cause_ended: float) -> bool:
    """Whether a task that lost a peer and ended then may have lost the one that ended at the other time."""
    return ended - FOLLOWS_S <= cause_ended <= ended + CLOCKS_AGREE_S


def near(causes: Sequence[Tuple[float, str]], ended: float) -> Sequence[Tuple[float, str]]:
    """Those among sorted ends of tasks from which the end of a task that lost a peer, and ended then, may follow.

    Two are enough: at most one of them is its own.
    """
    first = bisect_left(causes, (ended - FOLLOWS_S, ""))
    return [one for one in causes[first : first + 2] if may_follow(ended, one[0])]


def causes_first(ends: Sequence[T], at: Callable[[T], float], follows: Callable[[T], bool]) -> List[T]:
    """Ends by their times, except that one which only lost a peer comes after the end that it may follow from."""
    causes = sorted(at(end) for end in ends if not follows(end))

    def key(one: T) -> Tuple[float, bool]:
        last = bisect_right(causes, at(one) + CLOCKS_AGREE_S) - 1 if follows(one) else -1
        return max(at(one), causes[last]) if last >= 0 else at(one), follows(one)

    return sorted(ends, key=key)


def same_exits_in_a_row(history: Sequence[Past]) -> int:
    """The number of last attempts with the same exit, by the causes in their logs, none with a new step."""
    own = [past for past in history if is_own(past)]
    if not own or not own[-1]["cause"]:
        return 0
    return _in_a_row([(_how_it_ended(past), past["step"]) for past in own])


def same_losses_in_a_row(losses: Sequence[Tuple[str, Optional[int]]]) -> int:
    """The same for tasks that restart together, whichever of them is lost: causes, and the run's step at each loss.

    0 if the last cause says nothing of the program, as that of a task that lost a peer.
    """
    if not losses or not losses[-1][0] or kind_of_error(losses[-1][0]) in ALWAYS_RETRIED:
        return 0
    return _in_a_row([(fingerprint(cause), step) for cause, step in losses])


def _in_a_row(ends: Sequence[Tuple[object, Optional[int]]]) -> int:
    """How many of the last ends, each with its step, are as the last one; the newest with a new step is the first."""
    same = 0
    for how, step in reversed(ends):
        if how != ends[-1][0]:
            break
        same += 1
        before = [one for _, one in ends[: len(ends) - same] if one is not None]
        if step is not None and step > max(before, default=-1):
            break
    return same


def _how_it_ended(past: Past) -> Tuple[object, ...]:
    """The exit without parts that differ between exits of the same kind: addresses, pids, times, temporary names."""
    return (past["code"], past["signal"], fingerprint(past["cause"]))


def fingerprint(cause: str) -> str:
    """The same for causes that differ only in numbers, or in names of temporary files."""
    return _CHANGES.sub("", cause)


def _causes(verdict: Verdict) -> List[Fact]:
    text = verdict.cause
    lacks = [fact("shortage")] if verdict.kind == SHORTAGE else []
    damaged = [fact("cannot_restore")] if names_damaged_file(text) else []
    return [fact("cause", text=text), *lacks, *damaged] if text else []


SHORTAGE_MIN_S = 5.0
SHORTAGE_MAX_S = 60.0
"""The delays after a shortage of the machine, which double from the first of these to the second: others must end."""


def back_off(restarts: int, recovery: RecoverySpec, jitter: float, *, shortage: bool = False) -> float:
    """Seconds before restart number `restarts` (from 1): none, then doubling, limited, and up to a tenth longer."""
    doublings = min(restarts - 2, 60)  # the limit is reached long before; floats end
    delay: float = min(recovery["backoff_min_s"] * 2.0**doublings, recovery["backoff_max_s"]) if restarts > 1 else 0.0
    if shortage:
        delay = max(delay, min(SHORTAGE_MIN_S * 2.0 ** max(doublings + 1, 0), SHORTAGE_MAX_S))
    return delay * (1 + jitter / 10)


def why_ended(ending: Union[Ending, Past]) -> List[Fact]:
    """An exit as facts. The signal that ended one that hung is dtctl's own."""
    if ending.get("hung"):
        return list(ending.get("why") or [fact("hung")])
    if ending.get("fault") is not None:
        return list(ending["why"])
    if ending["signal"] is not None:
        return [fact("killed", signal=ending["signal"])]
    return [fact("exit_unknown") if ending["code"] is None else fact("exited", code=ending["code"])]


def is_shortage(error: OSError) -> bool:
    """Whether a start failed because the host lacked something that passes: processes, or memory."""
    return kind_of_error(error.strerror or "") == SHORTAGE


def why_of_error(kind: str, error: OSError, **fields: str) -> List[Fact]:
    """Why a start failed, by the system's own error."""
    lacks = [fact("shortage")] if is_shortage(error) else []
    return [fact(kind, text=error.strerror or "", **fields), *lacks]


def unknown_exit(ended: Optional[float], fault: Fault, *why: Fact, shortage: bool = False) -> Ending:
    """The exit of a process that ended unseen, or could not be started."""
    return made(Ending, fault=fault, shortage=shortage, why=list(why), ended=ended)


def is_early(ending: Ending, verdict: Verdict, entry: Entry, *, early: bool, lately: bool) -> bool:
    """An end that is not the task's own, as those that it needs were not ready: it has lacked them.

    `early`: they are not; `lately`: they have become so a moment ago, and it may not have found them yet.
    """
    if ending["code"] == 0 or entry["asked"] or entry["step"] is not None:
        return False
    return early or (lately and verdict.kind in (OTHERS, PEER))
