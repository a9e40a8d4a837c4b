"""The part of a host that does not coordinate: its agent dials the coordinator, reports, and takes its orders.

It reports a hello first, then whatever is new, and its events. Where another coordinator may have been elected, it
dials the voters in turn and asks all of them which host they back. It follows only the host that a majority of them
backs: until then it keeps what a host that claims to coordinate sends, and does none of it.
"""

from __future__ import annotations

import random
import select
import time

from ..host import errors
from ..records.kinds import fields_of, made
from ..records.messages import EVENTS_AT_ONCE, PROTOCOL, Hello, HostReport, News, TaskProgress
from ..records.reasons import fact
from ..records.run_state import Advance, Intent, Intents, State
from ..records.spec import CoordinatorAddress, Moved, Spec, kept_by_coordinator, voters_of
from ..records.whole_run import Awaited, Ballot, Event
from ..run import drains, intents
from .calls import Inquiry
from .claims import claim_in
from .fence import Fence, clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Union

    from ..link.dialer import Dialer
    from ..link.peer import FromDialer
    from ..run.intents import IntentFollower
    from ..run.runfiles import RunFiles
    from .claims import Claim
    from .voting import Reception, Voter


PLACE_S = 4.0
"""How long one voter is dialled before the next one is."""

ASK_S = 1.0
"""How long it is waited where voters know of no coordinator."""

MOST_KEPT = 200
"""The most messages that are kept of a host that claims to coordinate."""

FIRST_TERM = 1


