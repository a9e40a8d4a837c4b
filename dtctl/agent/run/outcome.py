"""The outcome of a run by the states of its tasks: pure functions of records.

The coordinator decides by them, and so does a controller that cannot query it: the same outcome from the same facts.
"""

from __future__ import annotations

from ..records.reasons import Fact, because, fact, why_of
from ..records.values import FINAL, Outcome, TaskState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Iterable, List, Mapping, Optional, Sequence

    from ..records.answers import Checkpoint
    from ..records.run_state import Entry, Intent, Past, RunEnd
    from ..records.spec import Member
    from ..records.values import StartEnd
    from ..records.whole_run import Condition, GoneHost


DECIDED = ("Succeeded", "Failed", "Stopped")
"""The final conditions of a run, in TFJob's terms (kubeflow training-operator, JobConditionType), and Stopped."""


class Facts:
    """A run's tasks, as far as they are known; in the order of the roster.

    A task is lost if its host has never connected or cannot be queried: it has no entry, or no intent, and counts as
    neither succeeded nor failed nor stopped. Tasks in `absent`, of hosts without which the run continues, decide
    nothing. Tasks in `away`, of hosts that were connected and cannot be queried now, do not count as running.
    """

    __slots__ = ("away", "deciding", "entries", "fail_fast", "intents", "present", "roster", "wanted")

    def __init__(
        self,
        roster: Mapping[str, Member],
        fail_fast: bool,
        entries: Mapping[str, Entry],
        intents: Mapping[str, Intent],
        absent: Collection[str] = (),
        away: Collection[str] = (),
    ) -> None:
        self.away = away
        self.roster = roster
        self.fail_fast = fail_fast
        self.entries = {task: entries[task] for task in roster if task in entries and task in intents}
        self.intents = intents
        self.present = [task for task in roster if task not in absent]
        self.wanted = [task for task in self.present if not (task in intents and is_left_out(intents[task]))]
        """The tasks that take part in the run now; others of `present` decide nothing."""
        self.deciding = [task for task in self.wanted if roster[task]["decides"]]

    def in_state(self, *states: TaskState) -> List[str]:
        return [task for task, entry in self.entries.items() if entry["state"] in states]

    def current(self, task: str) -> bool:
        """Whether its entry is of the wanted generation. The exit of an older one means nothing, not even exit 0."""
        return self.entries[task]["generation"] >= self.intents[task]["generation"]


class Judgement:
    """The condition of a run, and why: the fields of a Condition, except its time.

    `cause`: in a failed run, the task that failed first.
    """

    __slots__ = ("cause", "gone", "hung", "kind", "of", "replaced", "start", "unready", "why")

    def __init__(
        self,
        kind: Outcome,
        why: List[Fact],
        cause: Optional[str] = None,
        start: Optional[StartEnd] = None,
        *,
        hung: bool = False,
        replaced: bool = False,
        gone: Optional[GoneHost] = None,
        unready: Sequence[str] = (),
        of: Optional[int] = None,
    ) -> None:
        self.kind = kind
        self.why = why
        self.cause = cause
        self.start = start
        self.hung = hung
        self.replaced = replaced
        self.gone = gone
        self.unready = unready
        self.of = of

    def condition(self, since: float) -> Condition:
        """The condition as cluster.json has it."""
        return {
            "type": self.kind,
            "cause": self.cause,
            "since": since,
            "start": self.start,
            "hung": self.hung,
            "replaced": self.replaced,
            "gone": self.gone,
            "unready": [*self.unready],
            "of": self.of,
            **because(self.why),
        }

    def __repr__(self) -> str:
        return "Judgement(%r, %r, %r)" % (self.kind, self.why, self.cause)


def is_left_out(intent: Intent) -> bool:
    """Whether it is held while the others continue: its job is scaled down, or its host was left out or drained."""
    return intent["want"] == "hold" and any(
        one["kind"] in ("scaled_down", "left_out", "drained_alone", "bad_host") for one in intent["holds"]
    )


def decided(facts: Facts) -> Optional[Judgement]:
    """The outcome that is certain already. An end that a task came to by itself was before any stop."""
    if _has_succeeded(facts):
        return Judgement("Succeeded", _why_succeeded(facts))
    ordered = _ordered(facts)
    if ordered is not None and ordered.kind == "Failed":
        return ordered
    failed = _first_failure(facts)
    if failed is not None:
        entry = facts.entries[failed]
        why = [fact("task_failed", task=failed), *_why_failed(entry)]
        return Judgement("Failed", why, failed, hung=any(past["hung"] for past in _failures(entry)[-1:]))
    return ordered


