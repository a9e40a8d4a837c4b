"""Faults in pairs and sequences, chosen by a seed, and what is expected of a run after them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dtctl.agent.records.whole_run import is_open
from tests.reasons import reason_of
from tests.unit.agent.coordinate.training import Trial

PLACES = {
    "async-ps": {"ps:0": "a", "ps:1": "b", "chief:0": "c", "worker:0": "d", "worker:1": "e"},
    "collective": {"worker:0": "a", "worker:1": "b", "worker:2": "c", "worker:3": "d"},
}
PLACES["sync-ps"] = PLACES["ps-strategy"] = PLACES["async-ps"]

MOST_FAULTS = 4
LASTS_S = (1.0, 5.0, 12.0, 24.0, 60.0, 98.0)

START_S = 60.0
PATIENCE_S = 3000.0
"""Two limits for a silence, one after the other, and what starts and delays add to them."""


@dataclass
class Sequence:
    """`FAULTS_SEED` of it is all that is needed to see it again."""

    seed: int
    trial: Trial = field(init=False)
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.strategy = self.random.choice(list(PLACES))
        self.stall_s = self.random.choice([10.0, None])
        budget = {"max_restarts": 1000, "max_run_restarts": 10000, "backoff_min_s": 0.5, "backoff_max_s": 4.0}
        recovery = {**budget, "stall_s": self.stall_s, "repeat": 0}
        self.trial = Trial(self.strategy, PLACES[self.strategy], self.seed, recovery=recovery)
        builds = random.Random(-self.seed - 1)
        self.trial.older = {host for host in self.trial.places.values() if builds.random() < 0.25}
        for task in self.trial.tasks.values():
            task.ready_s = self.random.uniform(0.5, 5.0)

    def run(self) -> float:
        """Seconds from the end of the last fault until it trained again; raises with the story if it never does."""
        trial = self.trial
        self._until(trial.is_whole, START_S, "the start")
        trial.run_for(self.random.uniform(1.0, 20.0))
        self._until(self._has_taught, START_S, "several steps")
        over = trial.now
        for _ in range(self.random.randint(1, MOST_FAULTS)):
            over = max(over, trial.now + self._strike())
            trial.run_for(self.random.choice([0.0, 0.0, self.random.uniform(0.0, 5.0), self.random.uniform(0.0, 60.0)]))
        trial.run_for(max(0.0, over - trial.now) + 1.0)
        ended = trial.now
        self._until(trial.is_whole, PATIENCE_S, "the run to train again")
        trial.run_for(3.0)
        self._until(trial.is_whole, PATIENCE_S, "the run to go on")
        return trial.now - ended

    def _has_taught(self) -> bool:
        """Of a program that has reported one step nobody knows whether it will report another."""
        lead = self.trial.tasks[self.trial.spec["lead"]]
        return lead.entry["first_step_s"] > 0

    def _until(self, done: Callable[[], bool], limit_s: float, what: str) -> None:
        trial = self.trial
        end = trial.now + limit_s
        while not done():
            if trial.now >= end or trial.data["phase"] == "ended":
                raise AssertionError(self.reported(what))
            trial.tick()

    def reported(self, what: str) -> str:
        trial = self.trial
        still = [one for one in trial.data["incidents"] if is_open(one)]
        lines = [
            f"FAULTS_SEED={self.seed} {self.strategy}, stall {self.stall_s}: waited in vain for {what}",
            *self.events,
            f"now {trial.now:.0f}, last step at {trial.stepped_at:.0f}: {trial.data['condition']}",
            *(
                f"  {name}: {state} {trial.tasks[name].intent['want']} {_of(trial, name)}"
                for name, state in trial.states.items()
            ),
            *(f"  open: {one}" for one in still),
            *(
                f"  {line['time'] - 1_700_000_000 + 100:.0f} {line['kind']} {line['task']} {reason_of(line)}"
                for line in trial.events[-25:]
            ),
        ]
        return "\n".join(lines)

    def _strike(self) -> float:
        """Does something; after how long it is over."""
        trial, rng = self.trial, self.random
        task, host = rng.choice(list(trial.tasks)), rng.choice(sorted(set(trial.places.values())))
        if rng.random() < 0.35:
            task = trial.spec["lead"]
        if rng.random() < 0.35:
            host = trial.spec["host"]
        lasts = rng.choice(LASTS_S)
        name = rng.choice([one for one in dir(self) if one.startswith("fault_")])
        words = getattr(self, name)(task, host, lasts)
        self.events.append(f"  {trial.now:.2f} {words[0]}")
        return float(words[1])

    def fault_kill(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        self.trial.end(task)
        return f"kill -9 of {task}", 0.0

    def fault_hang(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        self.trial.set_mode(task, "hung") if not self._never_found(task) else self.trial.set_mode(task, "frozen")
        return f"{task} hangs", 0.0

    def _never_found(self, task: str) -> bool:
        return task.startswith("ps:") or (self.strategy == "ps-strategy" and task != self.trial.spec["lead"])

    def fault_freeze(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        self.trial.set_mode(task, "frozen")
        return f"{task} is frozen", 0.0

    def fault_freeze_for_a_while(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        process = self.trial.process(task)
        if process is not None and process.mode == "ok":
            process.mode = "frozen"
            self.trial.later(lasts, lambda: setattr(process, "mode", "ok"))
        return f"{task} is frozen for {lasts:.0f} s", lasts

    def fault_hang_at_start(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        if self._never_found(task):
            return self.fault_kill(task, host, lasts)
        when = self.random.choice(["starts", "listens"])
        self.trial.end(task)
        self.trial.tasks[task].hangs_next = when  # type: ignore[attr-defined]
        return f"kill -9 of {task}, which hangs when it {when} again", 0.0

    def fault_restart(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        self.trial.restart(task)
        return f"dtctl restart {task}", 0.0

    def fault_crash(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        if host not in self.trial.crashed:
            self.trial.crash(host)
            self.trial.later(lasts, lambda: self.trial.boot(host))
        return f"{host} crashes, and is back after {lasts:.0f} s", lasts

    def fault_power(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        """Its network goes first, so that others' connections stay half open."""
        trial = self.trial
        if host not in trial.crashed:
            trial.cut.add(host)
            trial.tick()
            trial.crash(host)
            trial.later(lasts, lambda: self._power_up(host))
        return f"{host} loses its power, and is back after {lasts:.0f} s", lasts

    def _power_up(self, host: str) -> None:
        self.trial.cut.discard(host)
        self.trial.boot(host)

    def fault_cut(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        self.trial.cut.add(host)
        self.trial.later(lasts, lambda: self.trial.cut.discard(host))
        return f"{host} is cut off for {lasts:.0f} s", lasts

    def fault_agent(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        lasts = min(lasts, 5.0)
        if host not in self.trial.crashed and host not in self.trial.without_agent:
            self.trial.kill_agent(host)
            self.trial.later(lasts, lambda: self.trial.start_agent(host))
        return f"kill -9 of the agent of {host}, back after {lasts:.0f} s", lasts

    def fault_agent_and_task(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        words = self.fault_agent(task, self.trial.places[task], lasts)
        self.trial.end(task)
        return f"{words[0]}, and of {task}", words[1]

    def fault_damage(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        self.trial.damaged = True
        self.trial.end(self.trial.spec["lead"])
        return "the newest checkpoint is cut short, and the lead killed", 0.0

    def fault_ps_leaves(self, task: str, host: str, lasts: float) -> tuple[str, float]:
        ps = [name for name in self.trial.tasks if name.startswith("ps:")]
        if ps:
            self.trial.end(ps[0], code=0)
        return "ps:0 exits with 0", 0.0


def _of(trial: Trial, name: str) -> str:
    process, entry = trial.process(name), trial.tasks[name].entry
    mode = "none" if process is None else f"{process.mode}{' in session' if process.session else ''}"
    return f"{mode}, attempt {entry['attempt']}, ready {entry['ready']}, step {entry['step']}, {reason_of(entry)}"
