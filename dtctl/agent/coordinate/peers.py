"""What a task's peers tell of it: they have told steps, and it has not."""

from __future__ import annotations

from ..run.hangs import has_never_hung, trains_alone

START_S = 30.0
STARTS = 2
"""A start of a task may take so many times as long as the lead's, and so many seconds, until it has done nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional

    from .view import View

    Jobs = Dict[str, "_Job"]


def first_steps(view: View, host: str, jobs: Optional[Jobs] = None) -> Dict[str, float]:
    """Of the tasks of a host that might have hung since their start: how long their peers took for the first step.

    `jobs`: what is found out about each job on the way, for other hosts that are asked after at the same moment.
    """
    jobs = {} if jobs is None else jobs
    found = {task: _peers_took(view, task, jobs) for task in view.tasks_on(host) if _has_told_nothing(view, task)}
    return {task: took_s for task, took_s in found.items() if took_s is not None}


def _has_told_nothing(view: View, task: str) -> bool:
    """Where every step needs every worker, a silent one takes part in what its peers tell."""
    entry = view.entry(task)
    if entry["step"] is not None or entry["state"] != "running":
        return False
    return trains_alone(view.roster[task], view.spec["strategy"]) and has_never_hung(entry)


def _peers_took(view: View, task: str, jobs: Jobs) -> Optional[float]:
    """None where not every peer tells steps, unless it has never done anything while the lead trained."""
    lead_s = view.entry(view.lead)["first_step_s"]
    if lead_s and _has_done_nothing(view, task, lead_s):
        return lead_s
    name = task.partition(":")[0]
    if name not in jobs:
        jobs[name] = _Job(view, name)
    return jobs[name].others_took(task)


def _has_done_nothing(view: View, task: str, lead_s: float) -> bool:
    """Many programs let the lead alone speak. Who is idle since its start has not trained in silence either."""
    entry = view.entry(task)
    if entry["idle_since"] is None or entry["since"] is None:
        return False
    return entry["idle_since"] - entry["since"] <= START_S + STARTS * lead_s


class _Job:
    """Its workers, as they are now: they are gone through once, however many of them are asked after."""

    def __init__(self, view: View, name: str) -> None:
        alike = [task for task in view.with_role("worker") if task.partition(":")[0] == name]
        wanted = [task for task in alike if view.intents[task]["want"] == "run" and not view.final(task)]
        entries = {task: view.entry(task) for task in wanted}
        self._took = {task: entry["first_step_s"] for task, entry in entries.items()}
        self._silent = {task for task, entry in entries.items() if entry["step"] is None or not entry["first_step_s"]}

    def others_took(self, task: str) -> Optional[float]:
        """The longest; None where one has told nothing, and where there are no others."""
        if len(self._silent) > (task in self._silent):
            return None
        return max((took_s for other, took_s in self._took.items() if other != task), default=None)
