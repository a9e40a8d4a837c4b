"""One agent's part in its run: it dials the coordinator, reports and takes its orders, or is the coordinator."""

from __future__ import annotations

import random

from ..records.reasons import fact
from ..records.spec import coordinates
from ..run import intents
from .report import Report, events_since, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Protocol, Tuple

    from ..link.peer import FromDialer
    from ..records.run_state import Intents, State
    from ..records.spec import Spec
    from ..run.intents import IntentFollower
    from ..run.runfiles import RunFiles

    class Role(Protocol):
        connected: bool
        first_steps: Mapping[str, float]
        """Of tasks here that have reported no step: how long their peers took for theirs."""

        @property
        def may_start(self) -> bool:
            """False while an agent whose machine was restarted has not heard that the run is still this one."""

        @property
        def over(self) -> bool:
            """The run has ended; the agent may go when all its tasks are final."""

        @property
        def recovering(self) -> bool:
            """A task or a host was lost and is not back yet: who waits for it does not hang."""

        def step(self, now: float, wall: float, state: State, intent: IntentFollower) -> Optional[Intents]: ...

        def register(self) -> Tuple[List[int], List[int]]: ...

        def due(self, now: float) -> Optional[float]: ...

        def close(self) -> None: ...


def take_role(files: RunFiles, spec: Spec, now: float, *, rebooted: bool) -> Role:
    """The part that falls to this host. Its `step` never blocks, and gives new intents for this host's tasks."""
    if coordinates(spec):
        from .leading import Leading

        return Leading(files, spec, now, rebooted=rebooted)
    return Following(files, spec, now, rebooted=rebooted)


class Following:
    """A Role."""

    def __init__(self, files: RunFiles, spec: Spec, now: float, *, rebooted: bool = False) -> None:
        self.over = False
        self.connected = False
        self.may_start = not rebooted
        self.first_steps: Mapping[str, float] = {}
        self._recovering = False
        self._files = files
        self._spec = spec
        self._limit_s = spec["recovery"]["host_timeout_s"]
        self._heard = now
        self._report = Report(brief=False)
        self._events: Optional[int] = None
        from ..link.dialer import Dialer  # not for a coordinator, which takes connections
        from ..link.tls import Identity

        coordinator, own = spec["coordinator"], Identity(files.directory, spec["run"])
        self._dialer = Dialer(coordinator["address"], coordinator["host"], own, now, random.random)

    @property
    def recovering(self) -> bool:
        """Also while that is unknown: the lead is on the host that is out of touch."""
        return self._recovering or not self.connected

    def step(self, now: float, wall: float, state: State, intent: IntentFollower) -> Optional[Intents]:
        wanted: Intents = {}
        for message in self._dialer.step(now):
            self._hear(message, now, state, intent, wanted)
        if self.connected:
            self._send_news(state, intent)
        elif self._limit_s is not None and now - self._heard >= self._limit_s:
            why = fact("isolated", seconds=self._limit_s)
            wanted.update(intents.stopped(intent.value["tasks"], by="host_timeout", why=why))
        return wanted or None

    def register(self) -> Tuple[List[int], List[int]]:
        return self._dialer.readers(), self._dialer.writers()

    def due(self, now: float) -> Optional[float]:
        return self._dialer.due()

    def close(self) -> None:
        """The last messages still arrive."""
        self._dialer.close()

    def _hear(self, message: FromDialer, now: float, state: State, intent: IntentFollower, wanted: Intents) -> None:
        if message["type"] == "connected":
            self._dialer.send(hello(self._spec, state, intent, self._files.events.count))
        elif message["type"] == "welcome":
            self.connected = True
            self._heard = now
            self._events = message["events_from"]
            self.may_start = self.may_start or message["may_start"]
            self._report = Report(brief=message["progress"])
        elif message["type"] == "orders":
            wanted.update(message["intents"])
            self._recovering = message["mending"]
            self.first_steps = message["first_steps"]
            self.may_start = self.may_start or message["may_start"]
            self.over = self.over or message["over"]
        elif message["type"] == "gone":
            if self.connected:
                self._heard = message["heard"]
            self.connected = False

    def _send_news(self, state: State, intent: IntentFollower) -> None:
        """Events come before the state that they led to: who has heard the last state has the whole story."""
        assert self._events is not None
        while self._events < self._files.events.count:
            events = events_since(self._files.events, self._events)
            self._dialer.send({"type": "events", "from": self._events, "events": events})
            self._events += len(events)
        news = self._report.news(state, intent)
        if news is not None:
            self._dialer.send(news)
