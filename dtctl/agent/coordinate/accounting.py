"""What the coordinator sees at each look of where the run's time goes (run/goodput.py judges it)."""

from __future__ import annotations

from ..records.reasons import headline
from ..run import goodput
from ..run.goodput import Seen
from ..run.hangs import STALLS
from . import incidents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Iterator, List, Tuple

    from ..records.goodput import Account
    from ..records.reasons import Fact
    from ..records.whole_run import Incident
    from .view import View

LOOK_S = 1.0
"""Between two looks: there is news of hundreds of agents all the time."""


class Accounting:
    """Of a run that has no account, as an earlier dtctl has begun it, none is kept."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._last = dict(_steps(view))
        self._passed_s = 0.0

    def missed(self, seconds: float) -> None:
        """Nobody looked for so long."""
        if self._view.data["account"] is not None:
            goodput.missed(self._view.data["account"], seconds)

    def look(self, passed_s: float, away: Collection[str]) -> None:
        """So long after it was called before. `away`: the hosts that are."""
        self._passed_s += passed_s
        account = self._view.data["account"]
        if account is not None and self._passed_s >= LOOK_S:
            self._look(account, away)

    def _look(self, account: Account, away: Collection[str]) -> None:
        steps = dict(_steps(self._view))
        told = {task: step for task, step in steps.items() if step != self._last.get(task)}
        lost = list(_interrupting(self._view))
        seen = Seen(
            self._situation(lost, away), told, self._last, bool(lost) or self._is_in(_LOST), self._is_hung(lost)
        )
        goodput.look(account, seen, self._passed_s)
        self._last.update(steps)
        self._passed_s = 0.0

    def close(self, outcome: str) -> List[Fact]:
        """Ends the account; where the time went, where that is known."""
        account = self._view.data["account"]
        if account is None:
            return []
        self._look(account, ())
        goodput.close(account, outcome, self._is_hung(list(_interrupting(self._view))))
        return goodput.told_in_short(goodput.parts(account)) if goodput.is_known(account) else []

    def _situation(self, lost: List[Incident], away: Collection[str]) -> str:
        view = self._view
        over = view.state(view.lead) == "succeeded"
        trainers = [] if over else [task for task in _trainers(view) if not view.final(task)]
        if not trainers:
            return "train"  # they have ended, and so has the run, as soon as it is judged
        if not lost and any(self._trains(task) for task in trainers):
            return "away" if away else "train"
        if away:
            return "away"
        if any(one["begun"] is None for one in lost):
            return "wait"
        begin = [task for task in trainers if view.current(task) and view.state(task) in ("starting", "running")]
        return "start" if begin else "wait"

    def _trains(self, task: str) -> bool:
        entry = self._view.entry(task)
        going = entry["state"] == "running" and not entry["asked"] and self._view.current(task)
        return going and entry["step"] is not None

    def _is_in(self, states: Collection[str]) -> bool:
        return not {self._view.state(task) for task in _trainers(self._view)}.isdisjoint(states)

    def _is_hung(self, lost: List[Incident]) -> bool:
        return self._is_in(("stalled",)) or any(headline(one["why"]) in STALLS for one in lost)


_LOST = ("backoff", "failed")


def _interrupting(view: View) -> Iterator[Incident]:
    """Open incidents in which nobody trains: of a ps, or of more than one task."""
    for one in incidents.still_open(view):
        if len(one["tasks"]) > 1 or view.role(one["task"]) == "ps":
            yield one


def _steps(view: View) -> Iterator[Tuple[str, int]]:
    for task in _trainers(view):
        step = view.entry(task)["step"]
        if step is not None:
            yield task, step


def _trainers(view: View) -> List[str]:
    return view.with_role("lead", "worker")
