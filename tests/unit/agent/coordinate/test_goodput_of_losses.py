"""What hosts that are lost for good cost, one each hour, with spares and without: four hours in memory."""

from __future__ import annotations

import pytest

from dtctl.agent.run.goodput import PARTS
from tests.unit.agent.coordinate.slot_world import SlotWorld

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

HOUR_S = 3600.0
REPLACE_S = 300.0
"""The default with spares."""
START_S = 20.0
"""Imports, and what is restored."""
SAVE_S = 60.0
ELECTION_S = 13.0

PLACES = {
    "async-ps": {"ps:0": "a", "ps:1": "b", "worker:0": "c", "worker:1": "d", "worker:2": "e"},
    "collective": {"worker:0": "c", "worker:1": "d", "worker:2": "e", "worker:3": "f"},
}
LOST = {"async-ps": ["worker:1", "worker:0", "ps:0"], "collective": ["worker:1", "worker:0", "worker:2"]}


class Training:
    """A step a second where every worker trains. `kept`: the steps that no rollback has taken back."""

    def __init__(self, strategy: str, *spares: str) -> None:
        places = PLACES[strategy]
        recovery = {"replace_s": REPLACE_S, "max_restarts": 100}
        self.world = SlotWorld(strategy, places, *spares, recovery=recovery)
        self.workers = {task for task in places if task.startswith("worker")}
        self.needed = {task for task in places if strategy != "async-ps" or task not in ("worker:1", "worker:2")}
        self.kept, self.saved, self.saved_at = 0.0, 0.0, self.world.now
        self.attempts = dict.fromkeys(self.needed, 0)

    def lose(self, task: str) -> None:
        """The host that has it now. If it coordinates, a majority elects another one."""
        world, host = self.world, self.world.places[task]
        world.crash(host)
        if host == world.spec["host"]:
            self.run_for(ELECTION_S)
            hosts = world.coordinator.view.hosts
            left = [one for one in hosts if one not in world.crashed]
            if 2 * len(left) > len(hosts):
                world.elect(left[-1])

    def run_for(self, seconds: float) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            before = self.world.now
            for sim in self.world.tasks.values():
                sim.ready_s = START_S
            self.world.tick()
            self._train(self.world.now - before)

    def _train(self, seconds: float) -> None:
        world = self.world
        attempts = {task: world.tasks[task].entry["attempt"] for task in self.needed}
        if attempts != self.attempts:
            self.kept, self.attempts = self.saved, attempts  # the lead restores
        trains = {task for task, sim in world.tasks.items() if sim.entry["ready"] and world.running_on(task)}
        if not trains >= self.needed:
            return
        self.kept += seconds * len(trains & self.workers) / len(self.workers)
        if world.now - self.saved_at >= SAVE_S:
            self.saved, self.saved_at, world.checkpoint = self.kept, world.now, int(self.kept)
        for task in trains & self.workers:
            world.tell_step(task, int(self.kept))

    def goodput(self) -> float:
        """As `dtctl status` counts it, but also of the time in which nobody coordinates."""
        account = self.world.data["account"]
        assert account is not None
        kept, begin = account["before"].get("kept", 0.0), sum(account["before"].values())
        for one in account["spans"]:
            kept += (one["end_s"] - begin) * (one["what"] == PARTS[0])
            begin = one["end_s"]
        return kept / (self.world.wall - account["since"])


@pytest.mark.parametrize(
    ("strategy", "spares", "goodput", "steps"),
    [
        ("async-ps", "stuv", 0.95, 0.94),
        ("async-ps", "", 0.50, 0.41),
        ("collective", "stuv", 0.93, 0.93),
        ("collective", "", 0.25, 0.25),
    ],
)
def test_spares_keep_the_goodput_of_a_run_that_loses_a_host_each_hour(
    strategy: str, spares: str, goodput: float, steps: float
) -> None:
    """`steps`: as a share of those without a loss."""
    training = Training(strategy, *spares)
    began = training.world.now
    for task in LOST[strategy]:
        training.run_for(HOUR_S)
        training.lose(task)
    training.run_for(HOUR_S)
    assert training.world.data["moved"]["number"] == (3 if spares else 0)
    assert training.kept / (training.world.now - began) == pytest.approx(steps, abs=0.01)
    assert training.goodput() == pytest.approx(goodput, abs=0.01)
