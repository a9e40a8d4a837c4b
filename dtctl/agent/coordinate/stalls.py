"""Hangs of the whole run, which no limit of one task finds: no step is reported after what was lost is back, or the run
has never begun to train.

After a loss the real culprit has not been found. Where every step needs every worker, one that hangs before the first
step silences all of them, and no peer can teach how long a first step takes. What can be seen is that no task works:
one that loads, compiles or computes uses a processor, a disk or the network; one that waits complains of its peers or
is silent.
"""

from __future__ import annotations

from ..run.hangs import (
    IDLE_S,
    NEVER_BEGAN_S,
    awaits_a_peer,
    has_begun,
    is_done,
    is_judged_by_progress,
    learnt_limit,
    patience,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..records.whole_run import Incident
    from .view import View

SILENCE_S = 120.0
"""A task that was restarted because it stalled, and is still silent after this long, was not the culprit."""


AT_BARRIER_S = 45.0
"""Where all tasks are idle for so long after a loss, they wait for each other: a worker of TensorFlow's waits 30 s
between two looks whether the model is ready.
"""

AGAIN_AT_BARRIER_S = 5.0
"""The same where a restart of all has opened such a barrier before: the program trains synchronously."""

_IN_VAIN = ("still_silent", "at_barrier")
"""Losses for which all are restarted, because the restart of a lost task was of no use."""


def after_a_hang(one: Incident) -> bool:
    """Whether tasks were lost that had made progress before: a program that only waits makes none."""
    return one["loss"] in ("hung", *_IN_VAIN)


def silence_limits(view: View) -> Dict[bool, Optional[float]]:
    """The limits of incidents after a hang (True), and of others. None: for ever.

    They double with each restart of all tasks in vain, as restoring may take that long.
    """
    stall_s, vain = view.recovery["stall_s"], in_vain(view)
    after_hang_s = patience(max(stall_s or 0.0, SILENCE_S), vain)
    learnt_s = max(view.entry(task)["first_step_s"] for task in view.tasks)
    if stall_s == 0 or not learnt_s or is_done(view.step(), view.spec["target_step"]):
        return {True: after_hang_s, False: None}
    limit_s = learnt_limit(learnt_s, None if stall_s is None else max(stall_s, SILENCE_S))
    return {True: after_hang_s, False: patience(limit_s, vain)}


def in_vain(view: View) -> int:
    """How many of the last incidents restarted all tasks, and no step followed."""
    count = 0
    for one in reversed(view.data["incidents"]):
        if one["loss"] not in _IN_VAIN or one["recovered"] is not None:
            break
        count += 1
    return count


def limit_at_barrier(view: View) -> Optional[float]:
    """The time for which all that train may be idle after a loss; None: for ever, by the user or without any step.

    A worker that restarts alone may leave a barrier of the program standing, as token queues of synchronous training
    are: each of the others waits for a token of the lost one, which waits for theirs.
    """
    learns = view.recovery["stall_s"] is None and has_begun(view.entry(task) for task in view.tasks)
    opened = any(one["loss"] == "at_barrier" and one["recovered"] is not None for one in view.data["incidents"])
    return patience(AGAIN_AT_BARRIER_S if opened else AT_BARRIER_S, in_vain(view)) if learns else None


def without_own_step(view: View) -> List[Incident]:
    """The last loss, if a task of it is back and makes no step of its own, as it did before; others may make one."""
    last = view.data["incidents"][-1:]
    return [one for one in last if view.is_back(one) and any(_makes_no_step(view, task) for task in one["tasks"])]


def _makes_no_step(view: View, task: str) -> bool:
    entry = view.entry(task)
    return entry["step"] is None and any(past["step"] is not None for past in entry["history"])


def all_idle(view: View) -> bool:
    """Whether none of the tasks that train does anything, whatever their hosts receive, and all of them run."""
    trains = [task for task in view.trainers if not (view.final(task) or view.drained(task))]
    return bool(trains) and all(_runs(view, task) and view.entry(task)["still_since"] for task in trains)


class Beginning:
    """Measures how long the tasks of a run without a step have been idle, by the coordinator's monotonic clock."""

    def __init__(self) -> None:
        self._idle: Dict[str, float] = {}

    def update(self, view: View, now: float) -> Optional[float]:
        """Seconds, once they are too many. It does so once in a run: a program that is silent again may only wait.

        A restart costs a start that has done nothing little, but is of use only if the tasks wait for one of them.
        """
        there = _tasks_to_begin(view) if _may_be_judged(view) else []
        self._idle = {task: self._idle.get(task, now) for task in there if _is_idle(view, task)}
        if not there or len(self._idle) < len(there):
            return None
        trains = {task: since for task, since in self._idle.items() if is_judged_by_progress(view.roster[task])}
        if awaits_a_peer([view.entry(task) for task in there], trains):
            limit_s = IDLE_S
        elif view.roster[view.lead]["listens"]:
            limit_s = NEVER_BEGAN_S
        else:
            return None  # it may wait for anything else else
        idle_s = now - max(self._idle.values())
        return idle_s if idle_s >= min(limit_s, view.spec["start_timeout_s"]) else None


def whom_to_restart(view: View, *, saved: bool) -> List[str]:
    """The tasks that train; ps tasks only with a checkpoint, because they hold whatever was trained silently."""
    roles = ("lead", "worker", "ps") if saved else ("lead", "worker")
    return [task for task in view.with_role(*roles) if view.intents[task]["want"] == "run"]


def _may_be_judged(view: View) -> bool:
    """The user's own limit wins. A program that listens on no port, and trains alone, may wait for anything."""
    recovery, lead = view.recovery, view.roster[view.lead]
    learns = recovery["first_step_s"] is None and recovery["stall_s"] != 0
    is_new = not any(one["loss"] == "never_began" for one in view.data["incidents"])
    trains = lead["listens"] or lead["scope"] == "gang"
    return learns and trains and is_new and not has_begun(view.entry(task) for task in view.tasks)


def _tasks_to_begin(view: View) -> List[str]:
    """The tasks that ought to train, or to serve those; none while one is being recovered.

    An evaluator waits for what others save.
    """
    if any(view.open_incidents()):
        return []
    trains = [task for task in view.present if view.role(task) != "evaluator" and not view.drained(task)]
    return [task for task in trains if not view.final(task)]


def _is_idle(view: View, task: str) -> bool:
    """Whether it was let start, runs, and does nothing: the one that hangs may not listen yet."""
    return _runs(view, task) and view.entry(task)["idle_since"] is not None


def _runs(view: View, task: str) -> bool:
    return view.reached(task) and view.current(task) and view.state(task) == "running"
