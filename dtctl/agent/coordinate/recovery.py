"""Decides which tasks restart after a loss, and when: by the scope of the lost task, within the budgets."""

from __future__ import annotations

from ..records.kinds import made
from ..records.reasons import Fact, because, fact, said, why_of
from ..records.values import FINAL
from ..records.whole_run import Collateral, is_open
from ..run import policy, run_events
from ..run.cause import names_damaged_file
from ..run.hangs import HANGS
from ..run.outcome import Judgement
from . import stalls
from .repairs import Repairs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

    from ..records.answers import Checkpoint
    from ..records.run_state import Entry, Past, Repaired
    from ..records.values import Loss, Repair, Scope
    from ..records.whole_run import Incident
    from .view import LostAttempt, View

    Cause = Tuple[float, str]
    """When a task has ended with which others may have lost their connections, and which."""

    Lost = Union[Past, Incident, LostAttempt]
    """A loss: an attempt, or an incident whose restart did not help."""


class Services:
    """`newest_checkpoint`: the newest complete one on the lead's host, as status shows it, None if there is none; one
    without a step when that is unknown. It takes no longer than a few seconds. `random`: between 0 and 1.
    """

    def __init__(self, newest_checkpoint: Callable[[], Optional[Checkpoint]], random: Callable[[], float]) -> None:
        self.newest_checkpoint = newest_checkpoint
        self.random = random


GANG_GRACE_S = 1.0
"""A task that is restarted with a lost peer has nothing left to save: usually it hangs on that peer."""

PS_END_LIMIT_S = 10.0
"""A ps that has ended well by then, and the run has not, has left the others alone."""

TRAINED_S = 30.0
"""A lead that has run for so long may have trained, though it has reported no step."""


AWAIT_CAUSE_S = policy.CLOCKS_AGREE_S
"""A task that has lost a peer is judged after the peer's end, which its host may report later."""


