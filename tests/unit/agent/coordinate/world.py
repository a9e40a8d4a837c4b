"""A cluster that exists in memory: hosts that obey a real Coordinator, a clock that a test turns, faults by hand."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from dtctl.agent.coordinate.coordinator import Coordinator
from dtctl.agent.coordinate.following import Report
from dtctl.agent.coordinate.recovery import Services
from dtctl.agent.coordinate.view import first_view
from dtctl.agent.records.answers import Checkpoint
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.messages import FROM_AGENT, PROTOCOL, Orders
from dtctl.agent.records.reasons import because, fact, said
from dtctl.agent.records.run_state import Ending, How, Intents, LostCheckpoint, Repaired
from dtctl.agent.records.spec import VERSION, Spec
from dtctl.agent.records.values import Repair
from dtctl.agent.records.whole_run import HistoryEvent, PostedRequest, RunView
from dtctl.agent.run import intents
from tests.reasons import reason_of
from tests.unit.agent.coordinate.simulated import SimTask
from tests.unit.tasks import checkpoint

Fields = dict[str, Any]

SCOPES = {
    "async-ps": {"lead": "task", "worker": "task", "ps": "task"},
    "sync-ps": {"lead": "gang", "worker": "task", "ps": "gang"},
    "ps-strategy": {"lead": "task", "worker": "task", "ps": "with-lead"},
    "in-graph": {"lead": "task", "worker": "task", "ps": "task"},
    "kvstore": {"lead": "gang", "worker": "gang", "other": "gang"},
    "collective": {"lead": "gang", "worker": "gang"},
}
STEP_S = 0.25
AGENT = {"pid": 1, "start_time": 1, "boot_id": "b"}


def role_of(task: str) -> str:
    job = task.partition(":")[0]
    if task in ("chief:0", "worker:0"):
        return "lead"
    return job if job in ("ps", "worker", "evaluator") else "other"


def spec_of(strategy: str, places: Mapping[str, str], **fields: Any) -> Spec:
    """`places`: task -> host. The lead is chief:0, or worker:0 without one. `held`: jobs wait, as by depends_on."""
    lead = "chief:0" if "chief:0" in places else "worker:0"
    roles = {task: "worker" if task == "worker:0" != lead else role_of(task) for task in places}
    collective = strategy == "collective"
    stages = [
        [task for task in places if roles[task] == role] for role in ("ps", "lead", "worker", "evaluator", "other")
    ]
    after = {0: [], 1: [0], 2: [0, 1], 3: [0, 1], 4: []}
    recovery = {"max_restarts": 2, "backoff_min_s": 1.0, "backoff_max_s": 4.0, "reset_after_s": 600.0}
    spec = {
        "version": VERSION,
        "digest": "",
        "created": 0,
        "controller": "me@desk",
        "run": "demo-1",
        "cluster": "demo",
        "host": places[lead],
        "strategy": strategy,
        "coordinator": {"host": places[lead], "address": "10.0.0.1:2221", "port": 2221},
        "roster": [
            {
                "task": task,
                "host": host,
                "address": f"{host}:2222",
                "role": roles[task],
                "scope": "task" if roles[task] == "evaluator" else SCOPES[strategy].get(roles[task], "task"),
                "vital": roles[task] != "evaluator",
                "decides": roles[task] in ("lead", "worker") if collective else roles[task] == "lead",
                "listens": True,
                "serves": roles[task] == "ps" or (strategy in ("ps-strategy", "in-graph") and roles[task] == "worker"),
            }
            for task, host in places.items()
        ],
        "stages": [
            {
                "name": str(index),
                "tasks": tasks,
                "after": [] if collective else after[index],
                "held": fields.get("held", False),
            }
            for index, tasks in enumerate(stages)
        ],
        "lead": lead,
        "success": "all-workers" if collective else "lead",
        "tasks": [{"id": lead, "argv": ["x"], "env": {}, "secrets": [], "code": False, "ready": "listening"}],
        "grace_s": 10.0,
        "settle_s": 30.0,
        "needs_checkpoint": any(role == "ps" for role in roles.values()),
        "recovery": {**recovery, **fields.pop("recovery", {})},
    }
    fields.pop("held", None)
    return made(Spec, **{**spec, **fields})


class World:
    """`run_for` turns the clock; what the coordinator decides is done by the hosts that it reaches."""

    def __init__(self, strategy: str, places: Mapping[str, str], spec: Spec | None = None, **fields: Any) -> None:
        """`spec`: that of the coordinator's host, in place of one by the other arguments."""
        self.spec = spec if spec is not None else spec_of(strategy, places, **fields)
        self.now, self.wall = 100.0, 1_700_000_000.0
        self.checkpoint: int | None = 100
        self.mended: list[str] = []
        self.verified_all = False
        self.loss: LostCheckpoint | None = None
        self.tasks = {place["task"]: SimTask(place, self.spec, self.now, self.wall) for place in self.spec["roster"]}
        self._repair_on_order()
        self.places = dict(places)
        self._by_host: dict[str, list[str]] = {}
        self.cut: set[str] = set()
        self.crashed: set[str] = set()
        self.kept = True
        self.kept_on: set[str] = set()
        """Hosts that keep the run as the coordinator has ordered."""
        self.lost_session = False
        self.lost_session_on: set[str] = set()
        """Hosts that alone have lost it."""
        self.older: set[str] = set()
        """Hosts with an agent of a build that tells no progress alone."""
        self.recovering: dict[str, bool] = {}
        self.events: list[HistoryEvent] = []
        self.sent: list[str] = []
        """The host of each order."""
        self._greeted: set[str] = set()
        self._reports: dict[str, Report] = {}
        self._written: dict[str, tuple[int, bytes]] = {}
        """state.json of each host: its serial, and its tasks."""
        self._over: set[str] = set()
        self._make_coordinator(first_view(self.spec, self.wall))

    def _make_coordinator(self, data: RunView) -> None:
        services = Services(self._newest_checkpoint, lambda: 0.0)
        self.coordinator = Coordinator(self.spec, data, services, self.now)
        self._greeted.clear()

    def _newest_checkpoint(self) -> Checkpoint | None:
        return None if self.checkpoint is None else checkpoint("ckpt", self.checkpoint)

    def _repair_on_order(self) -> None:
        for task in self.tasks.values():
            task.repair = self.repair

    def repair(self, how: Repair, attempt: int) -> Repaired:
        """As the lead's host does."""
        self.verified_all = how == "full"
        done, self.mended = self.mended, []
        lost = self.loss if self.verified_all and not self.spec["recovery"]["allow_scratch"] else None
        return made(Repaired, attempt=attempt, how=how, done=done, step=self.checkpoint, lost=lost)

    @property
    def data(self) -> RunView:
        return self.coordinator.view.data

    @property
    def condition(self) -> str:
        return str(self.data["condition"]["type"])

    @property
    def states(self) -> dict[str, str]:
        return {name: task.entry["state"] for name, task in self.tasks.items()}

    @property
    def attempts(self) -> dict[str, int]:
        return {name: task.entry["attempt"] for name, task in self.tasks.items()}

    @property
    def decisions(self) -> list[str]:
        return [reason_of(line) for line in self.events if line["kind"] == "decision"]

    def restart_coordinator(self, *, rebooted: bool = False) -> None:
        """As after `kill -9`: nothing is left but cluster.json."""
        self._make_coordinator(checked(RunView, json.loads(json.dumps(self.data))))
        self.coordinator.resume(self.now, self.wall, rebooted=rebooted)

    def die(self, *names: str, signal: int = 9, code: int | None = None, log: str = "") -> None:
        """Their processes have ended by themselves. `log`: its end."""
        ending = made(Ending, code=code, signal=None if code is not None else signal)
        for name in names:
            self.tasks[name].die(self.now, self.wall, ending, log)

    def hang(self, name: str, seconds: float) -> None:
        """The watchdog takes it for hung: it has made no progress for so long."""
        self.tasks[name].hang({"kind": "silent", "seconds": seconds})

    def crash(self, host: str) -> None:
        """The machine is gone with all that runs on it."""
        self.crashed.add(host)

    def boot(self, host: str) -> None:
        self.crashed.discard(host)
        for name in self._on(host):
            if self.tasks[name].entry["state"] == "running":
                self.die(name)

    def tell_step(self, name: str, step: int) -> None:
        self.tasks[name].entry["step"] = step

    def request(self, kind: str, tasks: Sequence[str] | None = None, by: str = "train@laptop", **about: Any) -> None:
        serial = self.data["request_serial"] + 1
        reason = f"{kind} by {by}"
        asked = {"serial": serial, "kind": kind, "tasks": tasks, "why": said(reason), "by": by, **about}
        self.coordinator.request(made(PostedRequest, **asked), self.now, self.wall)

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.tick()

    def until(self, done: Callable[[], bool], limit_s: float = 60.0) -> None:
        end = self.now + limit_s
        while not done():
            assert self.now < end, (self.data["phase"], self.data["condition"], self.states, self.events[-5:])
            self.tick()

    @property
    def workers(self) -> list[str]:
        return [name for name in self.tasks if name.startswith("worker:")]

    @property
    def hosts(self) -> list[str]:
        """Those of the workers."""
        return list(dict.fromkeys(self.places[name] for name in self.workers))

    def train(self) -> None:
        """Every running task of the training makes a step."""
        for name, task in self.tasks.items():
            if task.entry["state"] == "running" and not name.startswith("ps:"):
                task.entry["step"] = (task.entry["step"] or 0) + 1

    def train_for(self, seconds: float) -> None:
        """`run_for`, with a step every three seconds, the interval in which agents report steps."""
        end = self.now + seconds
        while self.now < end:
            self.train()
            self.run_for(min(3.0, end - self.now))

    def tick(self) -> None:
        self.now += STEP_S
        self.wall += STEP_S
        for host in self.coordinator.view.hosts:
            self._exchange(host)
        self._lead()

    def _lead(self) -> Sequence[tuple[str, Orders]]:
        """What the coordinator decides is carried out; its orders."""
        self.coordinator.step(self.now, self.wall)
        orders = self.coordinator.orders()
        for host, message in orders:
            assert host in self._greeted
            self._obey(host, message["intents"])
            self.sent.append(host)
            self.recovering[host] = message["recovering"]
            if message["kept"] and host not in self.spec["absent"]:
                self.kept_on.add(host)
            if message["over"]:
                self._over.add(host)
        self.events += self.coordinator.history
        self.coordinator.history.clear()
        return orders

    def _obey(self, host: str, ordered: Intents) -> None:
        taken = intents.newer({name: self.tasks[name].intent for name in self._on(host)}, ordered)
        for name, intent in taken.items():
            self.tasks[name].intent = intent.copy()

    def _exchange(self, host: str) -> None:
        if host in self.crashed or host in self._over:
            self._hang_up(host)
            return
        for name in self._on(host):
            self.tasks[name].step(self.now, self.wall)
        if host in self.cut:
            self._hang_up(host)
            return
        message = self._news(host) if host in self._greeted else self._hello(host)
        if message is not None:
            reported: Any = json.loads(json.dumps(message))
            self._report(host, checked(FROM_AGENT[reported["type"]], reported))

    def _report(self, host: str, message: Any) -> None:
        """It reaches the coordinator."""
        self.coordinator.receive(host, message, self.now, self.wall)

    def _hello(self, host: str) -> Any:
        self._greeted.add(host)
        self._reports[host] = Report(brief=host not in self.older)
        followed = self._followed(host)
        return {
            "type": "hello",
            "v": PROTOCOL,
            "run": self.spec["run"],
            "host": host,
            "agent": AGENT,
            "events": 0,
            "state": self._state(host),
            "intents": followed.value["tasks"],
            "kept": followed.value["session"] is None,
            "lost_session": followed.lost_session,
        }

    def _news(self, host: str) -> Any:
        """None when nothing has changed."""
        return self._reports[host].news(self._state(host), self._followed(host))

    def _state(self, host: str) -> Any:
        entries = {name: self.tasks[name].entry for name in self._on(host)}
        content = marshal.dumps(entries, 2)  # of equal values the same, and quicker than their JSON
        serial, before = self._written.get(host, (0, b""))
        if content != before:
            self._written[host] = (serial + 1, content)
        own = {"run": self.spec["run"], "host": host, "machine": None}
        return {**own, "serial": self._written[host][0], "tasks": entries}

    def _followed(self, host: str) -> Any:
        """intent.json there."""
        wanted = {name: self.tasks[name].intent for name in self._on(host)}
        value = {"serial": sum(intent["version"] for intent in wanted.values()), "tasks": wanted}
        lost = self.lost_session or host in self.lost_session_on
        ordered = host in self.kept_on
        session = None if self.kept or ordered else AGENT
        return SimpleNamespace(value={**value, "session": session}, lost_session=lost and not ordered)

    def roll_back(self, host: str, kind: str = "rolled_back") -> None:
        """As the session does that began the run there."""
        ends_as = intents.CANCELLED if kind == "rolled_back" else intents.ABANDONED
        how = {"grace_s": 0.0, "ends_as": ends_as, **because([fact(kind)])}
        ends_run = made(How, by="me@desk", **how) if host == self.spec["host"] else None
        for name in self._on(host):
            intents.change(self.tasks[name].intent, want="stop", ends_run=ends_run, **how)

    def ask_to_end(self, host: str, how: How) -> None:
        """As a session on that host does that is asked to end the run, of its tasks for now the first alone."""
        intents.change(self.tasks[self._on(host)[0]].intent, ends_run=how)

    def _hang_up(self, host: str) -> None:
        if host in self._greeted:
            self._greeted.discard(host)
            self._report(host, {"type": "gone", "reason": "no word for 10 s", "last_received": self.now})

    def _on(self, host: str) -> list[str]:
        if not self._by_host:
            for name, place in self.places.items():
                self._by_host.setdefault(place, []).append(name)
        return self._by_host.get(host, [])

    def place(self, task: str, host: str) -> None:
        """From now on the task is on this host."""
        self.places[task] = host
        self._by_host.clear()


