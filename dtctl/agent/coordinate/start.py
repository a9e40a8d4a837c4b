"""The order of start: a held task is released when the tasks before it are ready. Also after a restart."""

from __future__ import annotations

from . import incidents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, List, Optional

    from .view import View

REACH_LIMIT_S = 60.0
"""A host that has not reached the coordinator by then has something in its way; imports come later."""


def released(view: View, blocked: Collection[str]) -> List[str]:
    """Tasks to be told to run now; those in `blocked` wait for something else."""
    return [
        task
        for task in view.tasks
        if view.intents[task]["want"] == "hold"
        and task not in blocked
        and view.reached(task)
        and not _unready(view, task)
    ]


def _unready(view: View, task: str) -> List[str]:
    return [other for other in view.awaited_by(task) if not (view.ready(other) or _is_out(view, other))]


def _is_out(view: View, task: str) -> bool:
    """Nobody waits for a task that a person has stopped, or that has already done its part."""
    return view.intents[task]["want"] == "stop" or (view.state(task) == "succeeded" and view.current(task))


def unreached(view: View) -> List[str]:
    """Hosts that have never been heard."""
    return [host for host, known in view.hosts.items() if known["state"] is None]


def awaited(view: View) -> List[str]:
    """Tasks that were told to run and that others wait for: to start, or to train again after a loss."""
    waiting = [task for task in view.tasks if view.intents[task]["want"] == "hold"]
    wanted = {other for task in waiting for other in _unready(view, task)}
    begun = [one for one in incidents.still_open(view) if one["begun"] is not None]
    wanted.update(task for one in begun for task in one["tasks"] if not (view.ready(task) or view.final(task)))
    return [task for task in view.tasks if task in wanted and view.intents[task]["want"] == "run"]


def missing(view: View) -> Optional[str]:
    """Who the start waits for, and why; None when it waits for nobody."""
    silent = unreached(view)
    if silent:
        where = view.coordinator["address"]
        return "%s: no word from %s yet (the agents dial %s)" % (_few(silent), _it(silent), where)
    tasks = awaited(view)
    if not tasks:
        return None
    return "; ".join(_why(view, task) for task in tasks[:3]) + (" ..." if len(tasks) > 3 else "")


def _why(view: View, task: str) -> str:
    entry, place = view.entry(task), view.roster[task]
    if not view.reached(task):
        return "%s: its host %s is away" % (task, place["host"])
    if entry["state"] == "running" and view.current(task):
        return "%s runs and does not listen on %s yet" % (task, place["address"])
    if entry["state"] == "backoff":
        return "%s is to start again: %s" % (task, entry["reason"])
    return "%s is %s" % (task, entry["state"])


def _few(names: List[str]) -> str:
    return ", ".join(names[:5]) + (" and %d more" % (len(names) - 5) if len(names) > 5 else "")


def _it(names: List[str]) -> str:
    return "it" if len(names) == 1 else "them"