def _ordered(facts: Facts) -> Optional[Judgement]:
    """The outcome of a run of which all tasks are ordered to stop, by the last of these orders."""
    if not all(task in facts.intents and _want(facts, task) == "stop" for task in facts.present):
        return None
    last = max((facts.intents[task] for task in facts.present), key=lambda intent: intent["version"])
    return by_request(why_of(last), last["ends_as"], facts.roster)


def by_request(why: List[Fact], ends_as: Optional[RunEnd], tasks: Collection[str]) -> Judgement:
    """The outcome of a run of these tasks that is stopped by such an order: of a failed start, the task to blame."""
    start = ends_as["start"] if ends_as is not None else None
    if ends_as is not None and start == "failed" and ends_as["cause"] in tasks:
        return Judgement("Failed", why, ends_as["cause"], start, hung=ends_as["hung"])
    replaced = ends_as is not None and ends_as["replaced"]
    return Judgement("Stopped", why or [fact("stopped")], start=start, replaced=replaced)


def decided_elsewhere(facts: Facts) -> Optional[Judgement]:
    """The outcome by the reachable tasks, if all of them have ended as ordered: the others have the same orders.

    The caller cannot query the coordinator. The orders show its decision; an order of a person means a stop.
    """
    unknown = [task for task in facts.present if task not in facts.entries]
    ordered = [facts.intents[task] for task in facts.present if task in facts.entries]
    ended = all(facts.entries[task]["state"] in FINAL for task in facts.present if task in facts.entries)
    if not (ordered and unknown and ended) or any(intent["want"] != "stop" for intent in ordered):
        return None
    last = max(ordered, key=lambda intent: intent["version"])
    hosts = list(dict.fromkeys(facts.roster[task]["host"] for task in unknown))
    unreachable = fact("hosts_unreachable", count=len(hosts), text=", ".join(hosts))
    why, ends_as = [*(why_of(last) or [fact("stopped")]), unreachable], last["ends_as"]
    if ends_as is not None and (ends_as["cause"] is None or ends_as["cause"] in facts.roster):
        return Judgement(ends_as["outcome"], why, ends_as["cause"], hung=ends_as["hung"], replaced=ends_as["replaced"])
    return Judgement("Stopped", why)


def standing(facts: Facts, restarting: Optional[List[Fact]]) -> Optional[Judgement]:
    """The condition of a run without an outcome; None when none of its tasks runs. `restarting`: why, if tasks do."""
    for task in facts.deciding:  # stopped by a person: without it the run does not end by itself
        if task in facts.entries and _want(facts, task) == "stop" and facts.entries[task]["state"] == "stopped":
            return Judgement("Stopped", why_of(facts.intents[task]) or [fact("task_stopped", task=task)])
    if restarting is not None:
        return Judgement("Restarting", restarting)
    held = _held(facts)
    if held is not None:
        kind: Outcome = "Suspended" if any(hold["kind"] == "drained" for hold in held["holds"]) else "Restarting"
        return Judgement(kind, why_of(held))
    return running(facts) if _running(facts) else None


def running(facts: Facts) -> Judgement:
    """The condition of a run that goes on, by the number of tasks that run now, which may be 0."""
    of = len(facts.roster) - len(facts.present) + len(facts.wanted)
    return Judgement("Running", [fact("tasks_run", count=len(_running(facts)), of=of)], of=of)


def _running(facts: Facts) -> List[str]:
    return [task for task in facts.in_state("running", "stalled") if task not in facts.away]


def _held(facts: Facts) -> Optional[Intent]:
    """The first intent of the tasks that train and have not ended, where drained hosts hold all of these."""
    trains = [task for task in facts.wanted if task in facts.entries and facts.roster[task]["role"] != "evaluator"]
    going = [task for task in trains if facts.entries[task]["state"] not in FINAL]
    if not going or any(_want(facts, task) != "hold" for task in going):
        return None
    from . import drains  # few runs need it

    return facts.intents[going[0]] if all(drains.is_drained(facts.intents[task]) for task in going) else None


def waits_for_restart(facts: Facts) -> Optional[List[Fact]]:
    """The first task that will restart, and why: other losses are known only to the coordinator."""
    waiting = facts.in_state("backoff")[:1]
    return next(([fact("task_lost", task=task), *_how(facts.entries[task])] for task in waiting), None)