class Following:
    """`rebooted`: the machine was restarted since the agent before this one. `voter`: this host's, if it votes."""

    def __init__(
        self, files: RunFiles, spec: Spec, now: float, *, rebooted: bool = False, voter: Optional[Voter] = None
    ) -> None:
        self.over = False
        """The run has ended; the agent may go when all its tasks are final."""
        self.is_superseded = False
        """Others have ended the run while this host was away, and may wait for it."""
        self._is_removed = False
        """The coordinator has said that the run was taken down."""
        self.connected = False
        self._fence = Fence(files, spec, clock())
        self.may_start = not (rebooted or self._fence.is_needed)
        """False while an agent whose machine was restarted, or whose tasks others may have, has no confirmation that
        run and tasks are still its own.
        """
        self.moved: Optional[Moved] = None
        """Moves with which this agent must restart: other hosts have taken tasks, or this host has."""
        self.first_steps: Mapping[str, float] = {}
        """Task here that has reported no step -> how long its peers took for their first step."""
        self.left_behind: Mapping[str, float] = {}
        """Task here -> the least number of seconds without a step since a cut ended, although peers have made steps."""
        self._recovering = False
        self._has_orders = False
        """Whether orders have come over this connection: before them it is unknown whether the run goes on."""
        self._was_cut_off = True
        """Whether orders may have been missed that others have followed."""
        self._files = files
        self._spec = spec
        self._limit_s = spec["recovery"]["host_timeout_s"]
        self._last_message = now
        self._report = Report(brief=False)
        self._events: Optional[int] = None
        self._voter = voter
        self._reception = voter.reception(now) if voter is not None else None
        self._voted = voter.place if voter is not None else None
        self._term = spec["term"]
        self._inquiry: Optional[Inquiry] = None
        """The inquiry of an agent that does not vote itself, if others may be elected."""
        if voter is None and voters_of(spec):
            first = (spec["term"] or FIRST_TERM, spec["coordinator"]["host"])
            self._inquiry = Inquiry(files.directory, spec, first)
        self._kept: List[FromDialer] = []
        """Messages of the host that is dialled, since a welcome of a term in which no majority is known to back it."""
        self._is_trusted = False
        """Whether that host coordinates: then its messages are obeyed as they come."""
        self._claimed = 0
        """The newest term in which that host claims to coordinate; 0: it has a newer run."""
        places = [spec["coordinator"], *(one for one in voters_of(spec) if one != spec["coordinator"])]
        self._places = [place for place in places if place["host"] != spec["host"]]
        self._place = self._places[0]
        self._dialer = self._new_dialer(now)
        self._move_at = now + PLACE_S
        self._known = self._inquiry.elected if self._inquiry is not None else None

    @property
    def is_removed(self) -> bool:
        """The run's cluster was taken down while this host was away, by a majority of the voters or the coordinator."""
        known = self._voter or self._inquiry
        return self.over and (self._is_removed or (known is not None and known.end.is_removed))

    @property
    def recovering(self) -> bool:
        """A task or a host was lost and is not back yet: tasks that wait for it do not hang. True also while that is
        unknown.
        """
        return self._recovering or not self.connected

    def step(self, now: float, wall: float, state: State, intent: IntentFollower) -> Optional[Intents]:
        wanted: Intents = {}
        dialer = self._dialer
        for message in dialer.step(now):
            if self._dialer is dialer:  # not what one host sent as that of the next one
                self._receive(message, now, state, intent, wanted)
        if self._voter is not None and self._reception is not None:
            self._reception.step(now)
            self._voter.step(now, self._say)
            self._follow_vote(self._voter, now)
        if self._inquiry is not None:
            self._inquiry.step(now)
            if not self.connected and self._inquiry.elected != self._known:
                self._known = self._inquiry.elected
                self._move(self._known[1], now)
        if self._kept and self._is_confirmed:
            kept, self._kept, self._is_trusted = self._kept, [], True
            for message in kept:
                self._obey(message, now, intent, wanted)
        if not self.connected and now >= self._move_at and len(self._places) > 1:
            if self._inquiry is not None:
                self._inquiry.query_voters(now)
            self._dial(self._places[(self._places.index(self._place) + 1) % len(self._places)], now)
        if self.connected:
            self._send_news(state, intent)
            number = self._fence.ping(clock()) if self._has_orders else None
            if number is not None:
                self._dialer.send({"type": "ping", "n": number})
        elif self._limit_s is not None and now - self._last_message >= self._limit_s:
            why = fact("isolated", seconds=self._limit_s)
            left = {task: one for task, one in intent.value["tasks"].items() if not drains.is_drained(one)}
            wanted.update(intents.stopped(left, by="host_timeout", why=why))
        elif intent.lost_session and now - self._last_message >= self._spec["start_timeout_s"]:
            wanted.update(_never_begun(intent.value["tasks"]))
        return wanted or None

    def holds(self) -> bool:
        """Whether this host's tasks must not act, as others may have been started in their place."""
        return self._fence.holds(clock())

    def fence_s(self) -> Optional[float]:
        """How long this host's tasks have to end, as others may have them soon; None where they go on."""
        return self._fence.grace_s(clock())

    def silent_s(self, now: float) -> float:
        """How long it has been out of touch with the coordinator."""
        return 0.0 if self.connected else now - self._last_message

    def register(self, waiting: select.poll) -> None:
        for part in self._parts():
            part.register(waiting)

    def due(self) -> Optional[float]:
        times = [part.due() for part in self._parts()]
        return min((time for time in times if time is not None), default=None)  # pings wait for the next look

    @property
    def outdated(self) -> bool:
        """This host's agent is to coordinate."""
        return self._voter is not None and self._voter.leads

    def close(self) -> None:
        """The last messages still arrive."""
        self._dialer.close()
        for part in (self._reception, self._inquiry):
            if part is not None:
                part.close()

    def _parts(self) -> List[Union[Dialer, Voter, Reception, Inquiry]]:
        others = (self._voter, self._reception, self._inquiry)
        return [self._dialer, *(part for part in others if part is not None)]

    def _dial(self, place: CoordinatorAddress, now: float) -> None:
        self._dialer.close()
        self._discard_unconfirmed()
        self._place, self._move_at = place, now + PLACE_S
        self._dialer = self._new_dialer(now)

    def _new_dialer(self, now: float) -> Dialer:
        from ..link.dialer import Dialer  # not for a coordinator, which takes connections
        from ..link.tls import Identity

        own = Identity(self._files.directory, self._spec["run"])
        return Dialer(self._place["address"], self._place["host"], own, now, random.random)

    def _say(self, host: str, message: Mapping[str, Any]) -> None:
        """Sends a message of this host's voter, to the coordinator or to a connected candidate."""
        if message["type"] == "granted":
            self._dialer.send(message)
        elif self._reception is not None:  # a vote
            self._reception.send(host, message)

    def _receive(self, message: FromDialer, now: float, state: State, intent: IntentFollower, wanted: Intents) -> None:
        if message["type"] == "connected":
            self._discard_unconfirmed()
            self._dialer.send(hello(self._spec, state, intent, self._files.events.count))
        elif message["type"] == "elsewhere":
            self._hear(claim_in(message), now)
            self._move(self._coordinator, now)
        elif message["type"] == "gone":
            self._discard_unconfirmed()
            if self.connected:
                self._last_message = message["last_received"]
                self._move_at = now + PLACE_S
                self._was_cut_off = True
            self.connected = False
        elif message["type"] == "welcome" and 0 < message["term"] < self._term:
            self._move_at = now  # its term is over, and it will learn that
        else:
            if message["type"] == "welcome" or message["type"] == "lease":
                self._claimed = message["term"]
            if message["type"] == "welcome":
                self._hear_end()
                self._is_trusted = self._is_confirmed
            if message["type"] == "orders" and message["over"]:
                self._hear_end(removed=message["removed"])
            if self._is_trusted:
                self._obey(message, now, intent, wanted)
            elif self._kept or message["type"] == "welcome":
                self._keep(message, now)

    def _discard_unconfirmed(self) -> None:
        """Nothing that the host at the other end of this connection has sent is obeyed."""
        self._kept.clear()
        self._is_trusted = False

    def _obey(self, message: FromDialer, now: float, intent: IntentFollower, wanted: Intents) -> None:
        """A message of the coordinator."""
        if message["type"] == "lease" and self._voter is not None:
            self._voter.take_lease(self._place["host"], message)
        elif message["type"] == "welcome" and message["moved"]["number"] > self._spec["moved"]["number"]:
            self._note_term()
            self.moved = message["moved"]
        elif message["type"] == "welcome":
            self._note_term()
            self.connected = True
            self._has_orders = False
            self._last_message = now
            self._events = message["events_from"]
            self.may_start = self.may_start or message["may_start"]
            self._report = Report(brief=message["progress"])
        elif message["type"] == "pong":
            self._fence.answered(message["n"], clock())
        elif message["type"] == "orders":
            self._note_orders(message["intents"], intent)
            wanted.update(message["intents"])
            self._recovering = message["recovering"]
            self.first_steps = message["first_steps"]
            self.left_behind = message["left_behind"]
            self.may_start = self.may_start or message["may_start"]
            self.over = self.over or message["over"]
            if message["over"]:
                self._is_removed = self._is_removed or (message["removed"] and self._is_coordinator)
                self.is_superseded = self.is_superseded or message["awaits"] is None
                self._note_awaited(message["awaits"])
            if message["kept"] and kept_by_coordinator(self._spec) and intent.keep():
                self._offer_revival()

    @property
    def _coordinator(self) -> Optional[str]:
        """The host that coordinates, or is about to, as far as this agent knows; None while it is unknown."""
        if self._voter is not None:
            return self._voter.place[1]
        return self._inquiry.elected[1] if self._inquiry is not None else None

    @property
    def _is_confirmed(self) -> bool:
        """Whether the host that is dialled coordinates, or a majority of the voters claims that the run is over."""
        voter = self._voter or self._inquiry
        if voter is not None and self._claimed:
            return voter.follows(self._place["host"], self._claimed)
        return self._is_coordinator or (voter is not None and voter.end.is_over)

    @property
    def _is_coordinator(self) -> bool:
        """Whether the host that is dialled was the coordinator, as far as this agent knows."""
        voter = self._voter or self._inquiry
        return voter is None or voter.coordinator == self._place["host"]  # without voters no other is elected

    def _hear_end(self, *, removed: bool = False) -> None:
        """The host that is dialled claims by a welcome without a term that the run is over, or was even taken down."""
        voter = self._voter or self._inquiry
        if voter is not None and not self._claimed:
            voter.end.hear(self._place["host"], removed=removed)

    def _keep(self, message: FromDialer, now: float) -> None:
        """Keeps a message until a majority of the voters confirms that its sender coordinates."""
        if len(self._kept) >= MOST_KEPT:
            self._dial(self._place, now)
            return
        self._kept.append(message)
        if self._claimed and (message["type"] == "welcome" or message["type"] == "lease"):
            self._hear((self._claimed, self._place["host"], True), now)

    def _hear(self, claim: Claim, now: float) -> None:
        """The host that is dialled claims this of itself. If it claims to coordinate, the other voters are asked."""
        host = self._place["host"]
        if self._voter is not None:
            self._voter.hear(host, claim, now)
        elif self._inquiry is not None:
            self._inquiry.hear(host, claim)
            if self._inquiry.elected != claim[:2]:
                self._inquiry.query_voters(now, connected=host)

    def _note_awaited(self, hosts: Optional[List[str]]) -> None:
        """Writes down the hosts that are awaited: `down` must not remove the agent that ends their tasks when they
        return.
        """
        if hosts is None:
            others = dict.fromkeys(member["host"] for member in self._spec["roster"])
            hosts = [host for host in others if host != self._spec["host"] and host not in self._spec["absent"]]
        try:
            if hosts:
                self._files.write_awaited(made(Awaited, since=time.time(), hosts=hosts))
        except OSError as error:  # a full disk: other hosts know it, too
            errors.note("awaited: %s" % error)

    def _note_orders(self, orders: Intents, intent: IntentFollower) -> None:
        """An end that this host has missed may have been followed by a start of others: then nothing here goes on."""
        missed = self._was_cut_off or self._fence.holds(clock())
        if missed and any(each["want"] == "stop" for each in intents.newer(intent.value["tasks"], orders).values()):
            self._fence.close()
        if not self._has_orders:
            self._fence.ping_at_once()
        self._has_orders, self._was_cut_off = True, False

    def _follow_vote(self, voter: Voter, now: float) -> None:
        """A coordinator is granted its lease by those who have come to it."""
        if voter.place != self._voted:
            self._voted = voter.place
            self._move(voter.place[1], now)

    def _move(self, coordinator: Optional[str], now: float) -> None:
        """The host that coordinates, or is about to; None while that is unknown."""
        named = next((place for place in self._places if place["host"] == coordinator), None)
        if named is not None and named is not self._place:
            self._dial(named, now)
        else:
            self._move_at = min(self._move_at, now + ASK_S)

    def _note_term(self) -> None:
        """Writes the term to the disk: this agent obeys no coordinator of an older term, not even after a restart."""
        if self._claimed <= self._term:
            return
        self._term, host = self._claimed, self._place["host"]
        if self._voter is None:
            self._files.write_ballot(made(Ballot, term=self._term, voted=None, coordinator=host, last=host))

    def _offer_revival(self) -> None:
        if self._spec["recovery"]["reboot"] == "auto":
            from ..survival import reboot  # a session does it as a rule

            reboot.offer_later(self._files.root)

    def _send_news(self, state: State, intent: IntentFollower) -> None:
        """Events come before the state that they led to: the coordinator never has a state without its events."""
        assert self._events is not None
        while self._events < self._files.events.count:
            events = [*self._files.events.records(Event, self._events, EVENTS_AT_ONCE)]
            self._dialer.send({"type": "events", "from": self._events, "events": events})
            self._events += len(events)
        news = self._report.news(state, intent)
        if news is not None:
            self._dialer.send(news)


