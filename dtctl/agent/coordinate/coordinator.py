"""The coordinator's decisions: a state machine that receives the hosts' states and orders what their tasks do.

It neither reads a clock nor a file nor a socket; `leading.py` does that around it.

    starting   -> running      every task runs, or was ordered to, and those that it needs are ready
    running    -> recovering   a task was lost, and is restarted with all that must be restarted with it
    recovering -> running      it trains again
    any        -> finishing    the outcome is decided; what still runs is brought to its end
    finishing  -> ended        nothing is left on any host that can be reached
"""

from __future__ import annotations

from ..records.kinds import made
from ..records.reasons import Fact, because, fact, why_of
from ..records.run_state import How
from ..records.spec import Spec, added_by, fence_s, voters_of
from ..records.whole_run import MOST_CONDITIONS, HistoryEvent, PostedRequest, RunView
from ..run import drains, gang, intents, outcome
from ..run.outcome import Facts, Judgement
from . import lifecycle
from .accounting import Accounting
from .contacts import Contacts, Quorum
from .draining import Draining
from .left_behind import LeftBehind
from .lifecycle import Shutdown
from .moving import Moving
from .orders import OrderBook
from .recovery import Recovery, Services
from .view import View, as_surplus, awaited_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

    from ..link.peer import FromHub
    from ..records.messages import Orders
    from ..records.run_state import Intent, State

LONGEST_GAP_S = 60.0
"""The longest time between two steps; more was a sleep of the machine, which no deadline counts."""

COME_S = 10.0
"""Agents that have just been started dial some times meanwhile."""

LONGEST_ABSENCE_S = 30 * 86400.0
"""The longest time without a coordinator that is counted; a longer one means that the clock was set."""


