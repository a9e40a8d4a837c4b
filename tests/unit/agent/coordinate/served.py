"""A World for which commands can be typed: its coordinator is an agent's, with its files, and answers requests.

What answers them is the code of the agents' sessions; while it waits, the clock of the World turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dtctl.agent.coordinate.leading import Leading
from dtctl.agent.host import paths, processes, wake
from dtctl.agent.host.errors import Refused
from dtctl.agent.records.kinds import made
from dtctl.agent.records.messages import Orders
from dtctl.agent.records.run_state import Process, State
from dtctl.agent.records.whole_run import RunView
from dtctl.agent.requests import runs
from dtctl.agent.requests.session import _answer
from dtctl.agent.run.runfiles import RunFiles
from dtctl.config.load import load_cluster
from dtctl.errors import AgentError, DtctlError, TransportError
from dtctl.model import Host, SshSettings
from dtctl.operations.up.launch import make_plan
from dtctl.plan.spec import host_spec, run_spec
from dtctl.transport.seam import Session
from tests.unit.agent.coordinate.world import World
from tests.unit.fakes import FakeSession

RUN = "demo-1"
CLUSTER = """\
name: demo
hosts:
  "host-[0-{last}]": {{}}
jobs:
  chief: {{hosts: [host-0]}}
  ps: {{hosts: "host-[1-4]"}}
  worker: {{hosts: "host-[1-{last}]"}}
trainer: {{command: [python, train.py]}}
recovery: {{max_restarts: 1000, max_run_restarts: 100000}}
"""


class Links:
    """In the place of the Hub of the coordinator's agent."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Any]] = []
        self.sent: list[tuple[str, Any]] = []
        self.received = 0
        """How many messages of other hosts have arrived."""

    def step(self, now: float) -> list[tuple[str, Any]]:
        arrived, self.waiting = self.waiting, []
        self.received += len(arrived)
        return arrived

    def send(self, host: str, message: Any) -> None:
        self.sent.append((host, message))

    def refuse(self, host: str, reason: str) -> None:
        raise AssertionError((host, reason))

    def due(self) -> None:
        return None

    def close(self) -> None:
        pass


class Served(World):
    """A chief, four ps, and a worker on each host but the chief's, as `directory`/cluster.yaml describes them."""

    def __init__(self, hosts: int, directory: Path) -> None:
        file = directory / "cluster.yaml"
        file.write_text(CLUSTER.format(last=hosts - 1))
        (directory / "train.py").touch()
        self.plan = make_plan(load_cluster(file), lambda ssh: ssh.target)
        self.root = directory / "agent"
        self._common = run_spec(
            self.plan, run=RUN, digest="", bundle=None, created=time.time(), controller="me@desk", replaced={}
        )
        spec = host_spec(self.plan, "host-0", self._common)
        self._on_disk: dict[str, RunFiles] = {}
        self.links = Links()
        self._turning = threading.RLock()
        super().__init__("", {one["task"]: one["host"] for one in spec["roster"]}, spec)
        self.wall = time.time()

    def _make_coordinator(self, data: RunView) -> None:
        files = self.files("host-0")
        self.leading = Leading(files, self.spec, self.now)
        self.leading._hub = self.links  # type: ignore[assignment]
        self.coordinator = self.leading.coordinator
        self._greeted.clear()

    def files(self, host: str) -> RunFiles:
        """The run's directory there, which an agent works in as far as sessions see."""
        found = self._on_disk.get(host)
        if found is None:
            found = self._on_disk[host] = RunFiles(str(self.root / "runs" / RUN / host))
            spec = host_spec(self.plan, host, self._common)
            found.begin(found.stage(spec, {}, {}, made(Process, **processes.myself())), spec)
            wake.show_work(wake.listen(found.wake_path))
            paths.make_directory(paths.cluster_directory(str(self.root), "demo", host))
            runs.set_current(str(self.root), "demo", host, RUN)
        return found

    def write_state(self, host: str) -> None:
        """As its agent does."""
        paths.write_json(self.files(host).state_path, self._own_state(host))

    def _own_state(self, host: str) -> State:
        agent = {**processes.myself(), "since": self.wall}
        return made(State, **{**self._state(host), "agent": agent})

    def tick(self) -> None:
        with self._turning:
            super().tick()

    def _report(self, host: str, message: Any) -> None:
        if host != self.spec["host"]:
            self.links.waiting.append((host, message))

    def _lead(self) -> Sequence[tuple[str, Orders]]:
        own = self.spec["host"]
        self._obey(own, self.leading.step(self.now, self.wall, self._own_state(own), self._followed(own)) or {})
        sent, self.links.sent = self.links.sent, []
        orders = [(host, message) for host, message in sent if message["type"] == "orders"]
        for host, message in orders:
            self._obey(host, message["intents"])
            self.sent.append(host)
            if message["over"]:
                self._over.add(host)
        return orders


class Talk:
    """A session's conversation with its controller, in the time of the World."""

    def __init__(self, world: Served) -> None:
        self._world = world
        self.root = str(world.root)
        self.frames: list[dict[str, Any]] = []
        self.held: list[Any] = []
        self.leaving: list[Callable[[], object]] = []

    def send(self, kind: str, frame: Mapping[str, Any]) -> None:
        self.frames.append({**frame, "type": kind})

    @contextmanager
    def at(self, what: str | None) -> Iterator[None]:
        yield

    def pause(self, seconds: float) -> None:
        self._world.run_for(seconds)

    def wait(self, done: Callable[[], bool], limit_s: float) -> bool:
        end = self._world.now + limit_s
        while not done():
            if self._world.now > end:
                return False
            self._world.tick()
        return True


class ServedTransport:
    """Reaches the hosts of a Served, but for those that have crashed. Of them, and of no others, it has `reached`."""

    def __init__(self, world: Served) -> None:
        self._world = world
        self.opened: list[str] = []
        self.reached = False

    def open(self, host: Host) -> Session:
        self.opened.append(host.name)
        if host.name in self._world.crashed:
            raise TransportError(f"cannot connect to {host.name}")
        self.reached = True
        return FakeSession(host, self._answer)

    def _answer(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        with self._world._turning:
            self._world.write_state(session.host.name)
            talk = Talk(self._world)
            with suppress(IndexError):
                try:
                    _answer(talk, fields)  # type: ignore[arg-type]
                except Refused as refused:
                    why = refused.fields()
                    error = AgentError(why["code"], why["summary"], detail=why["detail"], hint=why["hint"])
                    return [*talk.frames, error]
        return [*talk.frames]

    def hostname(self, settings: SshSettings) -> str:
        return settings.target

    def dialled(self) -> dict[str, float]:
        return {}

    def failed(self) -> dict[str, TransportError]:
        return {}
