"""What is restarted after a loss, and when: by the scope of the task that was lost, within the budgets."""

from __future__ import annotations

from ..records.whole_run import tells_steps
from ..run import policy
from . import incidents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Union

    from ..records.run_state import Past
    from ..records.whole_run import Incident
    from .services import Services
    from .view import View

    Loss = Union[Past, Incident]
    """What was lost: an attempt, or what an incident has restarted in vain."""

GANG_GRACE_S = 5.0
"""What is restarted with a lost peer has nothing left to save: most often it hangs on that peer."""

PS_END_LIMIT_S = 10.0
"""A ps that has ended well by then, and the run has not, has left the others alone."""

SILENCE_S = 120.0
"""What has been restarted because it was stalled, and is still silent after that, was not the culprit."""

TRAINED_S = 30.0
"""A lead that has run for so long may have trained, though it has told no step."""


class Failure:
    """Why the run has failed; `task` is None when no task is to blame."""

    def __init__(self, task: Optional[str], reason: str) -> None:
        self.task = task
        self.reason = reason


class Recovery:
    """`tell(kind, **fields)` adds to the run's story. Times: `now` monotonic, `wall` epoch seconds."""

    def __init__(self, view: View, services: Services, tell: Callable[..., None]) -> None:
        self._view = view
        self._services = services
        self._tell = tell
        self._due: Dict[int, float] = {}
        self._gone_ps: Dict[str, float] = {}
        self._silent: Dict[int, float] = {}

    @property
    def mending(self) -> bool:
        """Somebody is not back yet: those who wait for it are silent for good reason."""
        return any(not incidents.is_back(self._view, one) for one in incidents.still_open(self._view))

    def blocked(self) -> Set[str]:
        """Tasks that must not be released yet."""
        return {task for one in incidents.waiting(self._view) for task in one["tasks"]}

    def due(self) -> Optional[float]:
        """When the next delay ends."""
        waiting = {one["id"] for one in incidents.waiting(self._view)}
        return min((due for id_, due in self._due.items() if id_ in waiting), default=None)

    def pass_over(self, tasks: Iterable[str]) -> None:
        """What these tasks have suffered by now was judged by a coordinator of which nothing is left."""
        for task in tasks:
            past = self._view.entry(task)["history"]
            self._view.data["noted"][task] = max((one["attempt"] for one in past), default=0)

    def step(self, now: float, wall: float) -> Optional[Failure]:
        """Notices, decides and follows. A Failure when nothing is to be restarted any more."""
        for task, ending in self._new_endings(now, wall):
            failure = self._lost(task, ending, now, wall)
            if failure is not None:
                return failure
        for one in list(incidents.still_open(self._view)):
            self._follow(one, now, wall)
        for one in list(incidents.still_open(self._view)):
            if self._is_still_silent(one, now):
                reason = "still no sign of progress after its restart"
                failure = self._restart(one["task"], one, reason, self._gang(one["task"]), now, wall)
                if failure is not None:
                    return failure
        return None

    def _new_endings(self, now: float, wall: float) -> Iterator[Tuple[str, Past]]:
        """Attempts that have ended unasked and not well, each once, in the order of their ends."""
        found = []
        noted = self._view.data["noted"]
        for task in self._view.tasks:
            for past in self._view.entry(task)["history"]:
                if past["attempt"] > noted.get(task, 0):
                    noted[task] = past["attempt"]
                    if not past["asked"] and past["code"] != 0:
                        found.append((past["ended"], task, past))
        found.sort(key=lambda one: (one[0], one[1]))
        for _, task, past in found:
            yield task, past
        for task in self._ps_that_left(now):
            yield task, self._view.entry(task)["history"][-1]

    def _ps_that_left(self, now: float) -> Iterator[str]:
        if self._view.spec["strategy"] == "kvstore":
            return  # there servers end by themselves when the workers have
        for task in self._view.with_role("ps"):
            if self._view.state(task) != "succeeded" or incidents.of_task(self._view, task) is not None:
                self._gone_ps.pop(task, None)
            elif now - self._gone_ps.setdefault(task, now) >= PS_END_LIMIT_S:
                yield task

    def _lost(self, task: str, ending: Past, now: float, wall: float) -> Optional[Failure]:
        reason = self._reason(task, ending)
        known = incidents.of_task(self._view, task)
        if known is not None and known["begun"] is None and not known["own"]:
            known["collateral"].append({"task": task, "reason": reason})
            return None
        if self._view.state(task) == "failed" or self._view.intents[task]["want"] in ("stop", "finish"):
            return None  # the outcome judges it
        if known is not None:
            self._close(known, "%s was lost again" % task)
        if self._view.own(task):
            return self._left_to_its_agent(task, ending, reason, wall)
        return self._restart(task, ending, reason, self._scope(task), now, wall)

    def _reason(self, task: str, ending: Past) -> str:
        entry = self._view.entry(task)
        if ending["code"] == 0:
            return "exit code 0, but a ps is needed to the end"
        if entry["attempt"] == ending["attempt"] and entry["state"] in ("backoff", "failed") and entry["reason"]:
            return entry["reason"]
        return policy.describe_exit(ending)

    def _left_to_its_agent(self, task: str, ending: Past, reason: str, wall: float) -> Optional[Failure]:
        over = self._over_the_run_budget(task, reason)
        if over is None:
            self._view.data["restarts"] += 1
            incidents.opened(self._view, task, ending, reason, [task], wall)
            self._tell("decision", task=task, reason="%s: it is restarted alone" % reason)
        return over

    def _restart(
        self, task: str, ending: Loss, reason: str, tasks: List[str], now: float, wall: float
    ) -> Optional[Failure]:
        restarts = self._view.entry(task)["restarts"]  # its agent begins anew after a long healthy life
        failure = (
            self._over_the_run_budget(task, reason)
            or self._over_its_budget(task, restarts, reason)
            or self._state_lost(task, tasks, reason, wall)
        )
        if failure is not None:
            return failure
        self._view.data["restarts"] += 1
        delay_s = policy.back_off(restarts + 1, self._view.recovery, self._services.random())
        for other in list(incidents.still_open(self._view)):
            if set(other["tasks"]) <= set(tasks):
                self._close(other, "%s was lost too" % task)
        incident = incidents.opened(self._view, task, ending, reason, tasks, wall)
        self._due[incident["id"]] = now + delay_s
        self._hold(task, tasks, restarts + 1, reason)
        self._tell("decision", task=task, reason="%s: %s in %.1f s" % (reason, _plan(task, tasks), delay_s))
        return None

    def _hold(self, task: str, tasks: List[str], restarts: int, reason: str) -> None:
        for other in tasks:
            intent = self._view.intents[other]
            self._view.wanted(
                [other],
                want="hold",
                generation=intent["generation"] + 1,
                restarts=restarts if other == task else self._view.entry(other)["restarts"],
                grace_s=min(GANG_GRACE_S, self._view.spec["grace_s"]),
                reason="restarted with %s (%s)" % (task, reason) if other != task else reason,
                by="coordinator",
            )

    def _scope(self, task: str) -> List[str]:
        scope = self._view.roster[task]["scope"]
        if scope == "gang":
            return self._gang(task)
        if scope == "with-lead":
            return [other for other in self._gang(task) if other in (task, self._view.lead)]
        return [task]

    def _gang(self, task: str) -> List[str]:
        """Everybody who trains, with this task."""
        wanted = [other for other in self._view.tasks if self._view.intents[other]["want"] != "stop"]
        return [other for other in wanted if self._view.role(other) != "evaluator" or other == task]

    def _over_its_budget(self, task: str, restarts: int, reason: str) -> Optional[Failure]:
        if restarts < self._view.recovery["max_restarts"]:
            return None
        after = ", after %d restart%s" % (restarts, "" if restarts == 1 else "s") if restarts else ""
        return Failure(task, "%s failed: %s%s" % (task, reason, after))

    def _over_the_run_budget(self, task: str, reason: str) -> Optional[Failure]:
        spent = self._view.data["restarts"]
        if spent < self._view.recovery["max_run_restarts"]:
            return None
        after = ", after %d restart%s in the run" % (spent, "" if spent == 1 else "s") if spent else ""
        return Failure(task, "%s failed: %s%s" % (task, reason, after))

    def _state_lost(self, task: str, tasks: List[str], reason: str, wall: float) -> Optional[Failure]:
        """Parameters live on ps tasks: without a checkpoint a ps that comes back would begin from nothing."""
        view = self._view
        if not view.spec["needs_checkpoint"] or not any(view.role(other) == "ps" for other in tasks):
            return None
        if not self._has_trained(wall) or self._services.newest_checkpoint() is not None:
            return None
        return Failure(
            task,
            "%s failed: %s, and there is no complete checkpoint to go back to "
            "(recovery.allow_scratch: true starts over)" % (task, reason),
        )

    def _has_trained(self, wall: float) -> bool:
        if self._view.step() is not None:
            return True
        lead = self._view.entry(self._view.lead)
        return lead["state"] == "running" and wall - (lead["since"] or wall) >= TRAINED_S

    def _follow(self, one: Incident, now: float, wall: float) -> None:
        if one["begun"] is None and self._may_begin(one, now):
            self._begin(one, wall)
        elif one["begun"] is not None and incidents.trains_again(self._view, one):
            one["recovered"] = wall
            self._tell("decision", task=one["task"], reason=_recovered(one))

    def _is_still_silent(self, one: Incident, now: float) -> bool:
        """Its tasks were taken for hung and are back, and yet nobody trains: whoever hangs has not been found."""
        if not (one["reason"].startswith("stalled") and incidents.is_back(self._view, one)):
            return False
        limit_s = max(self._view.recovery["stall_s"] or 0.0, SILENCE_S)
        return now - self._silent.setdefault(one["id"], now) >= limit_s

    def _may_begin(self, one: Incident, now: float) -> bool:
        if one["own"]:
            entry = self._view.entry(one["task"])
            return bool(entry["attempt"] > one["attempt"] and entry["state"] == "running")
        if now < self._due.setdefault(one["id"], now):
            return False
        return all(self._is_cleared(other) for other in one["tasks"])

    def _is_cleared(self, task: str) -> bool:
        """Nothing of an older generation is left; of a host that is away nobody can say so."""
        if self._view.intents[task]["want"] == "stop":
            return True
        return self._view.reached(task) and self._view.current(task) and self._view.state(task) == "pending"

    def _begin(self, one: Incident, wall: float) -> None:
        incidents.begin(self._view, one, wall)
        if one["own"]:
            return
        if self._view.lead in one["tasks"]:
            self._mend()
        if any(self._view.role(task) in ("lead", "ps") for task in one["tasks"]):
            newest = self._services.newest_checkpoint()
            one["back_to"] = newest["step"] if newest else None

    def _mend(self) -> None:
        for text in self._services.mend_checkpoints():
            self._tell("decision", reason=text)
            self._view.data["warnings"].append(text)

    def _close(self, one: Incident, why: str) -> None:
        one["closed"] = why


def _plan(task: str, tasks: List[str]) -> str:
    if tasks == [task]:
        return "it is restarted"
    if len(tasks) == 2:
        return "restarted with %s" % next(other for other in tasks if other != task)
    return "all %d tasks are restarted" % len(tasks)


def _recovered(one: Incident) -> str:
    verb = "training" if tells_steps(one) else "running"
    text = "%s again after %.1f s" % (verb, max(0.0, (one["recovered"] or one["noticed"]) - one["noticed"]))
    if one["back_to"] is None:
        return text
    lost = ", %d steps lost" % max(0, one["step"] - one["back_to"]) if one["step"] is not None else ""
    return "back to step %d%s; %s" % (one["back_to"], lost, text)