class Coordinator:
    """`data` is cluster.json. `history` collects lines for history.jsonl, with `wall` (epoch seconds) as their time."""

    def __init__(
        self,
        spec: Spec,
        data: RunView,
        services: Services,
        now: float,
        has_lease: Optional[Callable[[float], bool]] = None,
        term: Optional[Callable[[float], Optional[int]]] = None,
    ) -> None:
        """`term`: while it has its lease."""
        self.view = View(spec, data)
        self.history: List[HistoryEvent] = []
        self._spec = spec
        self._services = services
        self._recovery = Recovery(self.view, services, self._record)
        self._shutdown: Optional[Shutdown] = None
        self._stop_requested = False
        self.wall = data["time"]
        self._now = self._began = self._last_joined = now
        self._voters = {voter["host"] for voter in voters_of(spec)} - {self.view.own_host}
        self._lost_sessions: Set[str] = set()
        self._kept = False
        """Whether the run is kept on the coordinator's own host, which decides it for all hosts."""
        self._unready: Dict[str, float] = {}
        self._book = OrderBook(self.view)
        self.contacts = Contacts(self.view, self._record)
        self._draining = Draining(self.view, self.contacts, self._record, self._recovery.repair_checkpoints)
        self._quorum = Quorum(self.view, has_lease)
        self._moving = Moving(self.view, self._recovery, self.contacts, self._record, self._draining.undrain, term)
        self._accounting = Accounting(self.view)
        self._left_behind = LeftBehind()
        self._rebuilt = False

    @property
    def decided(self) -> bool:
        """The outcome is certain."""
        return self.view.data["phase"] in ("finishing", "ended")

    @property
    def may_start(self) -> bool:
        """The run is still this coordinator's, as far as can be known."""
        return self._quorum.may_start

    @property
    def over(self) -> bool:
        """No other host needs this coordinator any more."""
        own, hosts = self.view.own_host, self.view.hosts
        others = (host for host in hosts if host != own and not hosts[host]["over"])
        return self.decided and self._is_done(own) and all(map(self._is_given_up, others))

    def _is_given_up(self, host: str) -> bool:
        """A host that is absent, or has been away since long before now, is not waited for at the end.

        Of a run that was not kept, neither is one that has rolled back, or did not come in the time in which agents
        dial. Where the controller has cancelled the start, it has sent that to all.
        """
        known = self.view.hosts[host]
        if not known["connected"] and not (known["state"] and known["state"]["tasks"]) and not self.view.tasks_on(host):
            return True  # a spare that has nothing to end
        if not (self._kept or known["connected"]):
            is_cancelled = self.view.data["condition"]["start"] == "cancelled"
            if self._takes_back(host) if known["state"] else is_cancelled or self._now - self._began >= COME_S:
                return True
        is_long_away = self.wall - (known["heard"] or self.view.data["time"]) > intents.AWAIT_S
        return known["absent"] or (not known["connected"] and is_long_away)

    def receive(self, host: str, message: FromHub, now: float, wall: float) -> bool:
        """hello, state, progress and gone; events go into the history without passing here.

        False when nothing follows from it.
        """
        self.wall = wall
        known = self.view.hosts[host]
        if message["type"] == "gone":
            is_done = self._book.is_over(host) and self._is_done(host)
            since = message["last_received"]
            self.contacts.lose(host, since, message["reason"], is_done, heard=wall - max(0.0, now - since))
            self.view.hosts[host]["inactive"] = all(map(self._is_at_rest, self.view.tasks_on(host)))
            if not is_done and self._has_cancelled_join(host):
                self._forget(host)
            return True
        if message["type"] == "progress":
            known["heard"] = wall
            self.view.advance(host, message)
            return self._ends_an_incident(host)
        if message["type"] != "hello" and message["type"] != "state":
            return False
        before, known["heard"] = known["state"], wall
        if message["type"] == "hello":
            self.contacts.greet(host, now)
            self._book.forget(host, kept=message["kept"])
        if before is not None and before["tasks"] and not message["state"]["tasks"] and not self.view.tasks_on(host):
            self.contacts.note_replaced(host, before["tasks"])
        known["state"] = message["state"]
        if before is None:
            self._last_joined = now
            if self._rebuilt:
                self._recovery.ignore_past(self.view.tasks_on(host))
        if message["lost_session"]:
            self._lost_sessions.add(host)
        if host == self.view.own_host:
            self._kept = message["kept"]
        self._merge_intents(host, message["intents"], now)
        if message["type"] == "state" and before is not None and _fingerprint(before) == _fingerprint(message["state"]):
            return self._ends_an_incident(host) or message["lost_session"]
        return True

    def _is_at_rest(self, task: str) -> bool:
        """Whether it does not run, and its agent starts it no more by itself."""
        is_held = self.view.state(task) == "pending" and self.view.drained(task)
        return is_held or (self.view.final(task) and self.view.current(task))

    def _ends_an_incident(self, host: str) -> bool:
        """How far tasks are decides nothing else: the rest of a recovery follows from their states, and from time."""
        return self.view.has_new_steps(host) and any(map(self.view.is_back, self.view.open_incidents()))

    def _has_cancelled_join(self, host: str) -> bool:
        """Whether the host joined a run that had started without it, and the `up` that added it was cancelled."""
        joins = host in self._spec["absent"] or host in self._spec["moved"]["joined"]
        return joins and (self._takes_back(host) or host in self._lost_sessions)

    def _takes_back(self, host: str) -> bool:
        """Whether the host's tasks are cancelled, and its agent has confirmed that."""
        wanted = {task: self.view.intents[task] for task in self.view.tasks_on(host)}
        return intents.is_cancelled(wanted) and self._book.is_confirmed(host)

    def _forget(self, host: str) -> None:
        """Forgets a host whose join was cancelled. If it joins again, its tasks start from the beginning."""
        self.contacts.leave(host)
        self._lost_sessions.discard(host)
        added = {member["task"] for member in added_by(self._spec["moved"])}
        for task in self.view.tasks_on(host):
            generation = self.view.intents[task]["generation"] + 1
            holds = [as_surplus(self.view.data, self._spec, task)] if task in added else []
            why = drains.why_held(holds)
            self.view.wanted(
                [task], want="hold", generation=generation, by="", grace_s=None, holds=holds, **because(why)
            )
            self.view.data["noted"].pop(task, None)

    def begin(self, wall: float) -> None:
        """Starts the first coordinator of a run."""
        self.wall = wall
        self._record("request", [fact("asked_up")], by=self._spec["controller"])
        if self._spec["absent"]:
            without = fact("begins_without", text=", ".join(self._spec["absent"]))
            self._record("contact", [without], host=self.view.own_host)
        for job, count in self._spec["replicas"].items():
            how = made(How, grace_s=None, by=self._spec["controller"], **because([]))
            self._draining.scale(job, count, how, self._now)

    def rebuild(self, damage: Fact, wall: float) -> None:
        """Starts a coordinator without a cluster.json: it rebuilds its view from the reports of the agents."""
        self.wall = wall
        self._rebuilt = True
        self._quorum.resume(rebooted=True)
        self._record("contact", [damage, fact("rebuilt")], host=self.view.own_host)

    def resume(self, now: float, wall: float, *, rebooted: bool = False, before: Optional[str] = None) -> None:
        """Starts a coordinator that follows another one: it awaits the hosts that were connected to that one.

        `rebooted`: its machine was restarted meanwhile. `before`: the host of the other one, where this one was elected
        in its place.
        """
        self._quorum.resume(rebooted=rebooted)
        gap_s = min(max(0.0, wall - self.view.data["time"]), LONGEST_ABSENCE_S)
        self.wall = self.view.data["time"] = wall
        if not self.decided:
            self._accounting.missed(gap_s)
        own = self.view.own_host
        if before is None:
            why = fact("coordinator_restarted", seconds=gap_s)
        else:
            why = fact("coordinator_elected", host=own, what=before, seconds=gap_s)
        self._record("contact", [why], host=own)
        self.contacts.expect(now, counts_on=before is None and not rebooted)

    @property
    def away(self) -> Mapping[str, float]:
        """Hosts that should connect and have not yet, and since when."""
        return {} if self.decided else self.contacts.away

    def request(self, request: PostedRequest, now: float, wall: float) -> None:
        """Executes a request that a person made through a session on this host."""
        self.wall = wall
        self.view.data["request_serial"] = request["serial"]
        wanted = request["tasks"]
        if wanted == [] and (self.may_start or self.decided):  # `up` of a run that continues
            return
        if request["kind"] in ("drain", "undrain"):
            self._request_maintenance(request, now)
            return
        if request["kind"] == "join":
            self._request_join(request, now)
            return
        tasks = [task for task in self.view.present if wanted is None or task in wanted]
        asked = "asked_stop" if request["kind"] == "stop" else "asked_up" if wanted == [] else "asked_restart"
        named = [fact("asked_of", tasks=tasks)] if wanted else []
        self._record("request", [fact(asked), *named], by=request["by"])
        how = made(How, grace_s=request["grace_s"], by=request["by"], **because(why_of(request)))
        if request["kind"] == "stop" and len(tasks) == len(self.view.present):
            how["ends_as"] = request["ends_as"]
            self._stop_everything(how, now)
        elif request["kind"] == "stop":
            going = [task for task in tasks if self.view.intents[task]["want"] != "stop" or not self.view.final(task)]
            self.view.wanted(going, want="stop", **how)
        elif not self.decided:
            self._quorum.vouch()
            for task in tasks:
                if self.view.drained(task) or self._recovery.skip_backoff(task, now):
                    continue
                generation = self.view.intents[task]["generation"] + 1
                self.view.wanted([task], want="run", generation=generation, restarts=0, **how)

    def _request_maintenance(self, request: PostedRequest, now: float) -> None:
        """drain, undrain or scale."""
        host, job, count = request["host"], request["job"] or "", request["count"] or 0
        asked = fact("asked_" + request["kind"], host=host) if host else fact("asked_scale", text=job, count=count)
        self._record("request", [asked], by=request["by"])
        if self.decided:
            return
        self._quorum.vouch()
        how = made(How, grace_s=request["grace_s"], by=request["by"], **because([]))
        if host is None:
            self._draining.scale(job, count, how, now)
        elif request["kind"] == "drain":
            self._draining.drain(host, how, now)
        else:
            self.view.hosts[host]["excused"] = self.wall
            self._draining.undrain(host, request["by"])
            refusal = self._moving.trust(host, now)
            if refusal is not None:
                self._record("decision", [refusal])

    def _request_join(self, request: PostedRequest, now: float) -> None:
        names = ", ".join(request["joins"])
        self._record("request", [fact("asked_join", text=names)], by=request["by"])
        if self.decided:
            return
        refusal = self._moving.join(request["joins"], request["replace_s"], now)
        if refusal is not None:
            self._record("decision", [refusal])

    def end_superseded(self, now: float) -> None:
        """The run was ended elsewhere, while this coordinator was away."""
        self._stop_everything(made(How, grace_s=None, by="coordinator", **because([fact("ended_meanwhile")])), now)

    def _stop_everything(self, how: How, now: float) -> None:
        """The outcome of a run stays as it is, also when it is certain but not yet recorded."""
        if not self.decided:
            requested = outcome.by_request(why_of(how), how["ends_as"], self.view.roster)
            self._decide(outcome.decided(self.view.facts()) or requested)
        self._shutting_down(now).stop_now(how, now)
        self._stop_requested = True

    def _shutting_down(self, now: float) -> Shutdown:
        self._shutdown = self._shutdown or Shutdown(self.view, now)
        return self._shutdown

    def step(self, now: float, wall: float) -> None:
        """Decides everything that can be decided now."""
        data = self.view.data
        self.wall = data["time"] = wall
        passed_s = max(now - self._now, 0.0)
        if data["condition"]["type"] != "Suspended":
            data["elapsed_s"] += min(passed_s, LONGEST_GAP_S)
        self._now = now
        self.contacts.miss(now)
        self._quorum.update(now)
        self._left_behind.update(self.view, self.contacts.cut_ended, now)
        if not self.decided:
            if self.may_start:
                self._draining.release_cut_off()
            self._draining.step(now)
            missed = self.contacts.missed()
            left_out = drains.left_out_hosts(self.view.intents) if missed else []
            self._accounting.update(passed_s, [host for host in missed if host not in left_out], wall)
            self._judge(now, wall)
        if self.decided:
            self._shutting_down(now).step(now)
            left = any(known["connected"] and not self._is_done(host) for host, known in self.view.hosts.items())
            if data["phase"] == "finishing" and not left:
                data["phase"] = "ended"
                self._record_goodput()
        self.view.forget_incidents()
        del data["conditions"][:-MOST_CONDITIONS]

    def due(self) -> Optional[float]:
        """When `step` is to be called again though no message has come."""
        return self._recovery.due() if not self.decided else None

    def orders(self) -> List[Tuple[str, Orders]]:
        """New orders for connected hosts. After a hello of a host, all of its orders are new."""
        away = (task for host in self.contacts.away for task in self.view.tasks_on(host))
        recovering = not self.decided and (self.view.is_recovering() or any(map(self.view.awaited, away)))
        own, over = self.view.own_host, self.over
        done = {host for host in self.view.hosts if (over if host == own else self._is_done(host))}
        if self._voters and any(map(self._is_awaited, self.view.hosts.keys() - done - {own})):
            done -= self._voters  # a host that returns asks them which host coordinates
        behind = self._left_behind.hung if not self.decided else {}
        awaits = [host for host in awaited_hosts(self._spec, self.view.data) if host not in done] if done else []
        return self._book.news(
            recovering=recovering,
            done=done,
            may_start=self.may_start,
            kept=self._kept,
            behind=behind,
            awaits=awaits,
        )

    def _is_awaited(self, host: str) -> bool:
        return not self.view.hosts[host]["over"] and not self._is_given_up(host)

    def _is_done(self, host: str) -> bool:
        """Nothing is left there, and its agent has confirmed that nothing more will be asked."""
        if self._shutdown is None or not self._shutdown.host_is_done(host):
            return False
        return self._book.is_confirmed(host)

    def _merge_intents(self, host: str, offered: Mapping[str, Intent], now: float) -> None:
        """A session on that host may have been asked directly, while this coordinator was unreachable.

        An order to end the run wins whatever its version.
        """
        own_doing: Optional[List[Fact]] = None
        self._book.confirm(host, offered)
        for task, intent in offered.items():  # ended there while the others go on without it
            mine = self.view.intents[task]
            if outcome.is_left_out(mine) and intent["by"] in (host, "host_timeout") and intent["want"] != "run":
                mine["version"] = max(mine["version"], intent["version"])
                self.view.wanted([task], generation=max(mine["generation"], intent["generation"]))
        for task in intents.contradicted(self.view.intents, offered):
            if offered[task]["by"] not in ("coordinator", host, ""):  # a user's request comes first
                self.view.intents[task] = offered[task].copy()
            self.view.wanted([task])
        newer = intents.newer(self.view.intents, offered)
        allowed_holders: Optional[Set[str]] = None if self._rebuilt else {host}
        if not self._rebuilt and any(hold["holder"] != host for one in newer.values() for hold in one["holds"]):
            allowed_holders = {host, *drains.holders(self.view.intents)}
        for task, intent in newer.items():
            before = self.view.intents[task]
            self.view.intents[task] = intent = drains.confirmed(intent, allowed_holders)
            if intent["by"] == host and intents.wish(intent) != intents.wish(before):
                own_doing = why_of(intent)
            elif intent["by"] not in ("coordinator", "") and intents.wish(intent) != intents.wish(before):
                self._record("request", why_of(intent), host=host, task=task, by=intent["by"])
        if own_doing is not None:  # it shuts down, or has returned from a shutdown
            self._record("contact", own_doing, host=host)
        end = next((intent["ends_run"] for intent in offered.values() if intent["ends_run"] is not None), None)
        if end is not None and not self._stop_requested:
            self._record("request", [fact("asked_stop")], by=end["by"])
            self._stop_everything(end, now)

    def _judge(self, now: float, wall: float) -> None:
        moves, end = self.view.data["moved"]["number"], None
        if self.may_start:
            self._draining.leave_out_bad(now, wall)  # first: the last failure there may have been the end of the run
            end = self._moving.replace_bad(self._draining.bad_hosts(), now, wall)
        if self.view.data["moved"]["number"] > moves:
            return
        facts = self.view.facts()
        end = end or outcome.decided(facts)
        if end is not None and end.kind == "Failed" and self._recovery.awaits_cause(end.cause or "", now):
            return
        end = end or self._failure(now, wall)
        if end is not None:
            self._decide(end)
        else:
            for task, early in lifecycle.may_run(self.view, self._blocked()).items():
                is_held = self.view.intents[task]["want"] == "hold"
                without = {"without": gang.ranges(self.view.left_out())} if is_held else {}
                self.view.wanted([task], want="run", early=early, **without)
            self._describe(facts)

    def _failure(self, now: float, wall: float) -> Optional[Judgement]:
        """The reason for a run to fail although no task has finally failed."""
        if self.view.own_host in self._lost_sessions:  # of others it says nothing, or it ends a join
            return Judgement("Failed", [fact("session_lost")], start="abandoned")
        # others may have been elected, and continue training without a host that this one misses
        knows = self.may_start or self._spec["min_workers"] is None
        found = (self._draining.needs_one_of(now) if knows else None) or self._deadline()
        if found is not None or not self.may_start:
            return found
        moves = self.view.data["moved"]["number"]
        moved = self._moving.step(self.contacts.missed(), now, wall)
        if self.view.data["moved"]["number"] == moves:  # not one that a spare replaces from now on
            self._draining.leave_out_gone(now)
        return moved or self._recovery.step(now, wall) or self._not_started(now)

    def _blocked(self) -> Set[str]:
        """Nothing starts before every host was connected once: most mistakes of a first start are found by then."""
        waits = lifecycle.unreached(self.view) or not self.may_start or self._moving.awaits_fence(self._now)
        return set(self.view.tasks) if waits else self.view.held_by_incidents().union(self._draining.returning())

    def _deadline(self) -> Optional[Judgement]:
        limit_s = self._spec["active_deadline_s"]
        if limit_s is None or self.view.data["elapsed_s"] < limit_s:
            return None
        return Judgement("Failed", [fact("deadline", seconds=limit_s)])

    def _not_started(self, now: float) -> Optional[Judgement]:
        """A start that waits too long fails, and names whom it waited for."""
        limit_s = self._spec["start_timeout_s"]
        if lifecycle.unreached(self.view):
            if self._rebuilt or (now - self._last_joined < lifecycle.REACH_LIMIT_S and now - self._began < limit_s):
                return None  # hosts of a run that was under way are awaited like any unreachable host
            return Judgement("Failed", lifecycle.unconnected(self.view))
        waiting = [task for task in lifecycle.awaited(self.view) if self.view.reached(task)]
        self._unready = {task: self._unready.get(task, now) for task in waiting}
        late = [task for task, since in self._unready.items() if now - since >= limit_s]
        if not late:
            return None
        why = [fact("not_ready", seconds=limit_s), *lifecycle.waits_for(self.view)]
        return Judgement("Failed", why, late[0], unready=lifecycle.loading(self.view))

    def _describe(self, facts: Facts) -> None:
        """The phase and the condition of a run that continues."""
        data = self.view.data
        data["waits_for"] = because(self._asks() or self._draining.waits_for() or lifecycle.waits_for(self.view))
        lost = next(self.view.open_incidents(), None)
        restarting: Optional[List[Fact]] = None
        if lost is not None:
            restarting = [fact("task_lost", task=lost["task"]), *why_of(lost)]
        elif self._draining.returning():
            restarting = why_of(self.view.intents[self._draining.returning()[0]])[:1]
        elif not self.may_start:
            restarting = outcome.waits_for_restart(facts)  # nothing is restarted, and so no incident begins
        now = outcome.standing(facts, restarting)
        if now is None and data["condition"]["type"] == "Running":
            now = outcome.running(facts)
        if now is not None:
            self._set_condition(now)
        if data["phase"] != "starting" or not any(self.view.waits(task) for task in self.view.present):
            data["phase"] = "recovering" if lost else "running"

    def _asks(self) -> List[Fact]:
        """Whom the coordinator asks before it starts anything; nobody while it is about to be granted its lease."""
        if self.may_start:
            return []
        if fence_s(self._spec) is not None:
            return [fact("lacks_voters")]
        count = self._quorum.missing()
        return [fact("asks_others", count=count)] if count else []

    def _decide(self, end: Judgement) -> None:
        data = self.view.data
        if end.kind == "Succeeded":
            newest = self._services.newest_checkpoint()
            warning = outcome.target_warning(self._spec["target_step"], newest, self.view.step())
            self.view.replace_alert("target_missed", warning)
        data["phase"] = "finishing"
        data["waits_for"] = because([])
        self._accounting.close(end.kind, self.wall)
        for open_incident in self.view.open_incidents():
            open_incident["given_up"] = because([fact("run_%s" % end.kind.lower())])
        self._set_condition(end)

    def _record_goodput(self) -> None:
        """When nothing runs any more: a trainer that is asked to stop may have saved its last steps."""
        newest = self._services.newest_checkpoint()
        spent = self._accounting.spent(self.view.data["condition"]["type"], newest["step"] if newest else None)
        if spent:
            self._record("decision", spent)

    def _set_condition(self, now: Judgement) -> None:
        data, before = self.view.data, self.view.data["condition"]
        goes_on = before["type"] == now.kind
        data["condition"] = now.condition(before["since"] if goes_on else self.wall)
        if not goes_on:
            data["conditions"].append(before)
            self._record("condition", now.why, task=now.cause, **{"from": before["type"], "to": now.kind})

    def _record(self, kind: str, why: List[Fact], **fields: Any) -> None:
        self.history.append(made(HistoryEvent, time=self.wall, kind=kind, **because(why), **fields))


def _fingerprint(state: State) -> List[object]:
    """The part of a state on which decisions depend; the progress of tasks is left out."""
    return [
        (
            *(entry["state"], entry["attempt"], entry["generation"], entry["version"], entry["ready"]),
            *(len(entry["history"]), entry["repaired"]),
        )
        for entry in state["tasks"].values()
    ]
