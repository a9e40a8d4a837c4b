"""What a task's peers tell of it: they have told steps, and it has not."""

from __future__ import annotations

from ..run.limits import has_never_hung

START_S = 30.0
STARTS = 2
"""A start of a task may take so many times as long as the lead's, and so many seconds, until it has done nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from .view import View


def first_steps(view: View, host: str) -> Dict[str, float]:
    """Of the tasks of a host that might have hung since their start: how long their peers took for the first step."""
    found = {task: _peers_took(view, task) for task in view.tasks_on(host) if _has_told_nothing(view, task)}
    return {task: took_s for task, took_s in found.items() if took_s is not None}


def _has_told_nothing(view: View, task: str) -> bool:
    """Where every step needs every worker, a silent one takes part in what its peers tell."""
    entry = view.entry(task)
    is_alone = view.own(task) and view.role(task) == "worker" and view.spec["strategy"] != "sync-ps"
    return is_alone and entry["state"] == "running" and entry["step"] is None and has_never_hung(entry)


def _peers_took(view: View, task: str) -> Optional[float]:
    """None where not every peer tells steps, unless it has never done anything while the lead trained."""
    lead_s = view.entry(view.lead)["first_step_s"]
    if lead_s and _has_done_nothing(view, task, lead_s):
        return lead_s
    peers = [view.entry(other) for other in _peers(view, task)]
    if not peers or any(entry["step"] is None or not entry["first_step_s"] for entry in peers):
        return None
    return max(entry["first_step_s"] for entry in peers)


def _has_done_nothing(view: View, task: str, lead_s: float) -> bool:
    """Many programs let the lead alone speak. Who is idle since its start has not trained in silence either.

    The workers of a chief that drives them wait for it as long as it takes.
    """
    entry = view.entry(task)
    if entry["idle_since"] is None or entry["since"] is None or view.serves(task):
        return False
    return entry["idle_since"] - entry["since"] <= START_S + STARTS * lead_s


def _peers(view: View, task: str) -> List[str]:
    job = task.partition(":")[0]
    alike = [other for other in view.with_role("worker") if other.partition(":")[0] == job and other != task]
    return [other for other in alike if view.intents[other]["want"] == "run" and not view.final(other)]
