"""Losses and what became of them: the entries of `incidents` in cluster.json."""

from __future__ import annotations

from ..records.reasons import because
from ..records.whole_run import tells_steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Set, TypedDict

    from ..records.reasons import Fact
    from ..records.whole_run import Incident
    from .view import View

    class Loss(TypedDict):
        """What an incident begins with: the attempt, and when it ended."""

        attempt: int
        ended: float


def opened(view: View, task: str, ending: Loss, why: List[Fact], tasks: List[str], wall: float) -> Incident:
    """A new incident, already among those of the view."""
    known = view.data["incidents"]
    incident: Incident = {
        "id": known[-1]["id"] + 1 if known else 1,
        "task": task,
        "host": view.roster[task]["host"],
        "attempt": ending["attempt"],
        "ended": ending["ended"],
        "noticed": wall,
        **because(why),
        "scope": view.roster[task]["scope"],
        "tasks": tasks,
        "own": view.own(task) and tasks == [task],
        "collateral": [],
        "step": view.step(),
        "told": {},
        "back_to": None,
        "begun": None,
        "recovered": None,
        "closed": None,
    }
    known.append(incident)
    return incident


def still_open(view: View) -> Iterator[Incident]:
    return (one for one in view.data["incidents"] if one["recovered"] is None and one["closed"] is None)


def waiting(view: View) -> Iterator[Incident]:
    """Incidents whose tasks are being cleared away, or wait for the end of a delay."""
    return (one for one in still_open(view) if one["begun"] is None)


def held(view: View) -> Set[str]:
    """Tasks that must not be released yet."""
    return {task for one in waiting(view) for task in one["tasks"]}


def of_task(view: View, task: str) -> Optional[Incident]:
    """The newest open incident that restarts this task."""
    found = [one for one in still_open(view) if task in one["tasks"]]
    return found[-1] if found else None


def begin(view: View, incident: Incident, wall: float) -> None:
    """From now on its tasks may start. Steps reported before now are no sign of recovery."""
    incident["begun"] = wall
    incident["told"] = {task: view.entry(task)["step"] for task in view.trainers}


def is_back(view: View, incident: Incident) -> bool:
    """Its tasks are ready again, or have ended."""
    return incident["begun"] is not None and all(view.ready(task) or view.final(task) for task in incident["tasks"])


def is_recovering(view: View) -> bool:
    """A task that others wait for is not back yet."""
    lost = [one for one in still_open(view) if not is_back(view, one)]
    return any(view.waited_for(task) for one in lost for task in one["tasks"])


def trains_again(view: View, incident: Incident) -> bool:
    """Its tasks are there, and a step was reported since (in a run whose programs report steps)."""
    if not is_back(view, incident):
        return False
    if not tells_steps(incident):
        return True
    before = incident["told"]
    return any(view.entry(task)["step"] not in (None, before.get(task)) for task in view.trainers)