def _never_begun(held: Mapping[str, Intent]) -> Intents:
    """Ends a start that never reached the coordinator: without this host it has begun nothing, and has failed."""
    is_begun = any(intent["want"] != "hold" for intent in held.values())
    return {} if is_begun else intents.stopped(held, by="", why=fact("session_lost"), ends_as=intents.ABANDONED)


_ADVANCES = frozenset(fields_of(Advance))


class Report:
    """Selects what to report on one connection after the hello. `brief`: the coordinator accepts `progress`."""

    def __init__(self, brief: bool) -> None:
        self._brief = brief
        self._reported: object = None
        self._state: Optional[State] = None
        """The state as last reported, if changes may be sent as `progress`."""

    def news(self, state: State, intent: IntentFollower) -> Union[News, TaskProgress, None]:
        """The message to send; None if nothing has changed since the last one. What it returns counts as reported."""
        value = intent.value
        reported = (value["serial"], value["session"] is None, intent.lost_session)
        before = self._state if reported == self._reported else None
        if before is not None and state["serial"] == before["serial"]:
            return None
        progress = _progress(before, state) if self._brief and before is not None else None
        self._reported, self._state = reported, _kept(state)
        return progress or news(state, intent)


def _kept(state: State) -> State:
    """A copy of the state: fields of tasks are only replaced, never changed in place."""
    kept = state.copy()
    kept["tasks"] = {task: entry.copy() for task, entry in state["tasks"].items()}
    return kept


