"""The part of the coordinator's host: the hub's messages to the decisions, and the decisions to everybody."""

from __future__ import annotations

import json
import os
import random
import sys
import time

from .. import environment, paths
from .coordinator import Coordinator
from .report import EVENTS_AT_ONCE, report
from .services import Services
from .story import Story
from .view import first_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from ..runfiles import RunFiles
    from .hub import Hub
    from .tls import Identity

SAVE_S = 2.0
"""Between two writings of cluster.json when nothing has been decided."""

SIGN_OF_LIFE_S = 8.0
"""After that it is written though nothing has changed: sessions tell by it that somebody is at work."""

DECIDE_S = 0.05
"""Between two decisions: hundreds of agents have news all the time."""

LOOK_S = 1.0
"""Decisions that follow from time alone are not later than this."""

LISTEN_AGAIN_S = 0.5


class Leading:
    """Coordinator of the run, and one of its agents: with its own host it speaks by the same messages."""

    connected = True

    def __init__(self, files: RunFiles, spec: Mapping[str, Any], now: float) -> None:
        self.over = False
        self.mending = False
        self._files = files
        self._spec = spec
        self._host: str = spec["host"]
        self._path = files.path("cluster.json")
        self._story = Story(files.path("history.jsonl"))
        before, wall = paths.read_json(self._path), time.time()
        services = Services(self._newest_checkpoint, self._mend_checkpoints, random.random)
        self.coordinator = Coordinator(spec, before or first_view(spec, wall), services, now)
        if before is None:
            self.coordinator.begin(wall)
        else:
            self.coordinator.resume(now, wall)
        self._hub: Optional[Hub] = None
        self._past: Optional[List[Identity]] = None
        self._listen_at = now
        self._told: object = None
        self._greeted = False
        self._requests_seen: object = None
        self._unsaved = True
        self._save_at = now
        self._decided = now
        self._decide_at = now

    def step(
        self, now: float, wall: float, state: Mapping[str, Any], intent: Mapping[str, Any]
    ) -> Optional[Dict[str, Any]]:
        self._listen(now, wall)
        self._hear_own(now, wall, state, intent)
        if self._hub is not None:
            for host, message in self._hub.step(now):
                self._hear(host, message, now, wall)
        self._read_requests(now, wall)
        wanted = self._decide(now, wall) if now >= self._decide_at else None
        self._save(now)
        return wanted

    def register(self) -> Tuple[List[int], List[int]]:
        return (self._hub.readers(), self._hub.writers()) if self._hub else ([], [])

    def due(self, now: float) -> Optional[float]:
        times = [self._decide_at, self._hub.due() if self._hub else self._listen_at]
        if self._unsaved:
            times.append(self._save_at)
        return min((at for at in times if at is not None), default=None)

    def close(self) -> None:
        """What was told last still arrives."""
        if self._hub is not None:
            self._hub.close()

    def _listen(self, now: float, wall: float) -> None:
        """The port may be taken after a restart of this agent: then the others are awaited a little longer."""
        if self._hub is not None or now < self._listen_at:
            return
        from .hub import Hub
        from .past import past_identities
        from .tls import Identity

        where = self._spec["coordinator"]
        try:
            own = Identity(self._files.directory, self._spec["run"])
            if self._past is None:
                self._past = past_identities(self._files, self._spec)
            self._hub = Hub(where["address"], where["port"], own, self._past, now)
        except (OSError, ValueError) as error:
            self._listen_at = now + LISTEN_AGAIN_S
            self.coordinator.listens("agents cannot reach the coordinator: %s" % error, wall)
        else:
            self.coordinator.listens(None, wall)

    def _hear_own(self, now: float, wall: float, state: Mapping[str, Any], intent: Mapping[str, Any]) -> None:
        begin = self._story.received(self._host)
        while begin < self._files.events.count:
            self._story.add_events(self._host, begin, self._files.events.since(begin, EVENTS_AT_ONCE))
            begin = self._story.received(self._host)
        message = report("state" if self._greeted else "hello", state, intent)
        news = (state["serial"], intent["serial"], message["kept"], message["lost_session"])
        if news != self._told:
            self._told = news
            self._greeted = True
            self._news()
            self.coordinator.hear(self._host, _copied(message), now, wall)

    def _hear(self, host: str, message: Mapping[str, Any], now: float, wall: float) -> None:
        assert self._hub is not None
        if message["type"] == "past":
            self.coordinator.past(host, message["run"], wall)
            return
        if message["type"] == "refused":
            self.coordinator.refused(host, message["reason"], wall)
            return
        if host not in self.coordinator.view.hosts and message["type"] != "hello":
            return
        self._unsaved = True
        if message["type"] == "hello":
            problem = self._stranger(host, message)
            if problem:
                self._hub.refuse(host, problem)
                return
            self._hub.send(host, {"type": "welcome", "v": 1, "events_from": self._story.received(host)})
        if message["type"] == "events":
            self._story.add_events(host, message["from"], message["events"])
        elif self.coordinator.hear(host, message, now, wall):
            self._news()

    def _stranger(self, host: str, hello: Mapping[str, Any]) -> Optional[str]:
        if hello["run"] != self._spec["run"]:
            return "this is the coordinator of run %s" % self._spec["run"]
        if host == self._host or host not in self.coordinator.view.hosts:
            return "%s has no part in this run" % host
        return None

    def _read_requests(self, now: float, wall: float) -> None:
        path = self._files.path("requests.json")
        try:
            found = os.stat(path)
        except OSError:
            return
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen == self._requests_seen:
            return
        self._requests_seen = seen
        for request in (paths.read_json(path) or {"requests": []})["requests"]:
            if request["serial"] > self.coordinator.view.data["request_serial"]:
                self.coordinator.request(request, now, wall)
                self._news()

    def _news(self) -> None:
        """Something was heard that may lead to a decision."""
        self._unsaved = True
        self._decide_at = min(self._decide_at, self._decided + DECIDE_S)
        self._save_at = min(self._save_at, self._decide_at)  # sessions read how the tasks are

    def _decide(self, now: float, wall: float) -> Optional[Dict[str, Any]]:
        self.coordinator.step(now, wall)
        self._decided = now
        due = self.coordinator.due()
        self._decide_at = now + LOOK_S if due is None else min(max(due, now + DECIDE_S), now + LOOK_S)
        return self._give_orders()

    def _give_orders(self) -> Optional[Dict[str, Any]]:
        wanted: Dict[str, Any] = {}
        for host, message in self.coordinator.orders():
            self._unsaved = True
            if host == self._host:
                wanted = message["intents"]
                self.mending = message["mending"]
                self.over = self.over or message["over"]
            elif self._hub is not None:
                self._hub.send(host, message)
        return wanted or None

    def _save(self, now: float) -> None:
        decided = bool(self.coordinator.story)
        for line in self.coordinator.story:
            self._story.add(line)
        self.coordinator.story.clear()
        self._story.write_waiting()
        due = now >= self._save_at if self._unsaved else now >= self._save_at + SIGN_OF_LIFE_S
        if not (decided or self.over or due):
            return
        data = self.coordinator.view.data
        data["serial"] += 1
        try:
            paths.write_text(self._path, json.dumps(data))  # not indented, which takes Python ten times as long
        except OSError as error:
            print("cluster: %s" % error, file=sys.stderr, flush=True)
            self._unsaved = True
        else:
            self._unsaved = False
        self._save_at = now + SAVE_S

    def _newest_checkpoint(self) -> Optional[Mapping[str, Any]]:
        from .. import checkpoints

        found = [one["newest_complete"] for one in checkpoints.report(self._checkpoint_directories())]
        return max((one for one in found if one is not None), key=lambda one: one["time"], default=None)

    def _mend_checkpoints(self) -> List[str]:
        from .. import checkpoint_mending

        return [text for path in self._checkpoint_directories() for text in checkpoint_mending.mend(path)]

    def _checkpoint_directories(self) -> List[str]:
        return environment.Marks(self._files.code_directory()).words(self._spec["checkpoint_dirs"])


def _copied(message: Dict[str, Any]) -> Dict[str, Any]:
    """The coordinator keeps what it hears, and the agent goes on changing what it tells."""
    copied: Dict[str, Any] = json.loads(json.dumps(message))
    return copied
