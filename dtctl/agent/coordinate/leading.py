"""The part of the coordinator's host: passes messages to the coordinator, and its orders to the hosts."""

from __future__ import annotations

import json
import os
import select
import time
from contextlib import suppress

from ..host import errors, paths
from ..records.kinds import checked, made
from ..records.messages import FROM_AGENT, PROTOCOL, Orders
from ..records.reasons import Fact, because, fact
from ..records.spec import Moved, Spec, is_alone
from ..records.whole_run import Event, HistoryEvent, RequestBook, RunView, clock_ahead_s
from . import superseded
from .checkpoint_services import checkpoint_services
from .contacts import AWAY_S, Answering, listen
from .coordinator import Coordinator
from .fence import Fence, clock
from .following import hello, news
from .history import History
from .orders import Commits
from .view import first_view, is_of, take_in_joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, List, Mapping, Optional, Set, Tuple

    from ..hooks.posting import Posting
    from ..link.hub import Hub
    from ..link.peer import FromHub
    from ..records.run_state import Intents, State
    from ..run.intents import IntentFollower
    from ..run.runfiles import RunFiles
    from .view import FromAgent
    from .voting import Voter

SAVE_S = 2.0
"""The interval between two writes of cluster.json if there is no decision."""

SIGN_OF_LIFE_S = 8.0
"""The interval after which cluster.json is written although nothing has changed, so that sessions see a live
coordinator."""

DECIDE_S = 0.05
"""The least interval between two decisions, because hundreds of agents send news all the time."""

LOOK_S = 1.0
"""Decisions that follow from time alone are not later than this."""

LISTEN_AGAIN_S = 0.5