def _progress(before: State, state: State) -> Optional[TaskProgress]:
    """The changes of a state as a `progress` message; None if more than the progress of tasks has changed."""
    was: Any = before
    for name, value in state.items():
        if name not in ("serial", "machine", "tasks") and value != was[name]:
            return None
    if state["tasks"].keys() != before["tasks"].keys():
        return None
    tasks: Dict[str, Any] = {}
    for task, entry in state["tasks"].items():
        then: Any = before["tasks"][task]
        changed = {name: value for name, value in entry.items() if value != then[name]}
        if not _ADVANCES.issuperset(changed):
            return None
        if changed:
            tasks[task] = changed
    progress: TaskProgress = {"type": "progress", "serial": state["serial"], "tasks": tasks}
    if state["machine"] != before["machine"]:
        progress["machine"] = state["machine"]
    return progress


def hello(spec: Spec, state: State, intent: IntentFollower, events: int) -> Hello:
    """The first message of an agent. `events`: how many lines its events.jsonl has."""
    assert state["agent"] is not None, "a supervisor has written its own name into its state"
    return {
        "type": "hello",
        "v": PROTOCOL,
        "run": spec["run"],
        "host": spec["host"],
        "agent": state["agent"],
        "events": events,
        "moved": spec["moved"]["number"],
        **_fields(state, intent),
    }


def news(state: State, intent: IntentFollower) -> News:
    """A message with the whole state."""
    return {"type": "state", **_fields(state, intent)}


def _fields(state: State, intent: IntentFollower) -> HostReport:
    value = intent.value
    return {
        "state": state,
        "intents": value["tasks"],
        "kept": value["session"] is None,
        "lost_session": intent.lost_session,
    }
