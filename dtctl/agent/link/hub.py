"""The coordinator's end of the links to all agents. It decides only which connection is a host's.

Import it only where a link is created: it imports ssl. With asyncio in addition an agent would have 1.6 times (Python
3.8) to 1.8 times (3.11) the private memory of one with ssl alone, on every host of every run.
"""

from __future__ import annotations

import select
import selectors
import sys
from contextlib import suppress

from ..records.messages import FROM_AGENT, Hello
from .acceptor import PROOF_S, Acceptor
from .peer import Peer, Violation
from .tls import Identity, Lost, TlsStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

    from .peer import FromHub, Gone, Message

    Received = List[Tuple[str, FromHub]]


class Agent(Peer):
    """`name` is the host that its certificate names, `host` the same from its hello on until it is dismissed. Without
    a `host` it is dropped at `until`.
    """

    def __init__(self, stream: TlsStream, identity: Identity, now: float) -> None:
        super().__init__(stream, FROM_AGENT, now)
        self.identity = identity
        self.name = stream.host
        self.host: Optional[str] = None
        self.until = now + PROOF_S
        self.is_dismissed = False
        self.is_dropped = False
        self.is_written_to = False
        """Whether it waits until its socket is writable."""

    def due(self) -> float:
        return self.until if self.host is None else super().due()


PARTING_S = 5.0
"""The time that a refused agent has to read the reason."""

MANY = 100
REST_S = 0.05
"""The pause after each round of reading with this many agents, so that one round serves several of them."""