class Recovery:
    """`record(kind, **fields)` adds to the run's history. Times: `now` monotonic, `wall` epoch seconds."""

    def __init__(self, view: View, services: Services, record: Callable[..., None]) -> None:
        self._view = view
        self._services = services
        self._record = record
        self._due: Dict[int, float] = {}
        self._gone_ps: Dict[str, float] = {}
        self._silent: Dict[int, float] = {}
        self._idle_since: Optional[float] = None
        """Since when all that train have been idle, after a loss."""
        self._without_cause: Dict[Tuple[str, int], float] = {}
        """Attempts that have lost a peer of which nothing is known yet: since when."""
        self._known: Dict[str, Incident] = {}
        """The incident in which each task was when this step began, or that has begun in it."""
        self._step: Optional[int] = None
        """The run's newest step when this step began."""
        self._repairs = Repairs(view)
        self._beginning = stalls.Beginning()

    def due(self) -> Optional[float]:
        """When the next delay ends."""
        waiting = {one["id"] for one in self._view.waiting_incidents()}
        due = [due for id_, due in self._due.items() if id_ in waiting]
        return min([*due, *(since + AWAIT_CAUSE_S for since in self._without_cause.values())], default=None)

    def skip_backoff(self, task: str, now: float) -> bool:
        """Ends the delay of a task that is to start again anyway; False where none is held for that.

        It must not be given another generation then: its incident waits for all that it holds to be cleared away.
        """
        for one in self._view.waiting_incidents():
            if task in one["tasks"] and not one["own"]:
                self._due[one["id"]] = now
                return True
        return False

    def move(
        self, restart: Mapping[str, List[Fact]], now: float, wall: float, *, blames_host: bool = False
    ) -> Optional[Judgement]:
        """Restarts tasks that are to begin on another host, and those that cannot continue without them.

        `restart`: why, of each. `blames_host`: their failures so far do not count. A judgement when the run does not
        survive it.
        """
        left = dict(restart)
        while left:
            task = min(left, key=lambda one: (self._moves_alone(one), one != self._view.lead))
            tasks = self._gang(task) if self._view.roster[task]["addressed"] else [*self._scope(task)]
            tasks += [] if self._moves_alone(task) else [one for one in left if one not in tasks]
            loss: Lost = {"attempt": self._view.entry(task)["attempt"], "ended": wall}
            failure = self._restart(task, loss, "moved", left[task], tasks, now, wall, afresh=blames_host)
            if failure is not None:
                return failure
            left = {one: why for one, why in left.items() if one not in tasks}
        return None

    def _moves_alone(self, task: str) -> bool:
        return self._view.own(task) and not self._view.roster[task]["addressed"]

    def ignore_past(self, tasks: Iterable[str]) -> None:
        """Ignores what has happened to these tasks so far: an earlier coordinator, now forgotten, has judged it."""
        for task in tasks:
            past = self._view.entry(task)["history"]
            self._view.data["noted"][task] = max((one["attempt"] for one in past), default=0)

    def step(self, now: float, wall: float) -> Optional[Judgement]:
        """Notices, decides and follows. A judgement when nothing is to be restarted any more.

        Hundreds of tasks may be lost at once: what is the same for all of them is computed once.
        """
        self._view.note_steps()
        self._known = {task: one for one in self._view.open_incidents() for task in one["tasks"]}
        self._step = self._view.step()
        for task, ending in self._new_endings(now):
            failure = self._lost(task, ending, now, wall)
            if failure is not None:
                return failure
        for one in list(self._view.open_incidents()):
            failure = self._follow(one, now, wall)
            if failure is not None:
                return failure
        return self._restart_what_is_silent(now, wall) or self._restart_what_never_began(now, wall)

    def _restart_what_is_silent(self, now: float, wall: float) -> Optional[Judgement]:
        """Restarts everything that trains if all tasks are back and none has trained for too long."""
        view = self._view
        is_whole = view.all_in_touch() and not view.is_recovering()
        back = [one for one in view.open_incidents() if view.is_back(one)] if is_whole else []
        limits = stalls.silence_limits(view) if back else {}
        limit_of = {one["id"]: limits[stalls.after_a_hang(one)] for one in back}
        self._silent = {id_: self._silent.get(id_, now) for id_, limit_s in limit_of.items() if limit_s is not None}
        for one in self._at_barrier(back or stalls.without_own_step(view), now) if is_whole else ():
            if self._may_restart(one, wall):
                idle_s = now - (self._idle_since or now)
                why, tasks = [fact("at_barrier", task=one["task"], seconds=idle_s)], self._gang(one["task"])
                return self._restart(one["task"], one, "at_barrier", why, tasks, now, wall)
        for one in back:
            limit_s = limit_of[one["id"]]
            if limit_s is not None and now - self._silent[one["id"]] >= limit_s and self._may_restart(one, wall):
                why, tasks = [fact("still_silent")], self._gang(one["task"])
                return self._restart(one["task"], one, "still_silent", why, tasks, now, wall)
        return None

    def _at_barrier(self, back: List[Incident], now: float) -> List[Incident]:
        """Those after which all that train have been idle for too long, of the losses whose tasks are back."""
        if not back or not stalls.all_idle(self._view):
            self._idle_since = None
            return []
        self._idle_since = now if self._idle_since is None else self._idle_since
        limit_s = stalls.limit_at_barrier(self._view)
        return back if limit_s is not None and now - self._idle_since >= limit_s else []

    def _may_restart(self, one: Incident, wall: float) -> bool:
        """Whether a restart of all that train loses nothing that no checkpoint has, unless they hang anyway."""
        return stalls.after_a_hang(one) or self._state_lost(self._gang(one["task"]), [], wall) is None

    def _restart_what_never_began(self, now: float, wall: float) -> Optional[Judgement]:
        idle_s = self._beginning.update(self._view, now)
        if idle_s is None:
            return None
        lead = self._view.lead
        saved = self._services.newest_checkpoint() is not None
        loss: Lost = {"attempt": self._view.entry(lead)["attempt"], "ended": wall}
        why, tasks = [fact("never_began", seconds=idle_s)], stalls.whom_to_restart(self._view, saved=saved)
        return self._restart(lead, loss, "never_began", why, tasks, now, wall)

    def _new_endings(self, now: float) -> Iterator[Tuple[str, Past]]:
        """Attempts that have ended unasked and not well, each once: causes before those that follow from them."""
        new = [(task, past) for task in self._view.tasks for past in self._unnoted(task)]
        causes = self._causes() if any(map(_lost_peer, new)) else []
        awaiting = {task: past["attempt"] for task, past in new[::-1] if self._awaits_cause(task, past, causes, now)}
        self._without_cause = {key: at for key, at in self._without_cause.items() if awaiting.get(key[0]) == key[1]}
        ready = [one for one in new if one[0] not in awaiting or one[1]["attempt"] < awaiting[one[0]]]
        self._view.data["noted"].update({task: past["attempt"] for task, past in ready})
        own = [one for one in ready if policy.is_own(one[1]) and one[1]["code"] != 0]
        own.sort(key=lambda one: one[0])
        yield from policy.causes_first(own, lambda one: one[1]["ended"], _lost_peer)
        for task in self._ps_that_left(now):
            yield task, self._view.entry(task)["history"][-1]

    def _unnoted(self, task: str) -> List[Past]:
        noted = self._view.data["noted"].get(task, 0)
        return [past for past in self._view.entry(task)["history"] if past["attempt"] > noted]

    def awaits_cause(self, task: str, now: float) -> bool:
        """Whether its last attempt has lost a peer just now, of whose end nothing is known yet."""
        history = self._view.entry(task)["history"]
        return bool(history) and self._awaits_cause(task, history[-1], self._causes(), now)

    def _awaits_cause(self, task: str, past: Past, causes: Optional[List[Cause]], now: float) -> bool:
        """`causes`: as `_causes`."""
        if causes is None or not policy.is_own(past) or not _lost_peer((task, past)):
            return False
        if any(other != task for _, other in policy.near(causes, past["ended"])):
            return False
        return now - self._without_cause.setdefault((task, past["attempt"]), now) < AWAIT_CAUSE_S

    def _causes(self) -> Optional[List[Cause]]:
        """The last ends of tasks with which others may have lost their connections, by their times.

        None while a host is unreachable, which is a cause for every task.
        """
        if not self._view.all_in_touch():
            return None
        ends = [(task, one) for task in self._view.tasks for one in self._view.entry(task)["history"][-1:]]
        return sorted((one["ended"], task) for task, one in ends if one["code"] != 0 and not _lost_peer((task, one)))

    def _ps_that_left(self, now: float) -> Iterator[str]:
        """Parameter servers that have exited by themselves, including those that were restarted before."""
        if self._view.spec["strategy"] == "kvstore":
            return  # there servers end by themselves when the workers have
        for task in self._view.with_role("ps"):
            known = self._view.incident_of(task)
            if self._view.state(task) != "succeeded" or (known is not None and known["begun"] is None):
                self._gone_ps.pop(task, None)
            elif now - self._gone_ps.setdefault(task, now) >= PS_END_LIMIT_S:
                yield task

    def _lost(self, task: str, ending: Past, now: float, wall: float) -> Optional[Judgement]:
        why = _why(self._view.entry(task), ending)
        known = self._incident_of(task)
        is_held = self._view.intents[task]["want"] == "hold"
        if known is not None and known["begun"] is None and not known["own"] and is_held:
            damaged_file = names_damaged_file(ending["cause"])
            fields = {"task": task, "damaged_file": damaged_file, "cause": ending["cause"], **because(why)}
            known["collateral"].append(made(Collateral, **fields))
            return self._given_up(task, known["loss"], ending, why, known)
        if self._view.state(task) == "failed" or self._view.intents[task]["want"] in ("stop", "finish"):
            return None  # the outcome judges it
        if self._view.drained(task):
            return None
        if known is not None:
            self._give_up(known, fact("lost_again", task=task))
        own = self._view.own(task)
        loss: Loss = "ps_ended" if ending["code"] == 0 else "hung" if ending["hung"] else "exit"
        tasks = [task] if own else self._scope(task)
        failure = None if own else self._given_up(task, loss, ending, why)
        return failure or self._restart(task, ending, loss, why, tasks, now, wall, own=own, past=ending)

    def _given_up(
        self, task: str, loss: Loss, ending: Past, why: List[Fact], within: Optional[Incident] = None
    ) -> Optional[Judgement]:
        """The end of the run if all that train have been restarted for this error as often as `repeat` allows.

        Each of them may have met it only once. `within`: the incident that this end belongs to, if it is not a new one.
        """
        number = ending["code"] if ending["signal"] is None else 128 + ending["signal"]
        recovery, scope = self._view.recovery, self._view.roster[task]["scope"]
        if not recovery["repeat"] or number in recovery["retry"] or not _is_of_all(scope, loss):
            return None
        every = [one for one in self._view.data["incidents"] if _is_of_all(one["scope"], one["loss"])]
        losses = [(_own_cause(one), one["step"]) for one in every if one is not within]
        step = self._step if within is None else within["step"]
        same = policy.same_losses_in_a_row([*losses, (ending["cause"], step)])
        return _failed(task, [*why, fact("same_way", count=same)], loss) if same >= recovery["repeat"] else None

    def _restart(
        self,
        task: str,
        ending: Lost,
        loss: Loss,
        why: List[Fact],
        tasks: List[str],
        now: float,
        wall: float,
        *,
        own: bool = False,
        past: Optional[Past] = None,
        afresh: bool = False,
    ) -> Optional[Judgement]:
        """`own`: by its agent, which has decided whether the task's own budget allows it. `past`: the lost attempt.

        `afresh`: the task's budget counts from zero.
        """
        data, recovery = self._view.data, self._view.recovery
        restarts = (
            0 if own or afresh else self._view.entry(task)["restarts"]
        )  # counts from zero after a long healthy life
        decided = policy.decide(
            why,
            recovery,
            self._services.random(),
            restarts=restarts,
            run_restarts=data["restarts"],
            shortage=past is not None and past["shortage"],
        )
        if decided.state == "failed":
            return _failed(task, decided.why, loss)
        lost = None if own else self._state_lost(tasks, why, wall)
        if lost is not None:
            return _failed(task, lost, loss)
        data["restarts"] += 1
        for other in self._within(tasks):
            self._give_up(other, fact("lost_too", task=task))
        cause = past["cause"] if past is not None else ""
        incident = self._view.open_incident(task, ending, loss, why, tasks, wall, cause=cause, step=self._step)
        incident["own"] = own
        self._known.update(dict.fromkeys(tasks, incident))
        delay_s = None if own else decided.delay_s
        if delay_s is not None:
            self._due[incident["id"]] = now + delay_s
            self._hold(task, tasks, decided.restarts, why)
        self._record("decision", [*why, _plan(task, tasks, delay_s)], task=task)
        return None

    def _incident_of(self, task: str) -> Optional[Incident]:
        """The newest open incident that restarts this task."""
        known = self._known.get(task)
        return known if known is None or is_open(known) else self._view.incident_of(task)

    def _within(self, tasks: List[str]) -> List[Incident]:
        """The open incidents that restart these tasks and no others."""
        if len(tasks) == 1:
            known = self._incident_of(tasks[0])
            return [known] if known is not None and known["tasks"] == tasks else []
        every = set(tasks)
        return [one for one in self._view.open_incidents() if every.issuperset(one["tasks"])]

    def _hold(self, task: str, tasks: List[str], restarts: int, why: List[Fact]) -> None:
        for other in tasks:
            intent = self._view.intents[other]
            self._view.wanted(
                [other],
                want="hold",
                repair=None,
                generation=intent["generation"] + 1,
                restarts=restarts if other == task else self._view.entry(other)["restarts"],
                grace_s=min(GANG_GRACE_S, self._view.spec["grace_s"]),
                by="coordinator",
                **because(why if other == task else [fact("restarted_with", task=task), *why]),
            )

    def _scope(self, task: str) -> List[str]:
        scope = self._view.roster[task]["scope"]
        if scope == "gang":
            return self._gang(task)
        if scope == "with-lead":
            return [other for other in self._gang(task) if other in (task, self._view.lead)]
        return [task]

    def _gang(self, task: str) -> List[str]:
        """All tasks that train, and this one."""
        view = self._view
        wanted = [other for other in view.present if view.intents[other]["want"] != "stop" and not view.drained(other)]
        return [other for other in wanted if view.role(other) != "evaluator" or other == task]

    def _state_lost(self, tasks: List[str], why: List[Fact], wall: float) -> Optional[List[Fact]]:
        """The reason to fail if a lost ps held the only copy of its parameters, because no checkpoint is complete."""
        view = self._view
        if not view.spec["needs_checkpoint"] or not any(view.role(other) == "ps" for other in tasks):
            return None
        if not self._has_trained(wall) or self._services.newest_checkpoint() is not None:
            return None
        return [*why, fact("no_checkpoint")]

    def _checkpoint_lost(self, one: Incident, repaired: Repaired) -> Optional[Judgement]:
        """The end of the run if a task could not restore the only checkpoint: a restart would fail again."""
        lost, unable = repaired["lost"], _unable_to_restore(one)
        if lost is None or unable is None or self._view.recovery["allow_scratch"]:
            return None
        task, why = unable
        elsewhere = [fact("complete_elsewhere", what=lost["elsewhere"])] if lost["elsewhere"] is not None else []
        why = [*why, fact("damaged_checkpoint", what=lost["path"], text=lost["problem"]), *elsewhere]
        return _failed(task, why, one["loss"])

    def _has_trained(self, wall: float) -> bool:
        if any(self._view.entry(task)["step"] is not None for task in self._view.trainers):
            return True
        lead = self._view.entry(self._view.lead)
        return lead["state"] == "running" and wall - (lead["since"] or wall) >= TRAINED_S

    def _follow(self, one: Incident, now: float, wall: float) -> Optional[Judgement]:
        if all(self._view.intents[task]["want"] == "stop" and self._view.final(task) for task in one["tasks"]):
            self._give_up(one, fact("task_stopped", task=one["task"]))
        elif one["begun"] is None and self._may_begin(one, now):
            return self._begin(one, now, wall)
        elif one["begun"] is not None and self._view.trains_again(one):
            one["recovered"] = wall
            self._record("decision", run_events.recovery(one), task=one["task"])
        return None

    def _may_begin(self, one: Incident, now: float) -> bool:
        if one["own"]:
            entry = self._view.entry(one["task"])
            return bool(entry["attempt"] > one["attempt"] and entry["state"] in ("running", *FINAL))
        if now < self._due.setdefault(one["id"], now):
            return False
        return all(self._is_cleared(other) for other in one["tasks"])

    def _is_cleared(self, task: str) -> bool:
        """Nothing of an older generation is left; of a host that is away that is unknown.

        One that is wanted to run was started by a person while this coordinator was out of touch, or by an earlier
        coordinator that ended before it recorded so.
        """
        want = self._view.intents[task]["want"]
        if want == "stop":
            return True
        is_back = want == "run" or self._view.state(task) == "pending"
        return self._view.reached(task) and self._view.current(task) and is_back

    def _begin(self, one: Incident, now: float, wall: float) -> Optional[Judgement]:
        if not one["own"] and self._view.lead in one["tasks"]:
            repaired = self.repair_checkpoints(now, "quick" if _unable_to_restore(one) is None else "full")
            if repaired is None:
                return None
            failure = self._checkpoint_lost(one, repaired)
            if failure is not None:
                return failure
            one["back_to"] = repaired["step"]
        self._view.begin_incident(one, wall)
        goes_back = any(self._view.role(task) in ("lead", "ps") for task in one["tasks"])
        if goes_back and not one["own"] and one["back_to"] is None:
            newest = self._services.newest_checkpoint()
            one["back_to"] = newest["step"] if newest else None
        return None

    def repair_checkpoints(self, now: float, how: Repair = "quick") -> Optional[Repaired]:
        """Has damaged checkpoints set aside, before the lead restarts; None until the lead's host has done so."""
        repaired = self._repairs.update(now, how)
        for text in repaired["done"] if repaired is not None else ():
            self._record("decision", said(text))
            self._view.warn(said(text))
        return repaired

    def _give_up(self, one: Incident, why: Fact) -> None:
        one["given_up"] = because([why])


