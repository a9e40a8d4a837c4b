"""The agents of `benchmarks.coordinator`, in one process without the rest of dtctl.

coordinator_ends.py DIRECTORY COUNT      each obeys as an agent does, and its task reports a step every 3 s
"""

from __future__ import annotations

import json
import random
import select
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dtctl.agent.coordinate.following import Report
from dtctl.agent.link.dialer import Dialer
from dtctl.agent.link.tls import Identity
from dtctl.agent.records.kinds import made
from dtctl.agent.records.messages import PROTOCOL
from dtctl.agent.records.run_state import Intent, State
from dtctl.agent.run import intents

STATE_EVERY_S = 3.0


class Agent:
    """The agent of one host, whose tasks obey at once."""

    def __init__(self, directory: Path, spec: dict[str, Any], host: str, now: float) -> None:
        self.host, self.run = host, spec["run"]
        own, coordinator = Identity(str(directory / "credentials" / host), self.run), spec["coordinator"]
        self.dialer = Dialer(coordinator["address"], coordinator["host"], own, now, random.random)
        tasks = [place["task"] for place in spec["roster"] if place["host"] == host]
        self._intents = {task: made(Intent, want="hold") for task in tasks}
        agent = {"pid": 1, "start_time": 1, "boot_id": "b"}
        self._state = made(State, run=self.run, host=host, agent=agent, tasks={task: {} for task in tasks})
        self._next_state = now + STATE_EVERY_S * random.random()
        self._welcome = False
        self._report = Report(brief=False)
        intent = {"serial": 1, "session": None, "tasks": self._intents}
        self._followed: Any = SimpleNamespace(value=intent, lost_session=False)
        self.over = False

    def due(self) -> float:
        due = self.dialer.due()
        return self._next_state if due is None else min(due, self._next_state)

    def step(self, now: float) -> None:
        for message in self.dialer.step(now):
            if message["type"] == "connected":
                hello = {"type": "hello", "v": PROTOCOL, "run": self.run, "host": self.host, "events": 0}
                self.dialer.send({**hello, "agent": self._state["agent"], **self._facts()})
            elif message["type"] == "welcome":
                self._welcome = True
                self._report = Report(brief=message["progress"])
            elif message["type"] == "orders":
                self._obey(message["intents"])
                self._tell()
                self.over = message["over"]
            elif message["type"] == "gone":
                self._welcome = False
        if now >= self._next_state:
            self._next_state = now + STATE_EVERY_S
            for entry in self._state["tasks"].values():
                entry["step"] = (entry["step"] or 0) + 1
                entry["step_time"] = entry["progress"] = time.time()
            self._tell()

    def _obey(self, orders: dict[str, Any]) -> None:
        for task, intent in intents.newer(self._intents, orders).items():
            self._intents[task] = intent.copy()
            self._followed.value["serial"] += 1
            entry, runs = self._state["tasks"][task], intent["want"] == "run"
            entry["attempt"], entry["generation"] = 1, intent["generation"]
            entry["pid"] = entry["start_time"] = 2
            entry["state"], entry["ready"], entry["since"] = "running" if runs else "stopped", runs, time.time()

    def _tell(self) -> None:
        if self._welcome:
            self._state["serial"] += 1
            news: Any = self._report.news(self._state, self._followed)
            self.dialer.send(news)

    def _facts(self) -> dict[str, Any]:
        return {"state": self._state, "intents": self._intents, "kept": True, "lost_session": False, "stop_run": None}


def main() -> None:
    directory = Path(sys.argv[1])
    spec = json.loads((directory / "spec.json").read_text())
    now = time.monotonic()
    everybody = [Agent(directory, spec, f"n-{number}", now) for number in range(2, int(sys.argv[2]) + 2)]
    while everybody:
        waits = select.poll()
        for agent in everybody:
            for descriptor in agent.dialer.readers():
                waits.register(descriptor, select.POLLIN)
            for descriptor in agent.dialer.writers():
                waits.register(descriptor, select.POLLIN | select.POLLOUT)
        waits.poll(max(min(agent.due() for agent in everybody) - time.monotonic(), 0) * 1000 + 20)
        now = time.monotonic()
        for agent in everybody:
            agent.step(now)
            if agent.over:
                agent.dialer.close()
        everybody = [agent for agent in everybody if not agent.over]


if __name__ == "__main__":
    main()