class Hub:
    """Raises CannotListen; `address` is HOST:PORT, as the agents reach it.

    Agents of `superseded` runs, which were away when their run was ended, are sent its `last_words` and dismissed.
    `last_words` also returns whether those are new to them. `identity` None: all runs are such. Call `step` when one of
    `readers` is readable, or it is past `due`. For any number of agents there are only two descriptors to wait for, so
    that `select` suffices. `removed`: whether a run was taken down, and this host still waits for that one.

    `stance`: the answer to a query, on the connection on which it came.
    """

    def __init__(
        self,
        address: str,
        port: int,
        identity: Optional[Identity],
        superseded: Sequence[Identity],
        last_words: Callable[[Hello], Tuple[List[Message], bool]],
        now: float,
        *,
        removed: Callable[[str, str], bool] = lambda run, host: False,
        stance: Callable[[], Mapping[str, Any]] = lambda: {"term": 0, "backs": None, "elected": False},
    ) -> None:
        own = [identity] if identity is not None else []
        self._acceptor = Acceptor(address, port, [*own, *superseded])
        self._last_words = last_words
        self._stance = stance
        self._removed = removed
        self._identity = identity
        self._selector = selectors.DefaultSelector()
        self._agents: Dict[Agent, None] = {}
        self._connected: Dict[str, Agent] = {}
        self._broken: List[Tuple[Agent, str]] = []
        self._reported: Set[Tuple[str, str]] = set()
        """Problems of hosts that were reported, and are not repeated."""
        self._due: Optional[float] = None
        self._rests_until: Optional[float] = None
        self._now = now

    @property
    def port(self) -> int:
        return self._acceptor.port

    def readers(self) -> List[int]:
        own = [] if self._rests_until is not None else [self._selector.fileno()]
        return own if self._acceptor.is_resting else [*own, self._acceptor.fileno()]

    def register(self, waiting: select.poll) -> None:
        for descriptor in self.readers():
            waiting.register(descriptor, select.POLLIN)

    def due(self) -> Optional[float]:
        """When to call `step` next, on the monotonic clock."""
        if self._broken:
            return self._now
        times = (self._due, self._rests_until, self._acceptor.due())
        return min((time for time in times if time is not None), default=None)

    def step(self, now: float) -> Received:
        """Received messages, as (host, message): for each host a hello, other messages, then `gone`, and so on.

        gone: reason, last_received (on the monotonic clock). superseded: run;
        the agent of that run on that host was sent its end. left: run; nothing of it is left on that host, as it
        reports itself. invalid: reason; its connection ends.
        """
        self._now = now
        received: Received = []
        if self._rests_until is None or now >= self._rests_until:
            ready = self._selector.select(0)
            for key, events in ready:
                self._serve(key.data, events, received)
            self._rests_until = now + REST_S if ready and len(self._agents) >= MANY else None
        for stream, identity in self._acceptor.step(now):
            self._take_in(Agent(stream, identity, now), received)
        broken, self._broken = self._broken, []
        for agent, reason in broken:
            self._drop(agent, reason, received)
        if self._due is not None and now >= self._due:
            self._inspect(received)
        return received

    def send(self, host: str, message: Mapping[str, object]) -> None:
        """Sends a message; does nothing if the host is not connected."""
        if host in self._connected:
            self._send(self._connected[host], message)

    def refuse(self, host: str, reason: str) -> None:
        """Ends its connection and sends it the reason. No `gone` follows."""
        if host in self._connected:
            self._dismiss(self._connected[host], reason)

    def redirect(self, host: str) -> None:
        """Ends its connection and sends it the host that this voter backs. No `gone` follows."""
        if host in self._connected:
            self._part(self._connected[host], [{"type": "elsewhere", **self._stance()}])

    def close(self) -> None:
        """Closes all connections.

        The last messages are still delivered, as far as the sockets' buffers contain them.
        """
        for agent in list(self._agents):
            with suppress(Lost):
                agent.stream.finish()
                agent.stream.discard()
            self._drop(agent, "", [])
        self._selector.close()
        self._acceptor.close()

    def _take_in(self, agent: Agent, received: Received) -> None:
        """A host has its connection and one that has not said hello; any others would be kept for nothing."""
        for other in [other for other in self._agents if other.host is None and other.name == agent.name]:
            if other.identity is agent.identity:
                self._drop(other, "it has connected again", received)
        self._agents[agent] = None
        self._selector.register(agent.stream, selectors.EVENT_READ, agent)
        self._wake_at(agent.due())
        self._receive(agent, received, pull=False)

    def _serve(self, agent: Agent, events: int, received: Received) -> None:
        if agent.is_dropped:
            return
        if events & selectors.EVENT_WRITE:
            self._push(agent)
        if events & selectors.EVENT_READ:
            self._receive(agent, received)

    def _receive(self, agent: Agent, received: Received, pull: bool = True) -> None:
        try:
            if agent.is_dismissed:
                agent.stream.discard()
                return
            for message in agent.receive(self._now) if pull else agent.understand(self._now):
                self._note(agent, message, received)
        except Violation as violation:
            self._reject(agent, str(violation), received)
            self._dismiss(agent, str(violation))
        except Lost as lost:
            self._drop(agent, str(lost), received)
        except Exception as error:  # a bug of ours must not end the other hosts' connections
            if self._is_news(agent.name, "mistake"):
                sys.excepthook(type(error), error, error.__traceback__)
            self._drop(agent, "its message is invalid", received)

    def _reject(self, agent: Agent, reason: str, received: Received) -> None:
        if agent.identity is self._identity:
            received.append((agent.name, {"type": "invalid", "reason": reason}))
        if agent.host is not None:
            received.append((agent.host, self._gone(agent, reason)))

    def _is_news(self, host: str, what: str) -> bool:
        is_news = (host, what) not in self._reported
        self._reported.add((host, what))
        return is_news

    def _note(self, agent: Agent, message: Any, received: Received) -> None:
        is_first = agent.host is None
        if message["type"] == "query" and agent.identity is self._identity:
            self._send(agent, {"type": "stance", **self._stance()})
            return
        if message["type"] == "leave":
            self._let_go(agent, received)
            return
        if is_first != (message["type"] == "hello") and message["type"] not in ("canvass", "query"):
            raise Violation("the first message was not hello, or hello came twice")
        if message["type"] == "hello" and message["host"] != agent.name:
            raise Violation("its hello names %.300a, but its certificate names another host" % message["host"])
        if agent.identity is not self._identity:
            self._end_superseded(agent, message, received)
            return
        if is_first:
            self._assign_host(agent, received)
        received.append((agent.name, message))

    def _end_superseded(self, agent: Agent, first: Any, received: Received) -> None:
        words: List[Message] = [self._over(agent)]  # for a candidate
        is_news = True
        if first["type"] == "hello":
            words, is_news = self._last_words(first)
        self._part(agent, words)
        if is_news and self._is_news(agent.name, agent.identity.run):
            received.append((agent.name, {"type": "superseded", "run": agent.identity.run}))

    def _let_go(self, agent: Agent, received: Received) -> None:
        """A host reports only for itself that it has ended what it had of a run, and only of a run that is over."""
        if agent.host is not None:
            raise Violation("it leaves on a connection that began with a hello")
        if agent.identity is self._identity:
            self._dismiss(agent, "the run is not over here")
            return
        self._part(agent, [self._over(agent)])
        received.append((agent.name, {"type": "left", "run": agent.identity.run}))

    def _over(self, agent: Agent) -> Message:
        return {"type": "over", "removed": self._removed(agent.identity.run, agent.name)}

    def _assign_host(self, agent: Agent, received: Received) -> None:
        """The newest connection of a host counts: older ones are remains of a lost one."""
        if agent.name in self._connected:
            self._drop(self._connected[agent.name], "it has connected again", received)
        self._connected[agent.name] = agent
        agent.host = agent.name
        self._wake_at(agent.due())

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
        if agent.is_written_to != agent.stream.is_waiting:
            agent.is_written_to = agent.stream.is_waiting
            waiting = selectors.EVENT_WRITE if agent.is_written_to else 0
            self._selector.modify(agent.stream, selectors.EVENT_READ | waiting, agent)

    def _dismiss(self, agent: Agent, reason: str) -> None:
        """Sends the reason under its former name, too, which an agent of an older version reads."""
        self._part(agent, [{"type": "refused", "text": reason, "reason": reason}])

    def _part(self, agent: Agent, words: Sequence[Message]) -> None:
        """Keeps its connection for a moment, not as the one of its host; further messages are ignored."""
        self._release_host(agent)
        agent.is_dismissed = True
        agent.until = self._now + PARTING_S
        self._wake_at(agent.until)
        for message in words:
            self._send(agent, message)
        try:
            agent.stream.finish()
        except Lost as lost:
            self._broken.append((agent, str(lost)))

    def _drop(self, agent: Agent, reason: str, received: Received) -> None:
        if agent.is_dropped:
            return
        agent.is_dropped = True
        if agent.host is not None:
            received.append((agent.host, self._gone(agent, reason)))
        self._release_host(agent)
        del self._agents[agent]
        self._selector.unregister(agent.stream)
        agent.stream.close()

    def _gone(self, agent: Agent, reason: str) -> Gone:
        return {"type": "gone", "reason": reason, "last_received": agent.last_received}

    def _release_host(self, agent: Agent) -> None:
        if agent.host is not None:
            del self._connected[agent.host]
            agent.host = None

    def _inspect(self, received: Received) -> None:
        """Checks the deadlines of all connections at once, so that many cost little more than few."""
        for agent in list(self._agents):
            try:
                self._keep(agent)
            except Lost as lost:
                self._drop(agent, str(lost), received)
        self._due = min((agent.due() for agent in self._agents), default=None)

    def _keep(self, agent: Agent) -> None:
        if agent.host is not None:
            agent.keep(self._now)
            self._watch(agent)
        elif self._now >= agent.until:
            raise Lost("it has not sent a hello")

    def _wake_at(self, time: float) -> None:
        self._due = time if self._due is None else min(self._due, time)
