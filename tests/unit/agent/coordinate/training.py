"""A World whose processes train, wait, hang and break as those of real runs do, by one generator of chances."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.messages import Orders
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.run_state import Ending, Entry, Hang, Repaired
from dtctl.agent.records.spec import Spec
from dtctl.agent.records.values import Repair
from dtctl.agent.records.whole_run import RunView, is_open
from dtctl.agent.run import intents, policy
from dtctl.agent.run.hangs import Signs, Watchdog
from dtctl.agent.supervise import task as supervised
from dtctl.agent.supervise.observation import note_ready, note_work
from tests.unit.agent.coordinate.simulated import SimAttempt, SimTask, _Around
from tests.unit.agent.coordinate.world import STEP_S, World

SAVE_S = 5.0
HEARTBEAT_S = 5.0
LOOK_S = 1.0


class Process(SimAttempt):
    """One attempt's process: `mode` is ok, hung or frozen; only SIGKILL ends one that is not ok."""

    living: ClassVar[dict[str, Process]] = {}
    """By directory: an agent that is started again finds what runs there."""

    def __new__(cls, directory: str, now: float) -> Process:
        found = cls.living.get(directory)
        return found if found is not None else super().__new__(cls)

    def __init__(self, directory: str, now: float) -> None:
        if self.living.get(directory) is self:
            return
        self.living[directory] = self
        super().__init__(directory, now)
        self.mode = "ok"
        self.session: object = None
        """The processes that it has begun to train with."""
        self.holds = False
        """Of a ps: the variables are there."""
        self.reported: int | None = None
        self.trained_at = 0.0
        self.waited = False
        """It could not reach somebody since its last step."""
        self.ends_at: tuple[float, Ending] | None = None
        self._asked_at: float | None = None

    def end(self, grace_s: float, now: float) -> bool:
        self._asked_at = now if self._asked_at is None else self._asked_at
        if self.mode == "ok":
            self.ends_at = self.ends_at or (now + STEP_S, made(Ending, signal=15))
        elif now - self._asked_at >= grace_s:
            self.ends_at = (now, made(Ending, signal=9))
        return True

    def update(self, now: float, wall: float) -> None:
        super().update(now, wall)
        if self.exit is None and self.ends_at is not None and now >= self.ends_at[0]:
            self.dies(self.ends_at[1], wall)


class Trainee(SimTask):
    """A task whose agent may be started anew, and whose watchdog is the real one."""

    def __init__(self, trial: Trial, *words: Any) -> None:
        self.trial = trial
        super().__init__(*words)
        self.hangs_next = ""
        """The next attempt hangs before it `starts` to listen, or when it `listens`."""
        self.busy_s = 0.0
        """What an attempt computes before it can train, as compilers and loaders do."""

    def around(self, spec: Spec) -> _Around:
        return Watched(self, spec)

    def adopt(self, now: float, wall: float) -> None:
        """A new agent takes up what is on the disk."""
        self.entry = checked(Entry, json.loads(json.dumps(self.entry)))
        self.supervise(self.trial.spec, now, wall)

    @property
    def process(self) -> Process | None:
        found: Any = self._attempt
        return found if found is not None and found.exit is None else None


class Watched(_Around):
    def observe(self, attempt: Any, now: float) -> Any:
        return Observed(self._task, attempt, self, now)  # type: ignore[arg-type]


