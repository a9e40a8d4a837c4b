"""How a run starts, and how it ends on every host: servers last, and no host forgotten.

All tasks start at once, also after a restart, but those that `depends_on` holds back. A task that cannot train before
others are ready is early until then: frameworks wait for their peers by themselves, and a program that does not, and
fails, is started again when they are there, which counts for nothing.
"""

from __future__ import annotations

from ..records.kinds import made
from ..records.reasons import Because, Fact, because, fact, why_of
from ..records.run_state import How
from ..run import outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, List, Optional

    from ..records.run_state import RunEnd
    from .view import View


REACH_LIMIT_S = 60.0
"""Hosts that have not connected this long after the last one, or after the start, cannot reach the coordinator.

Imports come later. Hundreds of agents that share a machine may take longer than that, one after the other.
"""


def may_run(view: View, blocked: Collection[str]) -> Dict[str, bool]:
    """Tasks to be let run, and whether they are early; also those that no longer are.

    Those in `blocked` wait for something else.
    """
    found: Dict[str, bool] = {}
    for task, unready in _unready(view).items():
        if view.intents[task]["want"] == "run":
            found.update({} if unready else {task: False})
        elif task not in blocked and view.reached(task) and not (unready and view.is_held(task)):
            found[task] = bool(unready)
    return found


def _unready(view: View) -> Dict[str, List[str]]:
    """Waiting task -> the tasks that it needs and that are not ready."""
    waiting = [task for task in view.tasks if view.waits(task)]
    if not waiting:
        return {}
    trains = {task for task in waiting if view.trains(task)}
    unready = [
        [task for task in stage["tasks"] if not (view.ready(task) or _is_out(view, task))] for stage in view.stages
    ]
    needs = [[task for index in stage["after"] for task in unready[index]] for stage in view.stages]
    by_task = {task: needs[index] for index, stage in enumerate(view.stages) for task in stage["tasks"]}
    return {task: [] if task in trains else by_task.get(task, []) for task in waiting}


def _is_out(view: View, task: str) -> bool:
    """No task waits for one that a person has stopped, that has done its part, or whose host is absent or drained."""
    has_done = view.state(task) == "succeeded" and view.current(task)
    return has_done or view.absent(task) or view.drained(task) or view.intents[task]["want"] == "stop"


def unreached(view: View) -> List[str]:
    """Hosts with tasks that have never been connected, and are expected."""
    silent = [host for host, known in view.hosts.items() if known["heard"] is None and not known["absent"]]
    return [host for host in silent if view.tasks_on(host)]


def awaited(view: View) -> List[str]:
    """Tasks that others wait for and that wait for none themselves: to start, or to train after a loss."""
    wanted = {other for unready in _unready(view).values() for other in unready}
    begun = [one for one in view.open_incidents() if one["begun"] is not None]
    wanted.update(task for one in begun for task in one["tasks"] if not (view.ready(task) or view.final(task)))
    let_run = {task for task, intent in view.intents.items() if intent["want"] == "run" and not intent["early"]}
    return [task for task in view.tasks if task in wanted & let_run]


_MOST_NAMED = 3


def loading(view: View) -> List[str]:
    """Running tasks, among those that `waits_for` names, that do not listen yet."""
    return [task for task in awaited(view)[:_MOST_NAMED] if view.reached(task) and _is_loading(view, task)]


def _is_loading(view: View, task: str) -> bool:
    return view.state(task) == "running" and view.current(task)


def waits_for(view: View) -> List[Fact]:
    """The hosts or tasks that the start waits for, with reasons; empty if there are none."""
    silent = unreached(view)
    if silent:
        return [fact("hosts_silent", text=_few(silent), count=len(silent))]
    tasks = awaited(view)
    why: List[Fact] = []
    for task in tasks[:_MOST_NAMED]:
        why += [*([fact("and")] if why else []), *_why(view, task)]
    return [*why, fact("and_more")] if len(tasks) > _MOST_NAMED else why


def unconnected(view: View) -> List[Fact]:
    """Why a start has failed whose hosts never connected to the coordinator."""
    hosts = _few(unreached(view))
    return [fact("hosts_unconnected", text=hosts, what=view.coordinator["address"]), fact("firewall")]


