"""The part of every host but the coordinator's: it dials the coordinator, tells it all, and takes its orders."""

from __future__ import annotations

import random

from .. import intents
from .dialer import Dialer
from .report import EVENTS_AT_ONCE, report
from .tls import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from ..runfiles import RunFiles


class Following:
    """A Part."""

    def __init__(self, files: RunFiles, spec: Mapping[str, Any], now: float) -> None:
        self.over = False
        self.connected = False
        self.mending = False
        self._files = files
        self._spec = spec
        self._limit_s: Optional[float] = spec["recovery"]["host_timeout_s"]
        self._heard = now
        self._told: object = None
        self._events: Optional[int] = None
        coordinator, own = spec["coordinator"], Identity(files.directory, spec["run"])
        self._dialer = Dialer(coordinator["address"], coordinator["host"], own, now, random.random)

    def step(
        self, now: float, wall: float, state: Mapping[str, Any], intent: Mapping[str, Any]
    ) -> Optional[Dict[str, Any]]:
        wanted: Dict[str, Any] = {}
        for message in self._dialer.step(now):
            self._hear(message, now, state, intent, wanted)
        if self.connected:
            self._tell(state, intent)
        elif self._limit_s is not None and now - self._heard >= self._limit_s:
            wanted.update(_given_up(intent, self._limit_s))
        return wanted or None

    def register(self) -> Tuple[List[int], List[int]]:
        return self._dialer.readers(), self._dialer.writers()

    def due(self, now: float) -> Optional[float]:
        return self._dialer.due()

    def close(self) -> None:
        """What was told last still arrives."""
        self._dialer.close()

    def _hear(
        self,
        message: Mapping[str, Any],
        now: float,
        state: Mapping[str, Any],
        intent: Mapping[str, Any],
        wanted: Dict[str, Any],
    ) -> None:
        kind = message["type"]
        if kind == "connected":
            self._dialer.send(
                dict(
                    report("hello", state, intent),
                    v=1,
                    run=self._spec["run"],
                    host=self._spec["host"],
                    agent=state["agent"],
                    events=self._files.events.count,
                )
            )
        elif kind == "welcome":
            self.connected = True
            self._heard = now
            self._events = int(message["events_from"])
            self._told = None
        elif kind == "orders":
            wanted.update(message["intents"])
            self.mending = message["mending"]
            self.over = self.over or bool(message["over"])
        elif kind == "gone":
            if self.connected:
                self._heard = message["heard"]
            self.connected = False

    def _tell(self, state: Mapping[str, Any], intent: Mapping[str, Any]) -> None:
        """Events before the state that they have led to: whoever has heard the last state has the whole story."""
        assert self._events is not None
        while self._events < self._files.events.count:
            events = self._files.events.since(self._events, EVENTS_AT_ONCE)
            self._dialer.send({"type": "events", "from": self._events, "events": events})
            self._events += len(events)
        news = (state["serial"], intent["serial"], intent["session"] is None, intent["lost_session"])
        if news != self._told:
            self._told = news
            self._dialer.send(report("state", state, intent))


def _given_up(intent: Mapping[str, Any], limit_s: float) -> Dict[str, Any]:
    reason = "no word from the coordinator for %.0f s" % limit_s
    wanted = {}
    for task, held in intent["tasks"].items():
        if held["want"] != "stop":
            wanted[task] = dict(held)
            intents.change(wanted[task], want="stop", reason=reason, by="host_timeout")
    return wanted
