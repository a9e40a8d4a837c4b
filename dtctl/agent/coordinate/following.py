"""The part of every host but the coordinator's: it dials the coordinator, tells it all, and takes its orders."""

from __future__ import annotations

import random

from ..link.dialer import Dialer
from ..link.tls import Identity
from ..records.reasons import because, fact
from ..run import intents
from .role import Report, events_since, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Tuple

    from ..link.messages import FromDialer
    from ..records.run_state import Intents, State
    from ..records.spec import Spec
    from ..run.intents import IntentFollower
    from ..run.runfiles import RunFiles


class Following:
    """A Role."""

    def __init__(self, files: RunFiles, spec: Spec, now: float, *, rebooted: bool = False) -> None:
        self.over = False
        self.connected = False
        self.may_start = not rebooted
        self.first_steps: Mapping[str, float] = {}
        self._mending = False
        self._files = files
        self._spec = spec
        self._limit_s = spec["recovery"]["host_timeout_s"]
        self._heard = now
        self._report = Report(brief=False)
        self._events: Optional[int] = None
        coordinator, own = spec["coordinator"], Identity(files.directory, spec["run"])
        self._dialer = Dialer(coordinator["address"], coordinator["host"], own, now, random.random)

    @property
    def mending(self) -> bool:
        """Also while nobody can tell: the lead is on the host that is out of touch."""
        return self._mending or not self.connected

    def step(self, now: float, wall: float, state: State, intent: IntentFollower) -> Optional[Intents]:
        wanted: Intents = {}
        for message in self._dialer.step(now):
            self._hear(message, now, state, intent, wanted)
        if self.connected:
            self._tell(state, intent)
        elif self._limit_s is not None and now - self._heard >= self._limit_s:
            wanted.update(_given_up(intent.value["tasks"], self._limit_s))
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
            self._mending = message["mending"]
            self.first_steps = message["first_steps"]
            self.may_start = self.may_start or message["may_start"]
            self.over = self.over or message["over"]
        elif message["type"] == "gone":
            if self.connected:
                self._heard = message["heard"]
            self.connected = False

    def _tell(self, state: State, intent: IntentFollower) -> None:
        """Events come before the state that they led to: who has heard the last state has the whole story."""
        assert self._events is not None
        while self._events < self._files.events.count:
            events = events_since(self._files.events, self._events)
            self._dialer.send({"type": "events", "from": self._events, "events": events})
            self._events += len(events)
        news = self._report.news(state, intent)
        if news is not None:
            self._dialer.send(news)


def _given_up(held: Intents, limit_s: float) -> Intents:
    why = because([fact("isolated", seconds=limit_s)])
    wanted = {task: intent.copy() for task, intent in held.items() if intent["want"] != "stop"}
    for intent in wanted.values():
        intents.change(intent, want="stop", by="host_timeout", **why)
    return wanted
