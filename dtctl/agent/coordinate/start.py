"""The order of start: a held task is released when the tasks before it are ready. Also after a restart."""

from __future__ import annotations

from ..records.reasons import fact, why_of
from . import incidents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, List

    from ..records.reasons import Fact
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
