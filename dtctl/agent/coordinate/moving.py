"""Spares that take the places of lost hosts: when, which of them, and what is restarted; and hosts that join as such.

A host that was unreachable for `replace_s` has ended its tasks by then (fence.py). Its slots are moved, with what its
loss restarts, and nothing else is decided until a majority of the voters knows it: then every agent restarts
(leading.py, run/intents.py). So the next coordinator finds the losses as incidents that wait for their hosts.

If another coordinator may have existed meanwhile, absences count from zero: the host may have been connected to that
one.
"""

from __future__ import annotations

from ..records.kinds import InvalidValue
from ..records.reasons import Fact, fact, sentence
from ..run import drains, gang

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set

    from ..records.spec import Moved, Spare
    from ..run.outcome import Judgement
    from .contacts import Contacts
    from .recovery import Recovery
    from .view import View


class Moving:
    """`term`: that of the coordinator while it has its lease; None: no other host may take any place. `release`: lets
    what a host holds run again.
    """

    def __init__(
        self,
        view: View,
        recovery: Recovery,
        contacts: Contacts,
        record: Callable[..., None],
        release: Callable[[str, str], None],
        term: Optional[Callable[[float], Optional[int]]] = None,
    ) -> None:
        self._view = view
        self._recovery = recovery
        self._contacts = contacts
        self._record = record
        self._release = release
        self._term_of_lease = term
        self._limit_s = view.recovery["replace_s"] if term is not None else None
        self._term = view.data["moved"]["term"] if self._waits() else None
        """The last one in which no other can have coordinated meanwhile."""
        self._anew_at: Optional[float] = None

    def step(self, missed: Mapping[str, float], now: float, wall: float) -> Optional[Judgement]:
        """`missed`: unreachable hosts with tasks, and since when. A judgement where a loss ends the run."""
        term = self._term_of_lease(now) if self._term_of_lease is not None else None
        if term is None:
            return None
        if self._term is None or term not in (self._term, self._term + 1):
            self._contacts.count_anew(now)
            self._anew_at = now
            missed = {}
        self._term = term
        if self._limit_s is None:
            return None
        lost = [host for host, since in missed.items() if now - since >= self._limit_s]
        moves: Dict[str, str] = {}
        for host in lost:
            moves.update(self._places_for(host, moves))
        for host in self._view.hosts.keys() - set(lost):
            self._view.replace_alert("no_spare", None, host)
        return self._move(moves, missed, term, now, wall) if moves else None

    def replace_bad(self, bad: Iterable[str], now: float, wall: float) -> Optional[Judgement]:
        """Lets spares take the places of hosts on which tasks fail again and again, once nothing runs or starts there.

        `bad`: connected hosts. A judgement where that ends the run.
        """
        term = self._term_of_lease(now) if self._term_of_lease is not None else None
        if term is None or self._limit_s is None:
            return None
        moves: Dict[str, str] = {}
        ready = [host for host in bad if all(map(self._is_at_rest, self._view.tasks_on(host)))]
        for host in ready:
            moves.update(self._places_for(host, moves, is_bad=True))
        return self._move(moves, dict.fromkeys(ready, now), term, now, wall, bad=ready) if moves else None

    def _is_at_rest(self, task: str) -> bool:
        """Whether it does not run, and its agent does not start it by itself."""
        view = self._view
        waits = view.state(task) == "backoff" and not view.own(task)
        return view.final(task) or waits or (view.idle(task) and view.intents[task]["want"] == "hold")

    def join(self, hosts: Mapping[str, Spare], replace_s: Optional[float], now: float) -> Optional[Fact]:
        """Makes these hosts spares of the run, as soon as a majority of the voters knows it. Returns why it does not.

        The term of the last move stays: absences count on from it.
        """
        view, before, text = self._view, self._view.data["moved"], ", ".join(hosts)
        if self._term_of_lease is None or self._term_of_lease(now) is None:
            return fact("cannot_join", text=text)
        joined = {**before["joined"], **{host: one for host, one in hosts.items() if host not in before["joined"]}}
        after: Moved = {**before, "number": before["number"] + 1, "joined": joined}
        if after["replace_s"] is None:
            after["replace_s"] = replace_s
        try:
            gang.check_joined(view.spec, after)
        except InvalidValue as wrong:
            return fact("never_joins", text=text, what=str(wrong))
        if joined != before["joined"]:
            view.data["moved"] = after  # the next agent here adds them to the hosts
        return None

    def trust(self, host: str, now: float) -> Optional[Fact]:
        """Lets a host that was replaced for the failures on it take part again. Returns why it does not.

        The host's own agent receives it as it does every move, and so the next `up` knows it.
        """
        moved = self._view.data["moved"]
        if host not in moved["bad"]:
            return None
        if self._term_of_lease is None or self._term_of_lease(now) is None:
            return fact("cannot_trust", host=host)
        rest = [other for other in moved["bad"] if other != host]
        self._view.data["moved"] = {**moved, "number": moved["number"] + 1, "bad": rest}
        return None

    def awaits_fence(self, now: float) -> bool:
        """Whether moves of an earlier coordinator wait again: the lost host may have reached another one later."""
        is_new = self._anew_at is not None and now - self._anew_at < (self._limit_s or 0.0)
        return is_new and self._waits()

    def _waits(self) -> bool:
        return any(one["loss"] == "moved" for one in self._view.waiting_incidents())

    def _places_for(self, host: str, moves: Mapping[str, str], *, is_bad: bool = False) -> Dict[str, str]:
        """Slot of the lost host -> host that takes it. `is_bad`: no warning where none does, but that of the host."""
        found: Dict[str, str] = {}
        for slot in self._slots_on(host):
            tasks = [task for task in self._tasks_in(slot) if self._is_wanted(task, host, is_bad=is_bad)]
            if not tasks:
                continue
            others = [other for other in dict.fromkeys([slot, *self._view.spec["spares"]]) if other != host]
            why = {other: self._unfit(other, slot, tasks) for other in others}
            fit = [other for other in why if why[other] is None]
            taken = [*moves.values(), *found.values()]
            load = {other: len(self._slots_on(other)) + taken.count(other) for other in fit}
            best = min(fit, key=lambda other: (other != slot, load[other]), default=None)
            if best is not None:
                found[slot] = best
            elif not is_bad:
                self._warn(host, [one for one in why.values() if one is not None])
        if found:
            self._view.replace_alert("no_spare", None, host)
        return found

    def _warn(self, host: str, why: List[Fact]) -> None:
        several = [one for each in why for one in (fact("and"), each)][1:]
        warning = fact("no_spare", host=host, text=sentence(several or [fact("none_left")]))
        if self._view.replace_alert("no_spare", warning, host):
            self._record("decision", [warning])

    def _slots_on(self, host: str) -> List[str]:
        return list(dict.fromkeys(self._view.slot(task) for task in self._view.tasks_on(host)))

    def _tasks_in(self, slot: str) -> List[str]:
        return [task for task in self._view.tasks if self._view.slot(task) == slot]

    def _is_wanted(self, task: str, lost: str, *, is_bad: bool = False) -> bool:
        """Whether the task should run; also if the lost host itself holds it, because it shut down or was cut off.

        `is_bad`: also if it has failed there for good.
        """
        view, intent = self._view, self._view.intents[task]
        has_ended = view.final(task) and view.current(task) and not (is_bad and view.state(task) == "failed")
        is_done = intent["want"] == "stop" or has_ended
        return not is_done and not drains.holders({task: intent}).keys() - self._held_by_itself(lost)

    def _held_by_itself(self, host: str) -> Set[str]:
        one = drains.holders(self._view.intents).get(host)
        own = (drains.SHUTTING_DOWN, drains.CUT_OFF, drains.LEFT_OUT, drains.BAD_HOST)
        return {host} if one is not None and one["kind"] in own else set()

    def _unfit(self, host: str, slot: str, tasks: Iterable[str]) -> Optional[Fact]:
        """Why it cannot take them."""
        view, known = self._view, self._view.hosts[host]
        spare = view.spec["spares"].get(host)
        if known["absent"] or not known["connected"]:
            return fact("spare_away", host=host)
        is_out = known["drained"] is not None or host in view.data["moved"]["bad"]
        if is_out or host in drains.holders(view.intents):
            return fact("spare_drained", host=host)
        if host != slot and (spare is None or not all(task in spare["addresses"] for task in self._tasks_in(slot))):
            return fact("spare_unfit", host=host)
        if view.spec["keeps_checkpoints_by_url"] or not any(map(self._needs_checkpoints, tasks)):
            return None
        unseen = known["state"]["unseen"] if known["state"] is not None else None
        if unseen is None:
            return fact("spare_unsure", host=host)
        return fact("spare_blind", host=host, what=unseen[0]) if unseen else None

    def _needs_checkpoints(self, task: str) -> bool:
        return not self._view.own(task) or self._view.role(task) == "evaluator"

    def _move(
        self,
        moves: Mapping[str, str],
        missed: Mapping[str, float],
        term: int,
        now: float,
        wall: float,
        *,
        bad: Sequence[str] = (),
    ) -> Optional[Judgement]:
        """`bad`: hosts among `missed` that are connected, and that failures are blamed on."""
        view, before = self._view, self._view.data["moved"]
        restart: Dict[str, List[Fact]] = {}
        for slot, host in moves.items():
            lost = view.roster[self._tasks_in(slot)[0]]["host"]
            is_bad = lost in bad
            why = [fact("takes_place", what=lost, host=host, seconds=now - missed[lost])]
            if is_bad:
                why = [fact("takes_bad_place", what=lost, host=host)]
            for holder in self._held_by_itself(lost):
                self._release(holder, "coordinator")
            wanted = [task for task in self._tasks_in(slot) if self._is_wanted(task, lost, is_bad=is_bad)]
            restart.update(dict.fromkeys(wanted, why))
            done = [task for task in self._tasks_in(slot) if not (task in wanted or view.drained(task))]
            view.wanted(done, want="stop", by="coordinator")
        failure = self._recovery.move(restart, now, wall, blames_host=bool(bad))
        for slot in moves:
            for task in self._tasks_in(slot):
                last = max(view.entry(task)["attempt"], view.intents[task]["after"])
                view.wanted([task], after=last)
        after: Moved = {**before, "number": before["number"] + 1, "term": term, "slots": {**before["slots"], **moves}}
        after["slots"] = {slot: host for slot, host in after["slots"].items() if slot != host}
        if failure is None:
            view.data["moved"] = after
            for host in missed.keys() - set(bad):
                view.hosts[host]["silent_s"] = now - missed[host]
            after["bad"] = [*before["bad"], *(host for host in bad if host not in before["bad"])]
            for host in bad:
                view.hosts[host]["drained"] = "coordinator"  # it becomes no spare before a person undrains it
                new = dict.fromkeys(other for slot, other in moves.items() if slot in self._slots_on(host))
                view.replace_alert("bad_host", fact("bad_host_replaced", what=host, host=", ".join(new)), host)
        return failure