_NEARLY = 0.9
"""The share of the target that the logs have to show: programs print one step of many."""


def target_warning(target: Optional[int], newest: Optional[Checkpoint], logged: Optional[int]) -> Optional[Fact]:
    """A warning about a success that does not reach the requested step: by its checkpoint, or else by its logs."""
    if target is None:
        return None
    if newest is not None and newest["step"] is not None:
        return fact("short_of_target", step=newest["step"], of=target) if newest["step"] < target else None
    if logged is not None and logged < _NEARLY * target:
        return fact("steps_short", step=logged, of=target)
    return None


def _has_succeeded(facts: Facts) -> bool:
    """Whether every deciding task ended by itself: an exit that dtctl requested is never a success in an entry."""
    return bool(facts.deciding) and all(_succeeded(facts, task) for task in facts.deciding)


def _succeeded(facts: Facts, task: str) -> bool:
    return task in facts.entries and facts.entries[task]["state"] == "succeeded" and facts.current(task)


def _why_succeeded(facts: Facts) -> List[Fact]:
    alone = len(facts.deciding) == 1
    return [fact("lead_finished", task=facts.deciding[0]) if alone else fact("workers_finished")]


def _first_failure(facts: Facts) -> Optional[str]:
    """The task whose failure fails the run: of several the one that has been failing the longest.

    Where that one has only lost a peer, it is the task that was lost before it, whether that may restart or not.
    """
    from . import policy  # imported late: most callers need no failure's start

    fatal = [task for task in facts.in_state("failed") if facts.current(task) and _is_fatal(facts, task)]
    if not fatal:
        return None
    first = min(fatal, key=lambda task: failing_since(facts.entries[task]))
    if not _lost_peer(facts.entries[first]):
        return first
    since = failing_since(facts.entries[first])
    causes = {
        task: past["ended"]
        for task in facts.present
        for past in _failures(facts.entries.get(task))
        if not policy.lost_peer(past["cause"]) and policy.may_follow(since, past["ended"])
    }
    return min(causes, key=lambda task: causes[task], default=first)


def _lost_peer(entry: Entry) -> bool:
    from . import policy

    return any(policy.lost_peer(past["cause"]) for past in _failures(entry)[-1:])


def _failures(entry: Optional[Entry]) -> List[Past]:
    """Its attempts that ended by themselves, and not well."""
    from . import policy

    return [past for past in entry["history"] if policy.is_own(past) and past["code"] != 0] if entry else []


def _is_fatal(facts: Facts, task: str) -> bool:
    """Whether a task's failure fails the run.

    Without `fail_fast` the others continue as long as the run can succeed.
    """
    member = facts.roster[task]
    if not member["vital"] or not (facts.fail_fast or member["decides"]):
        return False
    return _want(facts, task) in ("run", "hold") or _cannot_have_succeeded(facts)


def _cannot_have_succeeded(facts: Facts) -> bool:
    """Whether some deciding task has not succeeded; otherwise stopped tasks may have failed after the success."""
    return any(task in facts.entries and not _succeeded(facts, task) for task in facts.deciding)


def failing_since(entry: Entry) -> float:
    """When the unbroken series of failures began that led to the final one: a cause fails before its followers do."""
    from . import policy

    since = entry["since"] or 0.0
    for past in reversed(entry["history"]):
        if not policy.is_own(past) or past["code"] == 0:
            break
        since = past["ended"]
    return since


def _how(entry: Entry) -> List[Fact]:
    from . import policy

    return why_of(entry) or (policy.why_ended(entry["exit"]) if entry["exit"] else [fact("exit_unknown")])


def _why_failed(entry: Entry) -> List[Fact]:
    """The same of one that may have been restarted since."""
    if entry["state"] in ("failed", "backoff") or not _failures(entry):
        return _how(entry)
    from . import policy

    last = _failures(entry)[-1]
    return [*policy.why_ended(last), *([fact("cause", text=last["cause"])] if last["cause"] else [])]


def _want(facts: Facts, task: str) -> str:
    return facts.intents[task]["want"]


def without_servers(roster: Iterable[Member], tasks: Iterable[str]) -> List[str]:
    """The tasks that are not servers."""
    servers = {member["task"] for member in roster if member["serves"]}
    return [task for task in tasks if task not in servers]
