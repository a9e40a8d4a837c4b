"""Ends a run whose outcome is decided on every host: servers last, and no host forgotten."""

from __future__ import annotations

from ..records.reasons import because, fact, why_of
from ..run import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..records.reasons import Because
    from ..records.run_state import How
    from .view import View

END_LIMIT_S = 15.0
"""How long servers wait for the others after the grace period: what is left then cannot be ended."""


class Shutdown:
    """Shuts down one decided run; times are of the monotonic clock. In the end every task's intent is `stop`."""

    def __init__(self, view: View, now: float) -> None:
        self._view = view
        self._since = now
        self._stopped: Optional[float] = None
        self._well = view.data["condition"]["type"] == "Succeeded"
        self._how: How = {"grace_s": None, "by": "coordinator", **self._why}
        if self._well:  # from now on whatever ends stays ended
            view.wanted(self._not_stopped(), want="finish", by="coordinator", **self._why)

    def hurry(self, how: How, now: float) -> None:
        """A person asks for the end of everything: nobody is waited for. `how`: grace_s, why and by."""
        self._how = how
        self._stop(self._ending())  # they may be given less time than before
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
        self._stop(ending.first(self._view.roster.values(), self._not_stopped()))

    def host_is_done(self, host: str) -> bool:
        """Every task there has ended, and nothing more will be asked of its agent."""
        view, tasks = self._view, self._view.tasks_on(host)
        return all(view.final(task) and view.intents[task]["want"] == "stop" for task in tasks)

    @property
    def _why(self) -> Because:
        condition = self._view.data["condition"]
        over = fact("run_%s" % condition["type"].lower())
        return because([over] if self._well else [over, *why_of(condition)])

    def _settled(self, now: float) -> bool:
        """After a success the other tasks may come to their own end."""
        return not (self._well and self._others()) or now - self._since >= self._view.spec["settle_s"]

    def _others(self) -> List[str]:
        """Tasks that still run and are not servers. Hosts that are away are not waited for: they are told later."""
        view = self._view
        return [task for task in view.tasks if not (view.final(task) or view.serves(task)) and view.reached(task)]

    def _not_stopped(self) -> List[str]:
        return [task for task in self._view.tasks if self._view.intents[task]["want"] != "stop"]

    def _ending(self) -> List[str]:
        stopped = [task for task in self._view.tasks if self._view.intents[task]["want"] == "stop"]
        return [task for task in stopped if not self._view.final(task)]

    def _stop(self, tasks: List[str]) -> None:
        self._view.wanted(tasks, want="stop", **self._how)
