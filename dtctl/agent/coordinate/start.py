"""The start, also after a restart: all tasks at once, but those that the file has wait for others.

Who cannot train before others are ready is early until then: frameworks wait for their peers by themselves, and a
program that does not, and fails, is started again when they are there, which counts for nothing.
"""

from __future__ import annotations

from ..records.reasons import fact, why_of
from . import incidents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, List

    from ..records.reasons import Fact
    from ..records.run_state import Intent
    from .view import View

REACH_LIMIT_S = 60.0
"""After the last one that came, or the beginning: who has not reached the coordinator by then has something in its way.

Imports come later. Hundreds of agents that share a machine may take longer than that, one after the other.
"""


def may_run(view: View, blocked: Collection[str]) -> Dict[str, bool]:
    """Tasks to be told to run, and whether they are early; also those that no longer are.

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
    """Of each task that waits: those that it needs and that are not ready."""
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
    """Nobody waits for a task that a person has stopped, that has already done its part, or whose host is absent."""
    has_done = view.state(task) == "succeeded" and view.current(task)
    return has_done or view.absent(task) or view.intents[task]["want"] == "stop"


def unreached(view: View) -> List[str]:
    """Hosts that have never been heard, and are expected."""
    return [host for host, known in view.hosts.items() if known["state"] is None and not known["absent"]]


def awaited(view: View) -> List[str]:
    """Tasks that were told to run and that others wait for, and they for nobody: to start, or to train after a loss."""
    wanted = {other for unready in _unready(view).values() for other in unready}
    begun = [one for one in incidents.still_open(view) if one["begun"] is not None]
    wanted.update(task for one in begun for task in one["tasks"] if not (view.ready(task) or view.final(task)))
    return [task for task in view.tasks if task in wanted and _runs(view.intents[task])]


def _runs(intent: Intent) -> bool:
    """It was told to, and waits for nobody."""
    return intent["want"] == "run" and not intent["early"]


def missing(view: View) -> List[Fact]:
    """Who the start waits for, and why; nothing when it waits for nobody."""
    silent = unreached(view)
    if silent:
        return [fact("hosts_silent", text=_few(silent), count=len(silent), what=view.coordinator["address"])]
    tasks = awaited(view)
    why: List[Fact] = []
    for task in tasks[:3]:
        why += [*([fact("and")] if why else []), *_why(view, task)]
    return [*why, fact("and_more")] if len(tasks) > 3 else why


def _why(view: View, task: str) -> List[Fact]:
    entry, place = view.entry(task), view.roster[task]
    if not view.reached(task):
        return [fact("waits_for_host", task=task, host=place["host"])]
    if entry["state"] == "running" and view.current(task):
        return [fact("waits_to_listen", task=task, what=place["address"] or "its port")]
    if entry["state"] == "backoff":
        return [fact("starts_again", task=task), *why_of(entry)]
    return [fact("waits_in_state", task=task, text=entry["state"])]


def _few(names: List[str]) -> str:
    return ", ".join(names[:5]) + (" and %d more" % (len(names) - 5) if len(names) > 5 else "")
