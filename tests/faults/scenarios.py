"""The faults, each a value: the event, the strategy, and the expected result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field

from tests.faults.scene import ASYNC, COLLECTIVE, STRATEGY, SYNC, Scene, Way
from tests.hosts import faults
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

Strike = Callable[[Scene], None]


@dataclass(frozen=True)
class Scenario:
    name: str
    way: Way
    strike: Strike
    """Returns when the fault is over, or permanent."""
    restarted: str = ""
    """The tasks that have a second attempt at the end; no others do."""
    outcome: str = "Succeeded"
    cause: str = ""
    """The task that is reported as the cause of the run's failure."""
    loses_steps: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further keys of cluster.yaml."""
    around: Callable[[Fleet], AbstractContextManager[object]] = nullcontext
    """Lasts from before `up` until the end."""
    within_s: float = 90.0
    """The run has recovered by then, on the slowest machines."""
    quick: bool = False
    """Whether it belongs to `make test`: one of each kind that no other test has."""

    @property
    def id(self) -> str:
        return f"{self.way.strategy}: {self.name}"


def kill(task: str) -> Strike:
    return lambda scene: scene.kill(task)


def kill_agent(host: str) -> Strike:
    """Returns when there is another one."""

    def strike(scene: Scene) -> None:
        agent = scene.agent(scene.fleet[host])
        faults.send(scene.fleet[host], agent)
        scene.wait_until(lambda: scene.agent(scene.fleet[host]) != agent, "another agent")

    return strike


def lose_files(host: str, *, kill: bool) -> Strike:
    """Removes the files that the agent there keeps of its run, and kills the agent if `kill`."""

    def strike(scene: Scene) -> None:
        place = scene.fleet[host]
        agent = scene.agent(place)
        place.exec("sh", "-c", "rm ~/.dtctl/runs/*/*/intent.json ~/.dtctl/runs/*/*/state.json")
        if kill:
            faults.send(place, agent)
        eventually(lambda: [*place.home.glob(".dtctl/runs/*/*/state.json")], what="its state to be written again")

    return strike


def kill_keeper(task: str) -> Strike:
    return lambda scene: faults.send(scene.host(task), scene.keeper(task))


def kill_agent_and_task(task: str) -> Strike:
    def strike(scene: Scene) -> None:
        host = scene.host(task)
        pids = [scene.agent(host), scene.keeper(task), scene.pid(task)]
        host.exec("kill", "-9", *map(str, pids), root=True)

    return strike


def kill_everything(host: str) -> Strike:
    """No process is left there that could repair it, so the user types `up` again."""

    def strike(scene: Scene) -> None:
        faults.kill_user(scene.fleet[host])
        eventually(lambda: not scene.fleet[host].processes(), what="the end of all")
        scene.user.dtctl("up")

    return strike


def freeze(task: str) -> Strike:
    """Freezes a task permanently: the stall watchdog must kill it."""
    return lambda scene: faults.send(scene.host(task), scene.pid(task), faults.STOP)


def cut(host: str, seconds: float) -> Strike:
    def strike(scene: Scene) -> None:
        scene.fleet.cut(scene.fleet[host])
        time.sleep(seconds)
        scene.fleet.heal(scene.fleet[host])

    return strike


def cut_one_way(host: str, seconds: float, *, drop_incoming: bool) -> Strike:
    def strike(scene: Scene) -> None:
        with (faults.drop_incoming if drop_incoming else faults.drop_outgoing)(scene.fleet[host]):
            time.sleep(seconds)

    return strike


def reboot(host: str, *, silent: bool = False) -> Strike:
    """A crash and a boot, with the pids of dead processes reused; `silent`: connections stay half open."""

    def strike(scene: Scene) -> None:
        where = scene.fleet[host]
        dead = scene.agent(where)
        if silent:
            faults.power_cut(scene.fleet, where)
            faults.power_up(scene.fleet, where)
        else:
            scene.fleet.crash(where)
            scene.fleet.boot(where)
        # The first processes of a boot have small numbers: one of them may have this one.
        with nullcontext() if faults.has_process(where, dead) else faults.stranger_with_pid(where, dead):
            scene.recover()

    return strike


def without_sshd(host: str, seconds: float) -> Strike:
    def strike(scene: Scene) -> None:
        with faults.without_sshd(scene.fleet[host]):
            time.sleep(seconds)

    return strike


def damage(task: str) -> Strike:
    def strike(scene: Scene) -> None:
        with faults.frozen(scene.host(task), scene.pid(task)):
            scene.damage_newest_checkpoint()
            scene.kill(task)

    return strike


def hang_at_start(task: str) -> Strike:
    """Kills a task, whose next attempt hangs before it listens."""

    def strike(scene: Scene) -> None:
        scene.host(task).exec("touch", f"{scene.output}/hang-start-{task}")
        scene.kill(task)

    return strike


def clock_of(host: str) -> Callable[[Fleet], AbstractContextManager[object]]:
    return lambda fleet: faults.clock_of_its_own(fleet[host])


def clock_jump(host: str, *settings: str) -> Strike:
    def strike(scene: Scene) -> None:
        for setting in settings:
            (scene.fleet[host].home / ".clock").write_text(setting)
            scene.goes_on()

    return strike


def out_of_memory(task: str) -> Strike:
    return lambda scene: faults.out_of_memory(scene.host(task), scene.pid(task))


def taken_port(task: str, port: int) -> Strike:
    """Kills a task, whose port another process takes before its next attempt, and once more."""

    def strike(scene: Scene) -> None:
        with ExitStack() as stack:
            stack.enter_context(faults.taken_port(scene.host(task), port))
            scene.kill(task)
            scene.wait_until(lambda: scene.tasks()[task]["restarts"] > 1, "a start that finds it taken")

    return strike


SHORT_STALL = {"recovery": {"stall": "4s"}}
STALL = {"recovery": {"stall": "10s"}}
"""Half of it is for a frozen task, the other half for those that wait for it silently until it is back."""

SHORT_FIRST_STEP = {"recovery": {"first_step": "10s"}, "target_step": 10**9}
"""A task that has reached its target step may be silent for any time."""

EVERY_WORKER = "worker:0 worker:1 worker:2"
EVERY_SYNC_TASK = f"ps:0 ps:1 {EVERY_WORKER}"

SCENARIOS = [
    Scenario("kill -9 of a worker", ASYNC, kill("worker:1"), "worker:1"),
    Scenario("kill -9 of a ps", ASYNC, kill("ps:1"), "ps:1", loses_steps=True, quick=True),
    Scenario("kill -9 of the chief", ASYNC, kill("worker:0"), "worker:0", loses_steps=True),
    Scenario("kill -9 of an agent", ASYNC, kill_agent("gpu-4")),
    Scenario("kill -9 of the coordinator", ASYNC, kill_agent("gpu-3"), quick=True),
    Scenario("kill -9 of a keeper", ASYNC, kill_keeper("worker:2")),
    Scenario("kill -9 of an agent and its task", ASYNC, kill_agent_and_task("worker:1"), "worker:1"),
    Scenario("a worker's host loses files of its run", ASYNC, lose_files("gpu-4", kill=False)),
    Scenario("a worker's host loses files of its run and its agent", ASYNC, lose_files("gpu-4", kill=True)),
    Scenario("kill -9 of all on a worker's host", ASYNC, kill_everything("gpu-5"), "worker:2"),
    Scenario("kill -9 of all on the coordinator's host", ASYNC, kill_everything("gpu-3"), "worker:0", loses_steps=True),
    Scenario("a ps is frozen", ASYNC, freeze("ps:0"), "ps:0", loses_steps=True, settings=STALL, quick=True),
    Scenario("a worker is frozen", ASYNC, freeze("worker:1"), "worker:1", settings=SHORT_STALL),
    Scenario("the chief is frozen", ASYNC, freeze("worker:0"), "worker:0", loses_steps=True, settings=SHORT_STALL),
    Scenario("a worker's host is cut off for 5 s", ASYNC, cut("gpu-5", 5)),
    Scenario("a ps host is cut off for 5 s", ASYNC, cut("gpu-1", 5)),
    Scenario("the coordinator's host is cut off for 5 s", ASYNC, cut("gpu-3", 5), quick=True),
    Scenario("a worker's host is cut off for 60 s", ASYNC, cut("gpu-5", 60), within_s=150),
    Scenario("a ps host is cut off for 60 s", ASYNC, cut("gpu-1", 60), within_s=150),
    Scenario("the coordinator's host is cut off for 60 s", ASYNC, cut("gpu-3", 60), within_s=150),
    Scenario(
        "a worker's host receives nothing for 15 s", ASYNC, cut_one_way("gpu-5", 15, drop_incoming=True), quick=True
    ),
    Scenario("a ps host's packets are lost for 15 s", ASYNC, cut_one_way("gpu-2", 15, drop_incoming=False)),
    Scenario("the coordinator's host receives nothing for 15 s", ASYNC, cut_one_way("gpu-3", 15, drop_incoming=True)),
    Scenario("a worker's host reboots", ASYNC, reboot("gpu-5"), "worker:2"),
    Scenario("a ps host loses its power", ASYNC, reboot("gpu-2", silent=True), "ps:1", loses_steps=True, quick=True),
    Scenario("the coordinator's host reboots", ASYNC, reboot("gpu-3"), "worker:0", loses_steps=True),
    Scenario("sshd of the coordinator's host is gone", ASYNC, without_sshd("gpu-3", 2)),
    Scenario(
        "the newest checkpoint is damaged",
        ASYNC,
        damage("worker:0"),
        "worker:0",
        loses_steps=True,
        quick=True,
    ),
    Scenario(
        "the wall clock of a host jumps",
        ASYNC,
        clock_jump("gpu-4", "3600", "-3600"),
        around=clock_of("gpu-4"),
        quick=True,
    ),
    Scenario("a worker runs out of memory", ASYNC, out_of_memory("worker:1"), "worker:1"),
    Scenario(
        "a port is taken between two attempts",
        ASYNC,
        taken_port("worker:2", 2222),
        "worker:2",
        settings={"recovery": {"max_restarts": 50}},
    ),
    Scenario(
        "a worker crashes in a loop",
        ASYNC,
        lambda scene: None,
        "worker:2",
        outcome="Failed",
        cause="worker:2",
        settings={"args": {"crash": "worker:2:100:3"}},
        quick=True,
    ),
    Scenario("kill -9 of a worker", SYNC, kill("worker:1"), "worker:1"),
    Scenario(
        "kill -9 of a ps, and a worker exits 0",
        SYNC,
        kill("ps:1"),
        EVERY_SYNC_TASK,
        loses_steps=True,
        quick=True,
    ),
    Scenario("kill -9 of the chief", SYNC, kill("worker:0"), EVERY_SYNC_TASK, loses_steps=True),
    Scenario("kill -9 of a worker", STRATEGY, kill("worker:1"), "worker:1"),
    Scenario("kill -9 of a ps", STRATEGY, kill("ps:1"), "ps:1 chief:0", loses_steps=True, quick=True),
    Scenario("kill -9 of the chief", STRATEGY, kill("chief:0"), "chief:0", loses_steps=True),
    Scenario("kill -9 of a worker", COLLECTIVE, kill("worker:1"), EVERY_WORKER, loses_steps=True, quick=True),
    Scenario(
        "a worker is frozen",
        COLLECTIVE,
        freeze("worker:2"),
        EVERY_WORKER,
        loses_steps=True,
        settings=SHORT_STALL,
    ),
    Scenario("the newest checkpoint is damaged", COLLECTIVE, damage("worker:0"), EVERY_WORKER, loses_steps=True),
    Scenario(
        "a worker hangs when it is started again",
        COLLECTIVE,
        hang_at_start("worker:1"),
        EVERY_WORKER,
        loses_steps=True,
        settings=SHORT_FIRST_STEP,
    ),
]
