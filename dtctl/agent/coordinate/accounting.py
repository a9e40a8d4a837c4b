"""The account of where the run's time goes, by what agents report of attempts and steps, and when these were.

An update replays the starts, steps and ends of attempts since the update before, each at its own time: however quickly
a task restarts, an attempt has its own startup, and does again what an earlier one had done.
"""

from __future__ import annotations

from ..records.run_state import on_clock
from ..records.whole_run import clock_ahead_s
from ..run import drains, goodput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, Iterator, List, Optional, Union

    from ..records.reasons import Fact
    from ..records.run_state import Entry, Past
    from ..records.whole_run import Account, Incident
    from .view import View

LOOK_S = 1.0
"""The least interval between two updates, because hundreds of agents send news all the time."""


class Move:
    """The start, a step, or the end of an attempt. `time`: in epoch seconds of the coordinator's host."""

    __slots__ = ("attempt", "hung", "kind", "lost", "step", "task", "time")

    def __init__(self, kind: str, task: str, attempt: int, time: float) -> None:
        self.kind = kind
        self.task = task
        self.attempt = attempt
        self.time = time
        self.step = 0
        self.lost = self.hung = False


class Accounting:
    """Keeps the goodput account of a run; not for a run without one, which an earlier dtctl has started."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._begun: Dict[str, int] = {}
        """The newest attempt of each trainer whose start is accounted for."""
        self._ended: Dict[str, int] = {}
        self._last: Dict[str, int] = {}
        """The last step of each attempt that runs."""
        self._passed_s = 0.0
        self._situation_before = "wait"
        for task in view.trainers:
            entry = view.entry(task)
            self._begun[task] = entry["attempt"]
            self._ended[task] = max([past["attempt"] for past in entry["history"]], default=0)
            if entry["step"] is not None and entry["attempt"] > self._ended[task]:
                self._last[task] = entry["step"]

    def missed(self, seconds: float) -> None:
        """Accounts for a time without a coordinator."""
        if self._view.data["account"] is not None:
            goodput.missed(self._view.data["account"], seconds)

    def update(self, passed_s: float, away: Collection[str], wall: float) -> None:
        """Updates the account, `passed_s` seconds after the last call. `away`: the unreachable hosts."""
        self._passed_s += passed_s
        account = self._view.data["account"]
        if account is not None and self._passed_s >= LOOK_S:
            self._update(account, away, wall)

    def _update(self, account: Account, away: Collection[str], wall: float) -> None:
        now_s, self._passed_s = account["seconds"] + self._passed_s, 0.0
        lost = list(_interrupting(self._view))
        moves = self._moves(wall)
        if moves:
            goodput.rewind(account, now_s - (wall - moves[0].time))
        for move in moves:
            self._take(account, move, min(now_s, now_s - (wall - move.time)), bool(away), lost)
        situation, is_lost = self._situation(lost, away), bool(lost) or self._is_in(_LOST)
        if situation == "start" and account["training"] and moves and moves[-1].kind == "step":
            situation = "train"  # the step shows it, before the incident counts as over
        rest_s = max(0.0, now_s - account["seconds"])
        goodput.account_for(account, rest_s, situation, {}, self._last, lost=is_lost, hung=self._is_hung(lost))
        self._situation_before = situation

    def _take(self, account: Account, move: Move, at_s: float, away: bool, lost: List[Incident]) -> None:
        """Accounts for the time until a move, and for the move."""
        during = self._situation_before
        if account["training"]:
            during = "away" if away else "train"
        goodput.account_for(account, max(0.0, at_s - account["seconds"]), during, {}, self._last)
        if move.kind == "begin":
            self._begun[move.task] = move.attempt
            self._situation_before = "train" if account["training"] else "start"
        elif move.kind == "end":
            self._ended[move.task] = move.attempt
            self._last.pop(move.task, None)
            self._end(account, move, lost)
        else:
            if move.step < self._last.get(move.task, 0):  # its program has begun again by itself
                self._last.pop(move.task)
                self._end(account, move, lost)
            goodput.account_for(account, 0.0, "train", {move.task: move.step}, self._last)
            self._last[move.task] = move.step

    def _end(self, account: Account, move: Move, lost: List[Incident]) -> None:
        """Interrupts the training where no other task goes on with it. The end of a task for good ends no training."""
        view, task = self._view, move.task
        if move.kind == "end" and view.final(task) and view.entry(task)["attempt"] == move.attempt:
            return
        together = any(task in one["tasks"] for one in lost)
        if account["training"] and (together or not self._last):
            goodput.account_for(account, 0.0, "wait", {}, self._last, lost=move.lost, hung=move.hung)
        self._situation_before = "train" if account["training"] else "wait"

    def _moves(self, wall: float) -> List[Move]:
        """What has happened since the last update, in the order of time."""
        found: List[Move] = []
        for task in self._view.trainers:
            entry = on_clock(self._view.entry(task), clock_ahead_s(self._view.host_of(task)))
            time = 0.0
            for move in self._moves_of(task, entry, wall):
                time = move.time = max(time, move.time)
                found.append(move)
        return sorted(found, key=lambda move: move.time)

    def _moves_of(self, task: str, entry: Entry, wall: float) -> Iterator[Move]:
        begun, ended = self._begun[task], self._ended[task]
        for past in entry["history"]:
            number = past["attempt"]
            if number <= ended:
                continue
            if number > begun:
                yield Move("begin", task, number, past["started"])
            yield from self._steps(task, number, past, past["ended"])
            end = Move("end", task, number, past["ended"])
            end.lost, end.hung = not past["asked"] and past["code"] != 0, past["hung"]
            yield end
            begun = ended = number
        if entry["attempt"] > ended:
            if entry["attempt"] > begun:
                yield Move("begin", task, entry["attempt"], entry["since"] or wall)
            yield from self._steps(task, entry["attempt"], entry, wall)

    def _steps(self, task: str, attempt: int, known: Union[Past, Entry], until: float) -> Iterator[Move]:
        """The first step of an attempt and its last, if they are new. `until`: the time of one that has none."""
        step, time = known["step"], known["step_time"]
        last = self._last.get(task) if attempt == self._begun[task] else None
        if step is None or step == last:
            return
        first, first_time = known["first_step"], known["first_step_time"]
        if last is None and first is not None:
            if first_time is None:
                return  # it follows soon
            if first < step:
                move = Move("step", task, attempt, first_time)
                move.step = first
                yield move
        move = Move("step", task, attempt, time if time is not None else until)
        move.step = step
        yield move

    def close(self, outcome: str, wall: float) -> None:
        """Ends the account with the outcome of the run."""
        account = self._view.data["account"]
        if account is not None:
            self._update(account, (), wall)
            goodput.close(account, outcome, self._is_hung(list(_interrupting(self._view))))

    def spent(self, outcome: str, saved: Optional[int]) -> List[Fact]:
        """Where the time went, where that is known. `saved`: the step of the newest checkpoint."""
        account = self._view.data["account"]
        if account is None or not goodput.is_known(account):
            return []
        counts = outcome != "Succeeded" and self._view.step() is not None
        return goodput.summary(goodput.parts(account, saved if counts else None))

    def _situation(self, lost: List[Incident], away: Collection[str]) -> str:
        view = self._view
        over = view.state(view.lead) == "succeeded"
        trainers = [] if over else [task for task in view.trainers if not view.final(task)]
        if not trainers:
            return "train"  # they have ended, and so has the run, as soon as it is judged
        if all(view.drained(task) for task in trainers):
            return "pause" if drains.drained_hosts({task: view.intents[task] for task in trainers}) else "away"
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
        return not {self._view.state(task) for task in self._view.trainers}.isdisjoint(states)

    def _is_hung(self, lost: List[Incident]) -> bool:
        return self._is_in(("stalled",)) or any(one["loss"] == "hung" for one in lost)


_LOST = ("backoff", "failed")


def _interrupting(view: View) -> Iterator[Incident]:
    """Open incidents in which no task trains: of a ps, or of more than one task."""
    for one in view.open_incidents():
        if len(one["tasks"]) > 1 or view.role(one["task"]) == "ps":
            yield one