def _why(view: View, task: str) -> List[Fact]:
    entry, place = view.entry(task), view.roster[task]
    if not view.reached(task):
        return [fact("waits_for_host", task=task, host=place["host"])]
    if _is_loading(view, task):
        return [fact("waits_to_listen", task=task)]
    if entry["state"] == "backoff":
        return [fact("starts_again", task=task), *why_of(entry)]
    return [fact("waits_in_state", task=task, text=entry["state"])]


def _few(names: List[str]) -> str:
    return ", ".join(names[:5]) + (" and %d more" % (len(names) - 5) if len(names) > 5 else "")


END_LIMIT_S = 15.0
"""How long servers wait for the others after the grace period: what is left then cannot be ended."""


class Shutdown:
    """Shuts down one decided run; times are of the monotonic clock. In the end every task's intent is `stop`."""

    def __init__(self, view: View, now: float) -> None:
        self._view = view
        self._since = now
        self._stopped: Optional[float] = None
        self._well = view.data["condition"]["type"] == "Succeeded"
        self._how = made(How, grace_s=None, by="coordinator", ends_as=self._end(), **self._why)
        if self._well:  # every task that ends from now on stays ended
            view.wanted(self._not_stopped(), want="finish", by="coordinator", **self._why)

    def stop_now(self, how: How, now: float) -> None:
        """A person asks for the end of everything: no task may finish first. `how`: grace_s, why and by."""
        self._how = how
        stopped = [task for task, intent in self._view.intents.items() if intent["want"] == "stop"]
        self._stop([task for task in stopped if not self._view.final(task)])  # they may be given less time than before
        self._begin_to_stop(now)

    def step(self, now: float) -> None:
        """Stops what may be stopped by now."""
        if self._stopped is None and not self._settled(now):
            return
        if self._stopped is None:
            self._begin_to_stop(now)
        grace_s = self._view.spec["grace_s"] if self._how["grace_s"] is None else self._how["grace_s"]
        if not self._others() or now - (self._stopped or now) >= grace_s + END_LIMIT_S:
            self._stop(self._not_stopped())

    def _begin_to_stop(self, now: float) -> None:
        self._stopped = now
        self._stop(outcome.without_servers(self._view.roster.values(), self._not_stopped()))

    def host_is_done(self, host: str) -> bool:
        """Every task there has ended, and nothing more will be asked of its agent."""
        view, tasks = self._view, self._view.tasks_on(host)
        return all(view.final(task) and view.intents[task]["want"] == "stop" for task in tasks)

    @property
    def _why(self) -> Because:
        condition = self._view.data["condition"]
        over = fact("run_%s" % condition["type"].lower())
        return because([over] if self._well else [over, *why_of(condition)])

    def _end(self) -> Optional[RunEnd]:
        condition = self._view.data["condition"]
        kind = condition["type"]
        if kind == "Succeeded" or kind == "Failed" or kind == "Stopped":
            return {
                "outcome": kind,
                "cause": condition["cause"],
                "start": condition["start"],
                "hung": condition["hung"],
                "replaced": condition["replaced"],
            }
        return None

    def _settled(self, now: float) -> bool:
        """Whether the other tasks have ended by themselves after a success, or have had `settle` to do so."""
        return not (self._well and self._others()) or now - self._since >= self._view.spec["settle_s"]

    def _others(self) -> List[str]:
        """Tasks that still run and are not servers.

        Hosts that are away are not waited for, nor tasks of which a full disk keeps the end from being written.
        """
        reached = [task for task in self._view.tasks if self._view.reached(task)]
        going = [task for task in reached if not (self._view.final(task) or self._view.entry(task)["unwritten"])]
        return outcome.without_servers(self._view.roster.values(), going)

    def _not_stopped(self) -> List[str]:
        return [task for task in self._view.tasks if self._view.intents[task]["want"] != "stop"]

    def _stop(self, tasks: List[str]) -> None:
        self._view.wanted(tasks, want="stop", **self._how)