def async_ps(**fields: Any) -> World:
    """Two ps and a chief with two workers, each on its own host, after their start."""
    places = {"ps:0": "a", "ps:1": "b", "chief:0": "c", "worker:0": "d", "worker:1": "e"}
    return running(World(fields.pop("strategy", "async-ps"), places, **fields))


def collective(**fields: Any) -> World:
    places = {"worker:0": "a", "worker:1": "b", "worker:2": "c"}
    return running(World("collective", places, **fields))


def running(world: World) -> World:
    world.until(lambda: all(task.entry["ready"] for task in world.tasks.values()))
    world.run_for(1.0)
    return world


def fleet(strategy: str, hosts: int, **fields: Any) -> World:
    """A training that has begun: a chief, four ps but for collective training, and a worker on each of `hosts`."""
    ps = {} if strategy == "collective" else {f"ps:{number}": f"p{number}" for number in range(4)}
    places = {"chief:0": "c", **ps, **{f"worker:{number}": f"h{number}" for number in range(hosts)}}
    budget = {"max_restarts": 1000, "max_run_restarts": 100_000, **fields.pop("recovery", {})}
    fields = {"min_workers": 1, "resizes": strategy == "collective", **fields}
    world = running(World(strategy, places, recovery=budget, **fields))
    world.train()
    world.run_for(1.0)
    return world
