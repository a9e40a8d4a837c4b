"""How long nobody may tell a step after what was lost is back: then the real culprit has not been found."""

from __future__ import annotations

from ..records.reasons import headline
from ..run.hangs import GAPS, LEAST_LEARNT_S, LOST_PROGRESS, patience
from . import incidents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.whole_run import Incident
    from .view import View

SILENCE_S = 120.0
"""A task that was restarted because it stalled, and is still silent after this long, was not the culprit."""


def after_a_hang(one: Incident) -> bool:
    return headline(one["why"]) in LOST_PROGRESS


def limit(view: View, one: Incident) -> Optional[float]:
    """Doubles with each restart of everybody in vain, as what is restored may take that long. None: for ever."""
    stall_s = view.recovery["stall_s"]
    if after_a_hang(one):
        limit_s = max(stall_s or 0.0, SILENCE_S)
    else:
        learnt_s = max(view.entry(task)["first_step_s"] for task in view.tasks)
        if stall_s == 0 or not learnt_s or _is_done(view):
            return None
        limit_s = max(LEAST_LEARNT_S if stall_s is None else max(stall_s, SILENCE_S), GAPS * learnt_s)
    return patience(limit_s, incidents.in_vain(view))


def all_are_there(view: View) -> bool:
    """Of those that others wait for each is in touch, and back from its loss."""
    there = all(view.reached(task) or view.final(task) for task in view.present if view.waited_for(task))
    return there and not incidents.is_mending(view)


def _is_done(view: View) -> bool:
    """The last step is told: what closes is silent."""
    step, target = view.step(), view.spec["target_step"]
    return step is not None and target is not None and step >= target
