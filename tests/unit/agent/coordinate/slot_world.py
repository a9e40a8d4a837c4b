"""A World with spares: hosts with clocks of their own that end their tasks when they are cut off, and take slots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from dtctl.agent.coordinate.coordinator import Coordinator
from dtctl.agent.coordinate.fence import Fence
from dtctl.agent.coordinate.recovery import Services
from dtctl.agent.coordinate.view import first_view, take_in_joined
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.run_state import Ending
from dtctl.agent.records.spec import CoordinatorAddress
from dtctl.agent.records.whole_run import RunView
from dtctl.agent.run import drains, gang, intents
from tests.unit.agent.coordinate.simulated import SimAttempt, SimTask
from tests.unit.agent.coordinate.slots import on, with_spares
from tests.unit.agent.coordinate.world import STEP_S, World


class SlowAttempt(SimAttempt):
    """A trainer that saves for as long as it may: it ends when it is killed."""

    kill_at: float | None = None

    def end(self, grace_s: float, now: float) -> bool:
        at = now + grace_s
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)
        return True

    def update(self, now: float, wall: float) -> None:
        super().update(now, wall)
        if self.kill_at is not None and now >= self.kill_at and self.exit is None:
            self.dies(made(Ending, signal=9), wall)


class SlotWorld(World):
    """`rates`: how fast the clocks of hosts run, beside the coordinator's."""

    def __init__(self, strategy: str, places: Mapping[str, str], *spares: str, **fields: Any) -> None:
        self.raw = with_spares(strategy, places, *spares, **fields)
        self.term, self.lease = 1, True
        self.rates: dict[str, float] = {}
        self.unseen: dict[str, list[str] | None] = {}
        self.full: set[str] = set()
        """Hosts whose disk takes no moves."""
        self.numbers: dict[str, int] = {}
        self.left: dict[tuple[str, str], SimTask] = {}
        """Tasks of hosts that do not know yet that another has them."""
        recovery = self.raw["recovery"]
        super().__init__(strategy, places, **{**fields, "recovery": recovery})
        self.spec = self.raw
        self._make_coordinator(first_view(self.raw, self.wall))
        self.fences = {host: self._fence(host) for host in self.coordinator.view.hosts}

    def _fence(self, host: str) -> Fence:
        fence = Fence(SimpleNamespace(path=lambda name: f"/nowhere/{name}"), self.raw, self._clock(host))  # type: ignore[arg-type]
        fence._write_at = float("inf")
        return fence

    def _clock(self, host: str) -> float:
        return self.now * self.rates.get(host, 1.0)

    def _make_coordinator(self, data: RunView) -> None:
        services = Services(self._newest_checkpoint, lambda: 0.0)
        self.coordinator = Coordinator(
            self.spec, data, services, self.now, lambda _: self.lease, lambda _: self.term if self.lease else None
        )
        self._greeted.clear()

    def elect(self, host: str) -> None:
        """Another coordinator begins with what the one before has published."""
        before, self.lease, self.term = self.spec["host"], True, self.term + 1
        self._take(host)
        self.coordinator.resume(self.now, self.wall, before=before)

    def _take(self, host: str) -> None:
        data: Any = json.loads(json.dumps(self.data))
        place: CoordinatorAddress = {"host": host, "address": f"{host}:2221", "port": 2221}
        self.spec = {**gang.with_moves(on(self.raw, host), data["moved"]), "coordinator": place}
        view = checked(RunView, data)
        take_in_joined(view, self.spec)
        self._make_coordinator(view)

    def tick(self) -> None:
        for host in self.coordinator.view.hosts:
            self._guard(host)
        if self.spec["host"] in self.crashed:
            self.now, self.wall = self.now + STEP_S, self.wall + STEP_S
            for host in self.coordinator.view.hosts:
                self._step_tasks(host)
            return
        super().tick()
        if self.data["moved"]["number"] > self.spec["moved"]["number"]:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """A majority of the voters knows of the move, and every agent that is reached begins anew with it."""
        self.term += 1
        self._take(self.spec["host"])
        self.coordinator.resume(self.now, self.wall)
        for host in self.data["moved"]["joined"]:
            self.fences.setdefault(host, self._fence(host))
        for member in self.spec["roster"]:
            task, before = member["task"], self.places.get(member["task"], member["host"])
            if task not in self.tasks:
                self.place(task, member["host"])
                self.tasks[task] = SimTask(member, self.spec, self._clock(member["host"]), self.wall)
            if member["host"] != before:
                self.left[before, task] = self.tasks[task]
                self.place(task, member["host"])
                self.tasks[task] = SimTask(member, self.spec, self._clock(member["host"]), self.wall)
        self._repair_on_order()

    def reaches(self, host: str) -> bool:
        """The coordinator and the host hear each other."""
        own = self.spec["host"]
        return not {host, own} & self.crashed and (host == own or not {host, own} & self.cut)

    def _guard(self, host: str) -> None:
        """What its agent does about being cut off."""
        fence, now = self.fences[host], self._clock(host)
        if self.reaches(host) and self.lease and self.numbers.get(host, 0) == self.data["moved"]["number"]:
            fence.confirm(now, now)
        grace_s = fence.grace_s(now)
        for task, sim in self._here(host).items() if grace_s is not None else ():
            wanted = intents.to_hold(
                drains.CUT_OFF, grace_s or 0.0, {**self.spec, "host": host}, {task: sim.intent}, {task: sim.entry}
            )
            sim.intent = wanted.get(task, sim.intent)

    def _here(self, host: str) -> dict[str, SimTask]:
        left = {task: sim for (at, task), sim in self.left.items() if at == host}
        return {**{task: self.tasks[task] for task in self._on(host)}, **left}

    def _on(self, host: str) -> list[str]:
        """Of a host that does not know of a move yet, what it has by that is not begun."""
        behind = self.numbers.get(host, 0) != self.spec["moved"]["number"]
        new = [task for task in super()._on(host) if self.spec["moved"]["number"] and self._is_new(task, host)]
        return [task for task in super()._on(host) if not (behind and task in new)]

    def _is_new(self, task: str, host: str) -> bool:
        return any(at != host and other == task for at, other in self.left) or self.tasks[task].entry["attempt"] == 0

    def _step_tasks(self, host: str) -> None:
        for sim in self._here(host).values():
            if host not in self.crashed:
                sim.step(self._clock(host), self.wall)

    def _exchange(self, host: str) -> None:
        if not self.reaches(host):
            self._step_tasks(host)
            self._hang_up(host)
        elif self.numbers.get(host, 0) < self.spec["moved"]["number"]:
            self._learn(host)
        else:
            super()._exchange(host)

    def _learn(self, host: str) -> None:
        """It is sent the moves: what it has no more ends at once, before it begins anew."""
        self._hang_up(host)
        for (at, _), sim in self.left.items():
            if at == host and sim.intent["want"] != "stop":
                sim.intent = intents.stopped({"": sim.intent}, by="coordinator", why=fact("moved_away", host=host))[""]
                sim.intent["grace_s"] = 0.0
        self._step_tasks(host)
        for key in [key for key, sim in self.left.items() if key[0] == host and not _runs(sim)]:
            del self.left[key]
        if host not in self.full and not any(at == host for at, _ in self.left):
            self.numbers[host] = self.spec["moved"]["number"]

    def _state(self, host: str) -> Any:
        return {**super()._state(host), "unseen": self.unseen.get(host, [])}

    def crash(self, host: str) -> None:
        """The machine is gone with all that runs on it."""
        for sim in self._here(host).values():
            attempt = sim._attempt
            if attempt is not None:
                attempt.dies(made(Ending, signal=9), self.wall)
        super().crash(host)

    def boot(self, host: str) -> None:
        self.crashed.discard(host)
        self.fences[host] = self._fence(host)

    def running_on(self, task: str) -> list[str]:
        """Where a process of it is."""
        own = {host: self._here(host).get(task) for host in self.coordinator.view.hosts}
        return [host for host, sim in own.items() if sim is not None and _runs(sim) and host not in self.crashed]


def _runs(sim: SimTask) -> bool:
    return sim._attempt is not None and sim._attempt.exit is None
