"""The coordinator's end of the links to all agents. It decides nothing but who is spoken to on which connection.

Import it where a link is made: it imports ssl.
"""

from __future__ import annotations

import selectors
from contextlib import suppress

from .admission import PROOF_S
from .door import Door
from .lines import Lost, Violation
from .messages import FROM_AGENT
from .past import last_words
from .peer import Peer
from .tls import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

    from .lines import Message
    from .messages import FromHub, Gone
    from .stream import Stream

    Said = List[Tuple[str, FromHub]]

PARTING_S = 5.0
"""For an agent that is refused: to hear why."""


class Agent(Peer):
    """`host` is None until its hello, and again when it is dismissed; then it is dropped at `until`."""

    def __init__(self, stream: Stream, identity: Identity, now: float) -> None:
        super().__init__(stream, FROM_AGENT, now)
        self.identity = identity
        self.host: Optional[str] = None
        self.until = now + PROOF_S
        self.is_dismissed = False
        self.is_dropped = False

    @property
    def due(self) -> float:
        return self.until if self.host is None else self.pulse.due()


class Hub:
    """Raises OSError when the port cannot be listened on.

    Agents of `past` runs, which were away when theirs was ended, are told so and dismissed. Call `step` when one of
    `readers` is readable, or it is past `due`. However many agents there are, there are only two descriptors to wait
    for, so that `select` will do.
    """

    def __init__(self, port: int, identity: Identity, past: Sequence[Identity], now: float) -> None:
        self._door = Door(port, [identity, *past])
        self._identity = identity
        self._selector = selectors.DefaultSelector()
        self._agents: Dict[Agent, None] = {}
        self._seats: Dict[str, Agent] = {}
        self._broken: List[Tuple[Agent, str]] = []
        self._due: Optional[float] = None
        self._now = now

    @property
    def port(self) -> int:
        return self._door.port

    def readers(self) -> List[int]:
        own: int = self._selector.fileno()
        return [own] if self._door.is_resting else [own, self._door.fileno()]

    def writers(self) -> List[int]:
        return []

    def due(self) -> Optional[float]:
        """On the monotonic clock."""
        if self._broken:
            return self._now
        return min((time for time in (self._due, self._door.due()) if time is not None), default=None)

    def step(self, now: float) -> Said:
        """What was said, as (host, message): for each host a hello, then whatever it says, then `gone`, and so on.

        gone: reason, heard (when something last came from it, on the monotonic clock). past: run; its agent on that
        host was told that the run is over.
        """
        self._now = now
        said: Said = []
        for key, events in self._selector.select(0):
            self._serve(key.data, events, said)
        for stream, identity in self._door.step(now):
            self._take_in(Agent(stream, identity, now), said)
        broken, self._broken = self._broken, []
        for agent, reason in broken:
            self._drop(agent, reason, said)
        if self._due is not None and now >= self._due:
            self._look(said)
        return said

    def send(self, host: str, message: Mapping[str, object]) -> None:
        """Nothing happens when the host is not connected."""
        if host in self._seats:
            self._send(self._seats[host], message)

    def refuse(self, host: str, reason: str) -> None:
        """Ends its connection and tells it why. No `gone` follows."""
        if host in self._seats:
            self._dismiss(self._seats[host], reason)

    def close(self) -> None:
        """What was sent last is still delivered, as far as the sockets hold it."""
        for agent in list(self._agents):
            with suppress(Lost):
                agent.stream.finish()
                agent.stream.discard()
            self._drop(agent, "", [])
        self._selector.close()
        self._door.close()

    def _take_in(self, agent: Agent, said: Said) -> None:
        self._agents[agent] = None
        self._selector.register(agent.stream, selectors.EVENT_READ, agent)
        self._wake_at(agent.due)
        self._hear(agent, said, pull=False)

    def _serve(self, agent: Agent, events: int, said: Said) -> None:
        if agent.is_dropped:
            return
        if events & selectors.EVENT_WRITE:
            self._push(agent)
        if events & selectors.EVENT_READ:
            self._hear(agent, said)

    def _hear(self, agent: Agent, said: Said, pull: bool = True) -> None:
        try:
            if agent.is_dismissed:
                agent.stream.discard()
                return
            for message in agent.receive(self._now) if pull else agent.understand(self._now):
                self._note(agent, message, said)
        except Violation as violation:
            if agent.host is not None:
                said.append((agent.host, {"type": "lied", "reason": str(violation)}))
                said.append((agent.host, self._gone(agent, str(violation))))
            self._dismiss(agent, str(violation))
        except Lost as lost:
            self._drop(agent, str(lost), said)

    def _note(self, agent: Agent, message: Any, said: Said) -> None:
        if (message["type"] == "hello") == (agent.host is not None):
            raise Violation("hello was not said first, and once")
        if agent.identity is not self._identity:
            words, is_news = last_words(message)
            self._part(agent, words)
            if is_news:
                said.append((message["host"], {"type": "past", "run": message["run"]}))
            return
        if agent.host is None:
            self._seat(agent, message["host"], said)
        said.append((str(agent.host), message))

    def _seat(self, agent: Agent, host: str, said: Said) -> None:
        """The newest connection of a host is the one that counts: the others are what a lost one has left."""
        if host in self._seats:
            self._drop(self._seats[host], "it has connected again", said)
        self._seats[host] = agent
        agent.host = host
        self._wake_at(agent.due)

    def _send(self, agent: Agent, message: Mapping[str, object]) -> None:
        try:
            agent.send(message, self._now)
        except Lost as lost:
            self._broken.append((agent, str(lost)))
        self._watch(agent)

    def _push(self, agent: Agent) -> None:
        try:
            agent.stream.push()
        except Lost as lost:
            self._broken.append((agent, str(lost)))
        self._watch(agent)

    def _watch(self, agent: Agent) -> None:
        waiting = selectors.EVENT_WRITE if agent.stream.is_waiting else 0
        self._selector.modify(agent.stream, selectors.EVENT_READ | waiting, agent)

    def _dismiss(self, agent: Agent, reason: str) -> None:
        self._part(agent, [{"type": "refused", "reason": reason}])

    def _part(self, agent: Agent, words: Sequence[Message]) -> None:
        """It keeps its connection for a moment, without a seat; what it still says is not heard."""
        self._leave_seat(agent)
        agent.is_dismissed = True
        agent.until = self._now + PARTING_S
        self._wake_at(agent.until)
        for message in words:
            self._send(agent, message)
        try:
            agent.stream.finish()
        except Lost as lost:
            self._broken.append((agent, str(lost)))

    def _drop(self, agent: Agent, reason: str, said: Said) -> None:
        if agent.is_dropped:
            return
        agent.is_dropped = True
        if agent.host is not None:
            said.append((agent.host, self._gone(agent, reason)))
        self._leave_seat(agent)
        del self._agents[agent]
        self._selector.unregister(agent.stream)
        agent.stream.close()

    def _gone(self, agent: Agent, reason: str) -> Gone:
        return {"type": "gone", "reason": reason, "heard": agent.pulse.last_heard}

    def _leave_seat(self, agent: Agent) -> None:
        if agent.host is not None:
            del self._seats[agent.host]
            agent.host = None

    def _look(self, said: Said) -> None:
        """At everybody's deadlines, so that this is done a few times a second at most, for however many."""
        for agent in list(self._agents):
            try:
                self._keep(agent)
            except Lost as lost:
                self._drop(agent, str(lost), said)
        self._due = min((agent.due for agent in self._agents), default=None)

    def _keep(self, agent: Agent) -> None:
        if agent.host is not None:
            agent.keep(self._now)
            self._watch(agent)
        elif self._now >= agent.until:
            raise Lost("it has not said hello")

    def _wake_at(self, time: float) -> None:
        self._due = time if self._due is None else min(self._due, time)
