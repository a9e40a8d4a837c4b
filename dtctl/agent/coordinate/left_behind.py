"""Finds tasks that a cut of the network or the loss of a task has left hanging: their peers step again, they do not.

A session of TensorFlow's may wait for ever for an answer that was lost, and nobody waits for a worker of asynchronous
training. The cut or the loss is a fact that the coordinator has seen: a host was away, and is back; or a task that
others wait for was lost, and is back. The task's own agent decides in the end (`Watchdog`), as it alone sees whether
the task computes, loads or saves.
"""

from __future__ import annotations

from ..run.hangs import is_done, is_judged_by_progress, limit_after_cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

    from .view import View

SETTLE_S = 5.0
"""Steps that were made before the cut or the loss are reported by then."""

PEER_S = 30.0
"""A peer makes steps if its last one was reported not longer ago."""


class LeftBehind:
    """Times are of the monotonic clock. `hung`: task -> for how long at least it has made no step after a cut."""

    def __init__(self) -> None:
        self.hung: Dict[str, float] = {}
        self._cut: Optional[float] = None
        """When the last cut ended that was looked at."""
        self._since: Optional[float] = None
        """Since when all hosts are in touch, and nothing is being recovered, after that cut or a loss."""
        self._before: Dict[str, Tuple[int, Optional[int]]] = {}
        """Tasks that have made no step since: their attempts, and their steps."""
        self._peers: Dict[str, Tuple[Tuple[int, Optional[int]], float]] = {}
        """The attempt and the step of each task, and when that was new."""

    def update(self, view: View, cut_ended: Optional[float], now: float) -> None:
        """`cut_ended`: when a host was in touch again that had been away; None if none ever was."""
        if cut_ended != self._cut:
            self._cut, self._since, self._before, self._peers = cut_ended, now, {}, {}
        if view.is_recovering() or (self._since is not None and not view.all_in_touch()):
            self._since, self._before, self._peers, self.hung = now, {}, {}, {}
            return
        if self._since is None:
            self.hung = {}
            return
        if now - self._since < SETTLE_S:
            return
        if not self._peers:
            self._before = {task: _progress(view, task) for task in view.trainers if _may_hang(view, task)}
        for task in view.trainers:
            progress = _progress(view, task)
            if task not in self._peers:
                self._peers[task] = (progress, float("-inf"))
            elif progress != self._peers[task][0]:
                self._peers[task] = (progress, now)
                self._before.pop(task, None)
        self._before = {task: was for task, was in self._before.items() if _may_hang(view, task)}
        if not self._before:
            self._since = None
        newest = max((at for _, at in self._peers.values()), default=float("-inf"))  # those in `_before` made no step
        late = self._before if now - newest <= PEER_S else {}
        self.hung = {task: limit_s for task in late for limit_s in self._limit(view, task, now)}

    def _limit(self, view: View, task: str, now: float) -> Tuple[float, ...]:
        """The limit that the task has exceeded, if it has."""
        assert self._since is not None
        limit_s = limit_after_cut(view.entry(task), view.recovery)
        if limit_s is None:
            return ()
        return (limit_s,) if now - self._since >= limit_s else ()


def _progress(view: View, task: str) -> Tuple[int, Optional[int]]:
    entry = view.entry(task)
    return entry["attempt"], entry["step"]


def _may_hang(view: View, task: str) -> bool:
    """Whether it runs and has made steps of its own, of which more are to follow."""
    entry, member = view.entry(task), view.roster[task]
    runs = entry["state"] == "running" and view.reached(task) and view.current(task)
    trains = is_judged_by_progress(member) and entry["step"] is not None
    is_wanted = view.intents[task]["want"] == "run" and not is_done(entry["step"], view.spec["target_step"])
    return runs and trains and is_wanted
