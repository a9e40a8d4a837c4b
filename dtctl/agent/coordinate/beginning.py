"""A run that has never begun to train: everybody is there, and nobody does anything any more.

Where every step needs every worker, one that hangs before the first step silences all of them, and no peer can teach
how long a first step takes. What can be seen is that nobody works: who loads, compiles or computes uses a processor, a
disk or the network, and who waits for others complains of them or is silent.
"""

from __future__ import annotations

from ..records.reasons import headline
from . import incidents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from .view import View

NEVER_BEGAN_S = 600.0
"""So long nobody may do anything at all."""

KIND = "never_began"


class Beginning:
    """For how long nobody has worked in a run that has told no step, by the coordinator's own monotonic clock."""

    def __init__(self) -> None:
        self._since: Optional[float] = None

    def look(self, view: View, now: float) -> Optional[float]:
        """Seconds, once they are too many. Once in a run: what is silent again may be a program that only waits."""
        if not (_may_be_judged(view) and _nobody_works(view)):
            self._since = None
            return None
        self._since = now if self._since is None else self._since
        idle_s = now - self._since
        return idle_s if idle_s >= NEVER_BEGAN_S else None


def whom_to_restart(view: View, *, saved: bool) -> List[str]:
    """Everybody who trains. The ps tasks stay where nothing is saved: one that was trained in silence has it all."""
    roles = ("lead", "worker", "ps") if saved else ("lead", "worker")
    return [task for task in view.with_role(*roles) if view.intents[task]["want"] == "run"]


def _may_be_judged(view: View) -> bool:
    """Where the user has set a limit, or none, that holds. Programs that serve nobody may wait for anything."""
    recovery = view.recovery
    learns = recovery["first_step_s"] is None and recovery["stall_s"] != 0
    lead = next((task for task in view.spec["tasks"] if task["id"] == view.lead), None)
    listens = lead is not None and lead["ready"] == "listening"
    is_new = not any(headline(one["why"]) == KIND for one in view.data["incidents"])
    return learns and listens and is_new and not _has_told_steps(view)


def _has_told_steps(view: View) -> bool:
    entries = [view.entry(task) for task in view.tasks]
    return any(
        entry["step"] is not None or any(past["step"] is not None for past in entry["history"]) for entry in entries
    )


def _nobody_works(view: View) -> bool:
    """Of those who were let start, each runs, and is idle: the one that hangs may not listen yet.

    An evaluator waits for what others save.
    """
    if any(incidents.still_open(view)):
        return False
    there = [task for task in view.present if view.role(task) != "evaluator" and not view.final(task)]
    return bool(there) and all(_is_idle(view, task) for task in there)


def _is_idle(view: View, task: str) -> bool:
    runs = view.reached(task) and view.current(task) and view.state(task) == "running"
    return runs and view.entry(task)["idle_since"] is not None