class Observed:
    """As Observation, of a process in memory."""

    def __init__(self, task: Trainee, process: Process, around: Watched, now: float) -> None:
        self._task, self._process, self._around = task, process, around
        self._id = task.place["task"]
        self._watchdog = Watchdog(task.entry, task.place, around.spec["recovery"], now)
        self._next_look = now

    def sees_ready(self, now: float) -> bool:
        is_new = not self._task.entry["ready"] and self._task.trial.listens(self._process)
        if is_new:
            note_ready(self._task.entry, now - self._process.began)
        return is_new

    def has_news(self) -> bool:
        return False

    def sees_progress(self, now: float, wall: float) -> bool:
        stepped = self._process.reported is not None and self._process.reported != self._task.entry["step"]
        self._task.entry["step"] = self._process.reported
        return stepped

    def sees_end(self, now: float, wall: float) -> None:
        self.sees_progress(now, wall)

    def update(self, now: float, wall: float) -> Hang | None:
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_S
        stepped = self.sees_progress(now, wall)
        entry = self._task.entry
        starts = not entry["ready"] or now - self._process.began < self._task.busy_s
        trains = now - self._process.trained_at <= LOOK_S
        note_work(entry, trains or (self._process.mode == "ok" and starts), wall)
        excused = self._task.trial.is_excused(self._task.place["host"])
        idle_s = wall - entry["idle_since"] if entry["idle_since"] is not None else 0.0
        signs = Signs(entry["ready"], self._process.mode == "frozen", stepped, stepped, excused=excused, idle_s=idle_s)
        trial, host = self._task.trial, self._task.place["host"]
        first_s = trial.first_steps.get(host, {}).get(self._id, 0.0)
        return self._watchdog.update(now, signs, first_s, trial.left_behind.get(host, {}).get(self._id))