def _unable_to_restore(one: Incident) -> Optional[Tuple[str, List[Fact]]]:
    """The first of its lost tasks that could not restore a checkpoint, and the reason."""
    losses: List[Union[Incident, Collateral]] = [one, *one["collateral"]]
    return next(((lost["task"], why_of(lost)) for lost in losses if lost["damaged_file"]), None)


def _is_of_all(scope: Scope, loss: Loss) -> bool:
    """Whether such a loss restarts all that train, because a program has ended by itself."""
    return scope == "gang" and loss == "exit"


def _own_cause(one: Incident) -> str:
    """The cause that says most of the program: not that of a task which has only lost a peer, if there is another."""
    losses: List[Union[Incident, Collateral]] = [one, *one["collateral"]]
    causes = [loss["cause"] for loss in losses]
    return next((cause for cause in causes if cause and not policy.lost_peer(cause)), one["cause"])


def _lost_peer(one: Tuple[str, Past]) -> bool:
    return policy.lost_peer(one[1]["cause"])


def _why(entry: Entry, ending: Past) -> List[Fact]:
    """The reason that the agent reported, if `ending` is the newest attempt; otherwise one derived from the exit."""
    if ending["code"] == 0:
        return [fact("ps_ended")]
    is_newest = entry["attempt"] == ending["attempt"] and entry["state"] in ("backoff", "failed")
    return (why_of(entry) if is_newest else []) or policy.why_ended(ending)


def _failed(task: str, why: List[Fact], loss: Loss) -> Judgement:
    return Judgement("Failed", [fact("task_failed", task=task), *why], task, hung=loss in HANGS)


def _plan(task: str, tasks: List[str], delay_s: Optional[float]) -> Fact:
    """The restart as a fact for the history. `delay_s` None: the task's own agent restarts it."""
    if delay_s is None:
        return fact("goes_alone")
    if tasks == [task]:
        return fact("goes_in", seconds=delay_s)
    if len(tasks) == 2:
        return fact("goes_with", task=next(other for other in tasks if other != task), seconds=delay_s)
    return fact("all_go", count=len(tasks), seconds=delay_s)