class Leading:
    """Coordinator of the run, and one of its agents: its own host reports to it by the same messages.

    `voter`: this host's, where others may be elected. `before`: the coordinator in whose place this one was elected.
    """

    connected = True

    def __init__(
        self,
        files: RunFiles,
        spec: Spec,
        now: float,
        *,
        rebooted: bool = False,
        voter: Optional[Voter] = None,
        before: Optional[str] = None,
    ) -> None:
        self.recovering = False
        self.first_steps: Mapping[str, float] = {}
        self.left_behind: Mapping[str, float] = {}
        self.moved: Optional[Moved] = None
        """Moves with which this host's agent must restart."""
        self._over = False
        self._files = files
        self._follows = spec["moved"]["number"]
        """The number of the moves that this host's agent follows."""
        self._host = spec["host"]
        self._path = files.path("cluster.json")
        self._voter = voter
        self._fence = Fence(files, spec, clock())
        self._is_sure = False
        """Whether it certainly has its lease."""
        self._commits = Commits(voter, now) if voter is not None else None
        self._history = History(files.path("history.jsonl"))
        wall = time.time()
        view, damage = self._read_view(spec)
        if view is not None:
            self._count_silences_once(view)
        if view is not None and view["moved"]["number"] > self._follows:
            spec = files.spec(view["moved"])
        elif view is not None:
            view["moved"] = spec["moved"]
        if view is not None:
            take_in_joined(view, spec)
        self._spec = spec
        services = checkpoint_services(files, spec)
        has_lease = voter.election.has_lease if voter is not None else None
        term = self._term_of_lease if voter is not None else None
        self.coordinator = Coordinator(spec, view or first_view(spec, wall), services, now, has_lease, term)
        if damage is not None:
            self.coordinator.rebuild(damage, wall)
        elif view is None:
            self.coordinator.begin(wall)
        else:
            self.coordinator.resume(now, wall, rebooted=rebooted, before=before)
        self._knew_end = self.coordinator.decided
        self._posting = self._hooks()
        if before is not None:
            self._pass_over_requests()
            if self._posting is not None and view is not None:
                self._posting.take_over(view)
        self._hub: Optional[Hub] = None
        self._listen_at: Optional[float] = None if is_alone(spec) else now
        self._welcome: Set[str] = set()
        """Hosts whose current connection began with a valid hello."""
        self._answering = Answering()
        self._reported: object = None
        self._greeted = False
        self._requests_seen: object = None
        self._unsaved = True
        self._save_at = now
        self._decided = now
        self._decide_at = now

    @property
    def may_start(self) -> bool:
        return self.coordinator.may_start and not self._moves

    @property
    def _moves(self) -> bool:
        """Whether hosts take places of others: nothing else happens until a majority knows it and agents restart."""
        return self.coordinator.view.data["moved"]["number"] > self._follows

    @property
    def over(self) -> bool:
        """The run's end has been posted to its hooks, or it is known which of them cannot be reached."""
        is_over = self._over or (self._voter is not None and self._voter.end.is_over)
        return is_over and (self._posting is None or self._posting.settled)

    @property
    def is_superseded(self) -> bool:
        """Others have ended the run while this host was away, and may wait for it."""
        return self._voter is not None and self._voter.end.is_over

    @property
    def is_removed(self) -> bool:
        """The run's cluster was taken down while this host was away."""
        return self._voter is not None and self._voter.end.is_over and self._voter.end.is_removed

    def step(self, now: float, wall: float, state: State, intent: IntentFollower) -> Optional[Intents]:
        self.coordinator.wall = wall
        if self._voter is not None:
            has_lease = self._voter.election.has_lease(now)
            self._is_sure = self._fence.look(has_lease, clock()) and not self._moves
        self._listen(now)
        if not self._moves:
            self._hear_own(now, wall, state, intent)
        if self._hub is not None:
            for host, message in self._hub.step(now):
                self._receive(host, message, now, wall)
        if not self._moves:
            self._read_requests(now, wall)
        if self.coordinator.decided and not self._knew_end:
            self._knew_end = True
            if not self._is_sure:  # it ended while this host was cut off
                self._fence.close()
        self._ask_machines(now)
        wanted: Intents = {}
        if now >= self._decide_at:
            self._decide(now, wall, wanted)
        self._save(now)
        if self._voter is not None:
            self._vote(self._voter, now)
            self._move()
        if self._commits is not None:
            for host, orders in self._commits.released(self.coordinator.view, self.coordinator.decided, now):
                self._give(host, orders, wanted)
        if self._posting is not None and intent.value["session"] is None:  # a start that is rolled back is not reported
            self._posting.step(self.coordinator.view.data, over=self._over, now=now)
        return wanted or None

    def holds(self) -> bool:
        """Whether this host's tasks must not act, as others may have been started in their place."""
        return self._fence.holds(clock())

    def fence_s(self) -> Optional[float]:
        """How long this host's tasks have to end, as others may have them soon; None where they go on."""
        return self._fence.grace_s(clock())

    def silent_s(self, now: float) -> float:
        return 0.0

    def register(self, waiting: select.poll) -> None:
        readers = [*(self._hub.readers() if self._hub else ()), *(self._posting.readers() if self._posting else ())]
        for descriptor in readers:
            waiting.register(descriptor, select.POLLIN)
        if self._voter is not None:
            self._voter.register(waiting)

    @property
    def outdated(self) -> bool:
        """Another host coordinates, or is about to."""
        return self._voter is not None and self._voter.is_deposed

    def due(self) -> Optional[float]:
        times = [self._decide_at, self._hub.due() if self._hub else self._listen_at]
        times.append(self._voter.due() if self._voter is not None else None)
        if self._unsaved:
            times.append(self._save_at)
        if self._posting is not None:
            times.append(self._posting.due())
        return min((at for at in times if at is not None), default=None)

    def close(self) -> None:
        """The last messages still arrive."""
        if self._posting is not None:
            self._posting.close()
        if self._hub is not None:
            self._hub.close()

    def _listen(self, now: float) -> None:
        """The port may be taken after a restart of this agent: then the others are awaited a little longer."""
        if self._hub is not None or self._listen_at is None or now < self._listen_at:
            return
        try:
            stance = self._voter.stance if self._voter is not None else None
            self._hub = listen(self._files, self._spec, self.coordinator.view.coordinator, now, stance)
        except (OSError, ValueError) as error:
            self._listen_at = now + LISTEN_AGAIN_S
            self.coordinator.contacts.note_listening(str(error))
        else:
            self.coordinator.contacts.note_listening(None)

    def _ask_machines(self, now: float) -> None:
        """Probes the machines of hosts that have been away for a while."""
        away = self.coordinator.away
        self._answering.forget(self.coordinator.view.hosts.keys() - away.keys())
        for host, since in away.items():
            address = next((each["address"] for each in self._spec["roster"] if each["host"] == host), None)
            if address is None:  # other hosts have its tasks, so its agent is not needed
                self.coordinator.contacts.note_answer(host, answers=False)
            elif now - since >= AWAY_S:
                name, port = address.rpartition(":")[0].strip("[]"), self._spec["coordinator"]["port"]
                answers = self._answering.of(host, name, port, now)
                if answers is not None:
                    self.coordinator.contacts.note_answer(host, answers=answers)

    def _hooks(self) -> Optional[Posting]:
        """Sends the run's notifications; None without hooks, so that their code is not loaded."""
        if not os.path.exists(self._files.path("hooks.json")):
            return None
        from ..hooks.posting import Posting

        return Posting(self._files, self._spec["cluster"], self._record_of_hook)

    def _record_of_hook(self, why: List[Fact]) -> None:
        self._history.add(made(HistoryEvent, time=time.time(), kind="contact", host=self._host, **because(why)))

    def _read_view(self, spec: Spec) -> Tuple[Optional[RunView], Optional[Fact]]:
        """The view that an earlier coordinator left, or what is wrong with it; a damaged one is put aside."""
        try:
            found = paths.read_record(self._path, RunView)
            if found is None and self._voter is not None:
                found = self._voter.inherited
            if found is None or is_of(found, spec):
                return found, None
            why = "%s is about another run" % self._path
        except paths.Damaged as damage:
            why = str(damage)
        return None, fact("put_aside", text=why, what=paths.put_aside(self._path))

    def _count_silences_once(self, view: RunView) -> None:
        """Clears `silent_s` on the disk: hosts may connect from now on, and no restart may count it again."""
        if any(known["silent_s"] is not None for known in view["hosts"].values()):
            without: Any = {host: {**known, "silent_s": None} for host, known in view["hosts"].items()}
            try:
                paths.write_text(self._path, json.dumps({**view, "hosts": without}))
            except OSError as error:
                errors.note("cluster: %s" % error)
                view["hosts"] = without

    def _hear_own(self, now: float, wall: float, state: State, intent: IntentFollower) -> None:
        begin = self._history.received(self._host)
        self._add_events(self._host, begin, self._files.events.records(Event, begin), now, wall)
        value = intent.value
        current = (state["serial"], value["serial"], value["session"] is None, intent.lost_session)
        if current != self._reported:
            self._reported = current
            own = news(state, intent) if self._greeted else hello(self._spec, state, intent, self._files.events.count)
            self._greeted = True
            self._news()
            # a copy: the coordinator keeps what it hears, and the agent continues changing what it reports
            self.coordinator.receive(self._host, checked(FROM_AGENT[own["type"]], own), now, wall)

    def _receive(self, host: str, message: FromHub, now: float, wall: float) -> None:
        assert self._hub is not None
        self._unsaved = True
        if message["type"] == "superseded":
            self.coordinator.contacts.note_superseded(host, message["run"])
        elif message["type"] == "left":
            superseded.note_left(self._files.root, self._host, message["run"], host)
        elif host not in self.coordinator.view.hosts:
            self._hub.refuse(host, "%s has no part in this run" % host)
        elif message["type"] == "ping":
            if self._is_sure and host in self._welcome:
                self._hub.send(host, {"type": "pong", "n": message["n"]})
        elif message["type"] == "granted" or message["type"] == "canvass":
            if self._voter is not None:
                self._voter.receive(host, message, now)
        elif message["type"] == "invalid":
            self.coordinator.contacts.reject_invalid(host, message["reason"])
        elif message["type"] == "gone":
            self._welcome.discard(host)
            self.coordinator.receive(host, message, now, wall)
            self._news()
        elif message["type"] == "hello" and self._voter is not None and (self._moves or not self._voter.election.leads):
            self._hub.redirect(host)  # until it has restarted, or is elected again
        elif message["type"] == "hello" and message["moved"] < self._follows:
            self._send_moves(host, self._hub)
        elif message["type"] == "hello" or host in self._welcome:
            problem = self.coordinator.view.problem(host, message)
            if problem is None:
                self._accept(host, message, self._hub, now, wall)
            else:
                self._reject(host, problem, self._hub, now, wall)

    def _accept(self, host: str, message: FromAgent, hub: Hub, now: float, wall: float) -> None:
        if message["type"] == "events":
            self._add_events(host, message["from"], message["events"], now, wall)
            return
        if message["type"] == "hello":
            self._welcome.add(host)
            held = self._history.received(host)
            welcome = {"type": "welcome", "v": PROTOCOL, "events_from": held, "progress": True}
            hub.send(host, {**welcome, "may_start": False, "term": self._term})  # that arrives with the orders
        if self.coordinator.receive(host, message, now, wall):
            self._news()

    def _add_events(self, host: str, begin: int, events: Iterable[Optional[Event]], now: float, wall: float) -> None:
        ahead_s = clock_ahead_s(self.coordinator.view.hosts[host])
        self._history.add_events(host, begin, events, now, wall, ahead_s)

    def _term_of_lease(self, now: float) -> Optional[int]:
        return self._term if self._is_sure else None

    @property
    def _term(self) -> int:
        return self._voter.election.ballot["term"] if self._voter is not None else 0

    def _send_moves(self, host: str, hub: Hub) -> None:
        """Sends the current moves to an agent that follows older ones."""
        welcome = {"type": "welcome", "v": PROTOCOL, "events_from": 0, "may_start": False, "term": self._term}
        hub.send(host, {**welcome, "moved": self.coordinator.view.data["moved"]})

    def _reject(self, host: str, problem: str, hub: Hub, now: float, wall: float) -> None:
        """Ends the connection of a host that sent something invalid; the genuine agent connects again."""
        self._welcome.discard(host)
        hub.refuse(host, problem)
        self.coordinator.contacts.reject_invalid(host, problem)
        self.coordinator.receive(host, {"type": "gone", "reason": problem, "last_received": now}, now, wall)
        self._news()

    def _read_requests(self, now: float, wall: float) -> None:
        """Reads new requests of sessions. A damaged file is left to the session that writes the next one."""
        path = self._files.path("requests.json")
        seen = paths.version(path)
        if seen in (None, self._requests_seen):
            return
        self._requests_seen = seen
        try:
            book = paths.read_record(path, RequestBook)
        except paths.Damaged as damage:
            errors.note("requests: %s" % damage)
            return
        for request in book["requests"] if book is not None else ():
            if request["serial"] > self.coordinator.view.data["request_serial"]:
                self.coordinator.request(request, now, wall)
                self._news()

    def _news(self) -> None:
        """Schedules a decision, after a message that may lead to one."""
        self._unsaved = True
        self._decide_at = min(self._decide_at, self._decided + DECIDE_S)
        self._save_at = min(self._save_at, self._decide_at)  # sessions read the states of tasks

    def _pass_over_requests(self) -> None:
        """Skips requests that sessions made to an earlier coordinator on this host."""
        with suppress(paths.Damaged):
            book = paths.read_record(self._files.path("requests.json"), RequestBook)
            self.coordinator.view.data["request_serial"] = book["serial"] if book is not None else 0

    def _vote(self, voter: Voter, now: float) -> None:
        def attach(host: str) -> Mapping[str, Any]:
            return voter.attachment(host, self.coordinator.view.data, self._history)

        voter.step(now, self._send, attach)
        for (host, what), term in voter.unconfirmed(now).items():
            self.coordinator.contacts.note_claim(host, what, term)
        if voter.end.is_over and not self.coordinator.decided:
            self.coordinator.end_superseded(now)
            self._news()
        if voter.election.leads and voter.election.memo[0] != voter.election.ballot["term"]:
            self._save(now, at_once=True)  # no earlier decision holds in a new term until it is published

    def _move(self) -> None:
        moved = self.coordinator.view.data["moved"]
        if self._moves and self._commits is not None and self._commits.has(moved):
            self.moved = moved

    def _decide(self, now: float, wall: float, wanted: Intents) -> None:
        if self._moves:
            self._decide_at = now + LOOK_S
            if self._commits is not None and not self._commits.has_published(self.coordinator.view.data["moved"]):
                self._save(now, at_once=True)
            return
        leased = self.coordinator.view.data["leased"]
        self.coordinator.step(now, wall)
        self._unsaved = self._unsaved or self.coordinator.view.data["leased"] != leased
        if self._moves:
            self._save(now, at_once=True)
            return
        self._decided = now
        due = self.coordinator.due()
        self._decide_at = now + LOOK_S if due is None else min(max(due, now + DECIDE_S), now + LOOK_S)
        orders = self.coordinator.orders()
        if any(message["intents"] for _, message in orders):
            self._save(now, at_once=True)  # first: the next coordinator must know what was requested, and why
        self._unsaved = self._unsaved or bool(orders)
        commits = self._commits
        if commits is not None and self.coordinator.decided and not commits.knows_end:
            self._save(now, at_once=True)
            commits.note_end()
        for host, message in orders:
            if commits is not None and commits.waits(now):
                commits.hold(host, message)
            else:
                self._give(host, message, wanted)

    def _give(self, host: str, message: Orders, wanted: Intents) -> None:
        """`wanted`: what is new for this host's own tasks."""
        if host == self._host:
            wanted.update(message["intents"])
            self.recovering = message["recovering"]
            self.first_steps = message["first_steps"]
            self.left_behind = message["left_behind"]
            self._over = self._over or message["over"]
        else:
            self._send(host, message)

    def _send(self, host: str, message: Mapping[str, Any]) -> None:
        if self._hub is not None:
            self._hub.send(host, message)

    def _save(self, now: float, *, at_once: bool = False) -> None:
        decided = at_once or bool(self.coordinator.history)
        for line in self.coordinator.history:
            self._history.add_own(line, now)
        self.coordinator.history.clear()
        self._history.write_waiting()
        due = now >= self._save_at if self._unsaved else now >= self._save_at + SIGN_OF_LIFE_S
        if not (decided or self.over or due):
            return
        data = self.coordinator.view.data
        data["serial"] += 1
        try:
            paths.write_text(self._path, json.dumps(data))  # not indented, which takes Python ten times as long
        except OSError as error:
            errors.note("cluster: %s" % error)
            self._unsaved = True
        else:
            self._unsaved = False
            if self._commits is not None:
                self._commits.publish(data, now, at_once=decided)
        self._save_at = now + SAVE_S