class Trial(World):
    """`later(seconds, what)` happens then. Hosts crash, are cut off, lose their agents; the coordinator's too."""

    def __init__(self, strategy: str, places: dict[str, str], seed: int, **fields: Any) -> None:
        self.random = random.Random(seed)
        Process.living.clear()
        self.first_steps: dict[str, Mapping[str, float]] = {}
        self.left_behind: dict[str, Mapping[str, float]] = {}
        self.without_agent: set[str] = set()
        self.damaged = False
        self._rebooted = False
        """The coordinator's host was, since there was a coordinator."""
        self.trained = 100
        self.stepped_at = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._group: object = None
        self._apart_since: float | None = None
        self._saved_at = 0.0
        super().__init__(strategy, places, **fields)
        self.tasks = {one["task"]: Trainee(self, one, self.spec, self.now, self.wall) for one in self.spec["roster"]}
        self._repair_on_order()
        self._saved = json.dumps(self.data)
        self._leads = True
        self._train = {
            "async-ps": self._train_async,
            "sync-ps": self._train_sync,
            "ps-strategy": self._train_driven,
            "collective": self._train_collective,
        }[strategy]

    # What is done to it.

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self._count += 1
        self._due.append((self.now + seconds, self._count, what))

    def end(self, task: str, *, code: int | None = None, signal: int = 9) -> None:
        process = self.process(task)
        if process is not None:
            process.dies(made(Ending, code=code, signal=None if code is not None else signal), self.wall)

    def set_mode(self, task: str, mode: str) -> None:
        process = self.process(task)
        if process is not None:
            process.mode = mode

    def crash(self, host: str) -> None:
        """Its processes are gone at once; `boot` tells their agent so."""
        for name in self._on(host):
            process = self.process(name)
            if process is not None:
                process.exit = policy.unknown_exit(self.wall, "host_restarted", fact("host_restarted"))
        self._rebooted = self._rebooted or host == self.spec["host"]
        super().crash(host)

    def boot(self, host: str) -> None:
        self.crashed.discard(host)
        self.start_agent(host)

    def kill_agent(self, host: str) -> None:
        self.without_agent.add(host)

    def start_agent(self, host: str) -> None:
        self.without_agent.discard(host)
        if host not in self.crashed:
            for name in self._on(host):
                self.tasks[name].adopt(self.now, self.wall)  # type: ignore[attr-defined]

    def restart(self, task: str) -> None:
        """As `dtctl restart` does: by the coordinator where it can be reached, else by the task's own host."""
        host = self.places[task]
        if self._leads and self.spec["host"] not in self.cut:
            self.request("restart", [task])
        elif host not in self.crashed:
            intent = self.tasks[task].intent
            intents.change(intent, want="run", generation=intent["generation"] + 1, restarts=0, by="train@laptop")

    # What it looks like.

    def process(self, task: str) -> Process | None:
        found: Process | None = self.tasks[task].process  # type: ignore[attr-defined]
        return found if self.places[task] not in self.crashed else None

    def listens(self, process: Process) -> bool:
        task = next(name for name, one in self.tasks.items() if one._attempt is process)
        return process.mode == "ok" and self.now - process.began >= self.tasks[task].ready_s

    def is_excused(self, host: str) -> bool:
        return self.recovering.get(host, False) or host not in self._greeted

    def is_whole(self) -> bool:
        """Nobody is missed, no loss is open, and it has just made a step."""
        data = self.data
        is_recovering = any(map(is_open, data["incidents"]))
        running = all(state == "running" for state in self.states.values())
        return (
            data["phase"] == "running"
            and not is_recovering
            and running
            and self.now - self.stepped_at < 2.0
            and self._leads
        )

    def tick(self) -> None:
        self.now += STEP_S
        self.wall += STEP_S
        for one in sorted(one for one in self._due if one[0] <= self.now):
            self._due.remove(one)
            one[2]()
        self._start_hanging()
        self._train()
        own = self.spec["host"]
        leads = own not in self.crashed and own not in self.without_agent
        if leads and not self._leads:
            self._make_coordinator(checked(RunView, json.loads(self._saved)))
            self.coordinator.resume(self.now, self.wall, rebooted=self._rebooted)
            self._rebooted = False
        self._leads = leads
        if not leads:
            self._greeted.clear()
        for host in sorted(set(self.places.values())):
            self._exchange(host)
        if leads:
            self._lead()

    def _lead(self) -> Sequence[tuple[str, Orders]]:
        known = len(self.events)
        orders = super()._lead()
        self.first_steps.update({host: message["first_steps"] for host, message in orders})
        self.left_behind.update({host: message["left_behind"] for host, message in orders})
        decided = len(self.events) > known or any(message["intents"] for _, message in orders)
        if decided or self.now - self._saved_at >= 2.0:
            self._saved, self._saved_at = json.dumps(self.data), self.now
        return orders

    def _exchange(self, host: str) -> None:
        own = self.spec["host"]
        cut = set(self.cut)
        apart = host != own and (host in cut or own in cut)
        if not self._leads or apart or host in self.without_agent or host in self.crashed:
            if self._leads:
                self._hang_up(host)
            self._greeted.discard(host)
            if host not in self.crashed and host not in self.without_agent:
                for name in self._on(host):
                    self.tasks[name].step(self.now, self.wall)
            return
        self.cut = set()
        super()._exchange(host)
        self.cut = cut

    def _start_hanging(self) -> None:
        for name, task in self.tasks.items():
            process, when = self.process(name), task.hangs_next  # type: ignore[attr-defined]
            if process is None or not when or process.reported is not None:
                continue
            if task.entry["ready"] if when == "listens" else self.now - process.began <= STEP_S:
                process.mode, task.hangs_next = "hung", ""  # type: ignore[attr-defined]

    # How it trains.

    def _linked(self, *tasks: str) -> bool:
        hosts = {self.places[task] for task in tasks}
        return len(hosts) == 1 or not hosts & (self.cut | self.crashed)

    def _works(self, task: str) -> bool:
        process, busy_s = self.process(task), self.tasks[task].busy_s  # type: ignore[attr-defined]
        if process is None or process.mode != "ok" or not self.listens(process):
            return False
        return bool(self.now - process.began >= busy_s)

    def _trainers(self) -> list[str]:
        """The lead first."""
        names = [name for name in self.tasks if name.partition(":")[0] in ("chief", "worker")]
        return sorted(names, key=lambda name: (name != self.spec["lead"], name))

    def _ps(self) -> list[str]:
        return [name for name in self.tasks if name.startswith("ps:")]

    def _ids(self, tasks: Iterable[str]) -> object:
        return tuple(id(self.process(task)) if self.process(task) is not None else 0 for task in tasks)

    def _trains(self, process: Process) -> None:
        process.trained_at = self.now
        self._tell(process)

    def _tell(self, process: Process) -> None:
        process.reported = self.trained
        process.waited = False
        self.stepped_at = self.now

    def _fails(self, task: str, code: int) -> None:
        """Soon; or, of three, one waits for ever."""
        process = self.process(task)
        if process is None or process.ends_at is not None or process.mode != "ok":
            return
        if self.random.random() < 0.33:
            process.mode = "hung"
        else:
            process.ends_at = (self.now + self.random.uniform(0.2, 3.0), made(Ending, code=code))

    def _restores(self, lead: str) -> bool:
        if self.damaged:
            self._fails(lead, 1)
            return False
        self.trained = self.checkpoint or 0
        return True

    def _save(self, lead: str) -> None:
        process = self.process(lead)
        if process is not None and int(self.now / SAVE_S) != int((self.now - STEP_S) / SAVE_S):
            self.checkpoint, self.damaged = self.trained, False

    def repair(self, how: Repair, attempt: int) -> Repaired:
        self.mended = ["a checkpoint was damaged: set aside"] if self.damaged else []
        self.damaged = False
        return super().repair(how, attempt)

    def _session(self, task: str) -> bool:
        """Whether it is connected to what every ps holds now."""
        process, ps = self.process(task), self._ps()
        assert process is not None
        if not self._linked(task, *ps):
            process.waited = process.session is not None
            return False
        if process.session is not None and process.session != self._ids(ps):
            if process.waited and self.random.random() < 0.3:
                process.mode = "hung"  # the end of its connection was never reported
            process.session = None
            return False
        if not all(self._works(one) for one in ps):
            return False
        if process.session is None:
            if task == self.spec["lead"]:
                if not self._restores(task):
                    return False
                for one in ps:
                    self.process(one).holds = True  # type: ignore[union-attr]
            if not all(self.process(one).holds for one in ps):  # type: ignore[union-attr]
                return False
            process.session = self._ids(ps)
        return True

    def _train_async(self) -> None:
        connected = [task for task in self._trainers() if self._works(task) and self._session(task)]
        held = all(self.process(one) is not None and self.process(one).holds for one in self._ps())  # type: ignore[union-attr]
        if connected and held:
            self.trained += 1
            for task in connected:
                self._trains(self.process(task))  # type: ignore[arg-type]
            if self.spec["lead"] in connected:
                self._save(self.spec["lead"])
        elif connected:
            for task in connected:
                self.process(task).session = None  # type: ignore[union-attr]

    def _train_sync(self) -> None:
        trainers = self._trainers()
        sessions = {task: self.process(task).session for task in trainers if self.process(task)}  # type: ignore[union-attr]
        connected = [task for task in trainers if self._works(task) and self._session(task)]
        for task, before in sessions.items():
            process = self.process(task)
            if before is not None and process is not None and process.session is None:
                self._fails(task, 1 if task == self.spec["lead"] else 0)
        if len(connected) == len(trainers):
            self.trained += 1
            for task in trainers:
                self._trains(self.process(task))  # type: ignore[arg-type]
            self._save(self.spec["lead"])

    def _train_driven(self) -> None:
        lead = self.spec["lead"]
        process = self.process(lead)
        if process is None or not self._works(lead):
            return
        before = process.session
        if self._session(lead) and any(self._works(task) for task in self._trainers()[1:]):
            self.trained += 1
            self._trains(process)
            self._save(lead)
        elif before is not None and process.session is None:
            self._fails(lead, 1)

    def _train_collective(self) -> None:
        trainers, lead = self._trainers(), self.spec["lead"]
        if self._group is None:
            ready = all(self._works(task) and self.process(task).session is None for task in trainers)  # type: ignore[union-attr]
            if ready and self._linked(*trainers) and self._restores(lead):
                self._group = self._ids(trainers)
                for task in trainers:
                    self.process(task).session = self._group  # type: ignore[union-attr]
            return
        together = self._linked(*trainers) and not any(
            process is not None and process.mode == "frozen" for process in map(self.process, trainers)
        )
        self._apart_since = None if together else (self._apart_since or self.now)
        if self._ids(trainers) != self._group or (self._apart_since and self.now - self._apart_since > HEARTBEAT_S):
            self._group = self._apart_since = None
            for task in trainers:
                self._fails(task, 1)
        elif together and all(self._works(task) for task in trainers):
            self.trained += 1
            for task in trainers:
                self._trains(self.process(task))  # type: ignore[arg-type]
            self._save(lead)


def simulate_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "Attempt", Process)
