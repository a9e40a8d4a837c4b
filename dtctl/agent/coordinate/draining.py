"""Draining hosts for maintenance: holds their tasks, and those that cannot continue without them, until it is undone.

A task that its job has too many of is held in the same way, and so are those of a host that was given up where the
others may train without it (`min_workers`). What trains together is started again then, with those that take part.
Of a host that has no task it is only known that it is drained: it takes no place.

Servers are held when the others have ended, because those still save what is on them. After `undrain` all tasks that
need each other start at once, from the newest checkpoint, as soon as every one of their hosts is in touch.
"""

from __future__ import annotations

from ..records.kinds import made
from ..records.reasons import Fact, because, fact, why_of
from ..records.run_state import How
from ..records.spec import job_of, trainers_of
from ..records.whole_run import MOST_BAD_HOSTS
from ..run import bad_hosts, drains, gang
from ..run.outcome import Judgement
from .lifecycle import END_LIMIT_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Collection, Dict, List, Mapping, Optional, Tuple

    from ..records.run_state import Hold, Release
    from ..records.whole_run import BadHost, GoneHost
    from .contacts import Contacts
    from .view import View


RECONNECTED_S = 60.0
"""A host that was left out takes part again when it has been connected for so long."""


class Draining:
    """`record(kind, why, **fields)` adds to the run's history. Times are of the monotonic clock."""

    def __init__(
        self, view: View, contacts: Contacts, record: Callable[..., None], repair: Callable[[float], object]
    ) -> None:
        """`repair` has damaged checkpoints set aside, before the lead starts again; None until that is done."""
        self._view = view
        self._contacts = contacts
        self._record = record
        self._repair = repair
        self._since: Optional[float] = None
        """When servers began to wait for the other tasks to end."""
        self._cut_off: List[str] = []
        """Hosts that were cut off, and have reconnected since the last look."""
        self._connected_since: Dict[str, float] = {}
        """Hosts that were left out, and since when they are connected again."""

    def drain(self, host: str, how: How, now: float) -> None:
        """Holds all tasks that must pause while this host is drained. Does nothing if it is drained already."""
        kind = drains.DRAINED_ALONE if self.may_leave_out(host) else drains.DRAINED
        if not self._view.tasks_on(host):
            self._view.hosts[host]["drained"] = how["by"]
        elif host not in drains.drained_hosts(self._view.intents):
            drained = drains.holders(self._view.intents)
            self._hold(self._held({**drained, host: drains.of_host(kind, host, how["by"])}), how, now)

    def undrain(self, host: str, by: str) -> None:
        """Ends the drain of a host: tasks that nothing else holds may run again."""
        self._view.hosts[host]["drained"] = None
        self._release([host], by)

    def scale(self, job: str, count: int, how: How, now: float) -> None:
        """Holds the tasks of the job beyond the first `count`, and lets the others run again.

        The run may lack them (`gang.may_lack`).
        """
        over = drains.beyond(job, count, how["by"], self._view.present)
        too_many = drains.beyond(job, count, how["by"], self._view.tasks)  # also of hosts that have yet to connect
        rest = [task for task in drains.scaled_down(job, self._view.intents) if task not in too_many]
        self._release(rest, how["by"])
        self._hold(self._held({**drains.holders(self._view.intents), **over}), how, now)

    def _release(self, holders: Collection[str], by: str) -> None:
        """Ends the holds of these hosts and surplus tasks."""
        view = self._view
        rest = {name: one for name, one in drains.holders(view.intents).items() if name not in holders}
        held = self._held(rest)
        for task in view.present:
            intent = view.intents[task]
            gone = [hold["holder"] for hold in intent["holds"] if hold["holder"] in holders]
            if not drains.is_drained(intent) or not gone:
                continue
            host = next((name for name in reversed(gone) if name in view.hosts), None)
            together = drains.needs_the_run(view.roster[task], view.spec["strategy"])
            released: Release = {"host": host, "together": together}
            holds = held.get(task, [])
            why = drains.why_held(holds) or [self._why_released(released, by)]
            view.wanted([task], by=by, grace_s=None, holds=holds, released=released, **because(why))

    @staticmethod
    def _why_released(released: Release, by: str) -> Fact:
        if released["host"] is not None:
            return drains.why_released(released)
        return fact(drains.RESIZED) if released["together"] else fact(drains.SCALED_UP, by=by)

    def step(self, now: float) -> None:
        """Holds those that had to wait for others, or have joined, and lets those run that nothing holds any more."""
        for host in [name for name in drains.holders(self._view.intents) if name in self._view.hosts]:
            if drains.back_in_service(host, [self._view.intents[task] for task in self._view.tasks_on(host)]):
                self.undrain(host, host)
        self._take_back(now)
        drained = drains.holders(self._view.intents)
        held: Dict[str, List[Hold]] = {task: [] for task in self._resized()}
        how = made(How, by="coordinator", grace_s=None, **because([]))
        if drained:
            surplus = [one for one in drained.values() if one["kind"] == drains.SCALED_DOWN]
            for job, one in {
                job_of(one["holder"]): one for one in surplus
            }.items():  # also of hosts that have joined since
                drained = {**drains.beyond(job, one["count"] or 0, one["by"], self._view.present), **drained}
            intent = next(filter(drains.is_drained, self._view.intents.values()))
            how.update({"by": intent["by"], "grace_s": intent["grace_s"]})
            held.update(self._held(drained))
        if held:
            self._hold(held, how, now)
        returning = self.returning()
        if returning and all(self._is_cleared(task) for task in returning):
            if self._view.lead in returning and self._repair(now) is None:
                return
            for task in returning:
                was = self._view.intents[task]["released"]
                released: Release = {"host": was["host"] if was is not None else None, "together": False}
                why = drains.why_released(released) if released["host"] is not None else fact("restart")
                self._view.wanted([task], released=released, **because([why]))

    def may_leave_out(self, host: str) -> bool:
        """Whether the others can train without a host that was given up."""
        return gang.goes_on_without(self._view.spec, host, self._view.intents)

    def needs_one_of(self, now: float) -> Optional[Judgement]:
        """The end of the run, where it cannot continue without a host that was unreachable for too long."""
        for host, silent_s in self._gone(now).items():
            if not self.may_leave_out(host):
                gone: GoneHost = {"host": host, "seconds": silent_s}
                return Judgement("Failed", [fact("host_gone", **gone)], gone=gone)
        return None

    def leave_out_gone(self, now: float) -> None:
        """Lets the others train without such hosts, one after the other: then they may need the next one."""
        for host, silent_s in self._gone(now).items():
            if self.may_leave_out(host):
                self._leave_out(host, silent_s, now)

    def leave_out_bad(self, now: float, wall: float) -> None:
        """Lets the others train without a host that the last failures were all on, or warns that they cannot."""
        view, found, out = self._view, self._bad_host(), drains.holders(self._view.intents)
        for known in view.data["bad_hosts"]:
            is_out = known["host"] in out or known["host"] in view.data["moved"]["bad"]
            if not is_out and (found is None or found[0] != known["host"]):
                view.replace_alert("bad_host", None, known["host"])
        if found is None or found[0] in out:
            return
        host, count = found
        held = [task for task in gang.out_with(view.spec, host, view.intents) if view.roster[task]["host"] == host]
        left_out = self._may_lose(host)
        kind = drains.BAD_HOST if left_out else "bad_host_needed"
        why = fact(kind, host=host, tasks=held, count=count)
        if not view.replace_alert("bad_host", why, host):
            return
        if not any(one["host"] == host and one["left_out"] == left_out for one in view.data["bad_hosts"]):
            one: BadHost = {"host": host, "since": wall, "left_out": left_out, **because([why])}
            view.data["bad_hosts"] = [*view.data["bad_hosts"], one][-MOST_BAD_HOSTS:]
        self._record("decision", [why])
        if left_out:
            self._hold_host(host, drains.of_host(drains.BAD_HOST, host, "coordinator", why), now)

    def bad_hosts(self) -> List[str]:
        """Connected hosts with tasks that the last failures were all on, whether they were left out or not."""
        view = self._view
        named = [one["host"] for one in view.data["alerts"] if one["topic"] == "bad_host"]
        return [host for host in named if host in view.hosts and view.hosts[host]["connected"] and view.tasks_on(host)]

    def _bad_host(self) -> Optional[Tuple[str, int]]:
        """The host that is to blame for the last failures, and how many they are."""
        view, limit = self._view, self._view.recovery["bad_host"]
        others = {view.roster[task]["host"] for task in view.trainers} if limit else set()
        if len(others) < 2:
            return None
        # a task that fails on a second host, too, blames neither
        moved = {one["host"] for one in view.data["bad_hosts"]}
        tasks = [task for task in view.present if view.roster[task]["slot"] not in moved]
        histories = {task: (view.roster[task]["host"], view.entry(task)["history"]) for task in tasks}
        excused = {host: known["excused"] or 0.0 for host, known in view.hosts.items()}
        return bad_hosts.bad_host(bad_hosts.failures(histories, view.recovery, excused), limit)

    def _may_lose(self, host: str) -> bool:
        """Whether the others train without this host; tasks that train together only as the user allows it."""
        view = self._view
        if any(drains.needs_the_run(view.roster[task], view.spec["strategy"]) for task in view.tasks_on(host)):
            return self.may_leave_out(host)
        return gang.may_lack(view.spec, gang.out_with(view.spec, host, view.intents))

    def _gone(self, now: float) -> Dict[str, float]:
        """Hosts that were unreachable for `host_timeout_s` and are not left out yet, and for how long each was."""
        view, limit_s = self._view, self._view.recovery["host_timeout_s"]
        silent = {host: now - since for host, since in self._contacts.missed().items()} if limit_s is not None else {}
        late = [host for host, silent_s in silent.items() if silent_s >= (limit_s or 0.0) and self._takes_part(host)]
        left_out = drains.left_out_hosts(view.intents) if late else []
        return {host: silent[host] for host in late if host not in left_out}

    def _takes_part(self, host: str) -> bool:
        """Whether a task of the host takes part in the run; not if `scale` has stopped all of them."""
        every = [self._view.intents[task]["holds"] for task in self._view.tasks_on(host)]
        return any(all(one["kind"] != drains.SCALED_DOWN for one in holds) for holds in every)

    def _leave_out(self, host: str, silent_s: float, now: float) -> None:
        view, gone = self._view, gang.out_with(self._view.spec, host, self._view.intents)
        held = [task for task in view.tasks_on(host) if task in gone]
        if not held:
            return
        self._release([host], "coordinator")  # it may have held the others, too
        trains = trainers_of(view.roster.values(), view.lead)
        count = sum(task not in gone for task in trains)
        why = fact(drains.LEFT_OUT, host=host, tasks=held, seconds=silent_s, count=count, of=len(trains))
        view.replace_alert("left_out", why, host)
        self._record("decision", [why])
        self._hold_host(host, drains.of_host(drains.LEFT_OUT, host, "coordinator", why), now)

    def _hold_host(self, host: str, hold: Hold, now: float) -> None:
        how = made(How, by="coordinator", grace_s=None, **because([]))
        self._hold(self._held({**drains.holders(self._view.intents), host: hold}), how, now)

    def _take_back(self, now: float) -> None:
        """Lets hosts take part again that were left out, and have been connected for a while."""
        view, left_out = self._view, drains.left_out_hosts(self._view.intents)
        self._connected_since = {
            host: self._connected_since.get(host, now) for host in left_out if view.hosts[host]["connected"]
        }
        for host in [host for host, since in self._connected_since.items() if now - since >= RECONNECTED_S]:
            self.undrain(host, "coordinator")
        left_out = drains.left_out_hosts(view.intents)
        for alert in view.data["alerts"]:
            if alert["topic"] == "left_out" and alert["host"] not in left_out:
                view.replace_alert("left_out", None, alert["host"])

    def _resized(self) -> List[str]:
        """All that train together, where some of them run and others take part now than when those were started."""
        view = self._view
        out = gang.ranges(view.left_out())
        runs = [one for task in view.tasks for one in [view.intents[task]] if one["want"] == "run" and one["without"]]
        if not out and not runs:
            return []
        needed = [task for task in view.present if drains.needs_the_run(view.roster[task], view.spec["strategy"])]
        members = [task for task in needed if view.intents[task]["want"] != "stop" and not view.drained(task)]
        if all(view.intents[task]["want"] != "run" or view.intents[task]["without"] == out for task in members):
            return []
        return members

    def release_cut_off(self) -> None:
        """Lets hosts that have ended their tasks, and are connected again, have them: all that they held was held."""
        held = [host for host in drains.cut_off_hosts(self._view.intents) if self._view.hosts[host]["connected"]]
        for host in held:
            if host in self._cut_off:
                self.undrain(host, host)
        self._cut_off = held

    def returning(self) -> List[str]:
        """Tasks that nothing holds, and that wait until all of them that need each other can start."""
        return [task for task in self._view.present if drains.is_returning(self._view.intents[task])]

    def waits_for(self) -> List[Fact]:
        """The first host that returning tasks wait for."""
        away = [task for task in self.returning() if not self._view.reached(task)]
        return [fact("waits_for_host", task=task, host=self._view.roster[task]["host"]) for task in away[:1]]

    def _held(self, drained: Mapping[str, Hold]) -> Dict[str, List[Hold]]:
        """Every task that these holders hold, and the holds of each."""
        view = self._view
        members = [view.roster[task] for task in view.present]
        ended = {task for task in view.present if view.final(task)}
        return drains.held(drained, members, view.spec["strategy"], view.intents, ended)

    def _hold(self, held: Mapping[str, List[Hold]], how: How, now: float) -> None:
        """Holds these tasks. One without holds is held until all that train can restart in their new number."""
        view = self._view
        waits = self._servers_wait(list(held), how, now)
        new = []
        for task, holds in held.items():
            if drains.is_returning(view.intents[task]) and not holds:
                continue
            why = drains.why_held(holds) or [fact(drains.RESIZED)]
            if view.drained(task):
                if view.intents[task]["holds"] != holds:
                    view.wanted([task], holds=holds, **because(why))
            elif not (waits and view.roster[task]["serves"]):
                is_gang, is_bad = view.roster[task]["scope"] == "gang", drains.is_bad(holds)
                fields = drains.hold(view.intents[task], view.entry(task), gang=is_gang, failed=is_bad)
                released = None if holds else {"host": None, "together": True}
                how_held = {"holds": holds, "released": released, "grace_s": how["grace_s"], "by": how["by"]}
                view.wanted([task], **fields, **how_held, **because(why))
                new.append(task)
        going = [task for task in new if not view.final(task)]
        if new:
            self._leave_incidents(new)
        if not going:
            return
        first, why = held[going[0]], drains.why_held(held[going[0]])
        if not first:
            trains = trainers_of(view.roster.values(), view.lead)
            count = len(trains) - len(view.left_out())
            self._record("decision", [fact(drains.RESIZED), fact("sized", count=count, of=len(trains))])
        elif first[0]["kind"] not in (drains.LEFT_OUT, drains.BAD_HOST):
            self._record("decision", [*why, fact("holds", tasks=going)])

    def _servers_wait(self, held: List[str], how: How, now: float) -> bool:
        """Whether servers among these tasks wait for others that still run. Unreachable hosts are not waited for."""
        view = self._view
        going = [
            task
            for task in held
            if not view.roster[task]["serves"] and view.reached(task) and not (view.final(task) or view.idle(task))
        ]
        if not going:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        grace_s = view.spec["grace_s"] if how["grace_s"] is None else how["grace_s"]
        return now - self._since < grace_s + END_LIMIT_S

    def _leave_incidents(self, tasks: List[str]) -> None:
        """Removes these tasks from open incidents, which then no longer wait for them."""
        for one in list(self._view.open_incidents()):
            rest = [task for task in one["tasks"] if task not in tasks]
            if rest:
                one["tasks"] = rest
            else:
                one["given_up"] = because(why_of(self._view.intents[one["tasks"][0]]))

    def _is_cleared(self, task: str) -> bool:
        return self._view.reached(task) and (self._view.final(task) or self._view.idle(task))
