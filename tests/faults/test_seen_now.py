"""What a controller reports of hosts that nobody reaches, and how long it takes for that."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.desk import Desk
from tests.faults.scene import RECOVERY_S, SYNC, Scene, Way, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults]

THREE = Way("async-ps", {"ps": "gpu-3", "worker": "gpu-[3-5]"}, {"way": "async"})
"""The coordinator is on gpu-3; all three hosts vote."""

ALONE = Way("async-ps", {"ps": "gpu-3", "worker": "gpu-3"}, {"way": "async"})
"""One host alone."""

HOME_MIB = 64

BUSY_S = 15.0
"""What a command may take on a busy machine besides what it waits for."""


def head(user: Desk) -> str:
    return user.dtctl("status", code=None).splitlines()[0]


def states(user: Desk, code: int) -> dict[str, str]:
    found: dict[str, Any] = json.loads(user.dtctl("status", "-o", "json", code=code))
    return {task["task"]: task["state"] for task in found["tasks"]}


def lost(scene: Scene, host: FleetHost) -> bool:
    """Whether the coordinator is not in touch with it. One that was elected a moment ago has written no file yet."""
    try:
        return not scene.cluster()["hosts"][host.name]["connected"]
    except FileNotFoundError:
        return False


@pytest.mark.daily
def test_hosts_that_the_coordinator_has_lost_are_not_waited_for(fleet: Fleet, user: Desk) -> None:
    scene, away = stand_in(fleet, user, THREE), fleet["gpu-5"]
    scene.up()
    with faults.drop_incoming(away), faults.drop_outgoing(away):
        scene.wait_until(lambda: lost(scene, away), "the loss of gpu-5")
        took: dict[str, float] = {}
        for command, code in (
            *(("status", 0), ("diagnose", 7), ("logs", 7), ("metrics", 7), ("checkpoints", 7), ("dump", 7)),
            *(("exec -- true", 7), ("runs", 7), ("gc --dry-run", 7), ("check", 7), ("up", 4)),
            *(("drain gpu-5", 4), ("stop", 7)),
        ):
            begun = time.monotonic()
            user.dtctl(*command.split(), code=code)
            took[command] = time.monotonic() - begun
        assert max(took.values()) < BUSY_S, took
        assert "worker:2 may still run on gpu-5, which is unreachable" in head(user)
    eventually(lambda: not away.processes(), RECOVERY_S, "the end of worker:2")


def test_stop_during_an_election_reports_unreached_hosts_until_they_end(fleet: Fleet, user: Desk) -> None:
    scene, away = stand_in(fleet, user, THREE), fleet["gpu-3"]
    scene.up()
    with faults.drop_incoming(away), faults.drop_outgoing(away):
        user.dtctl("stop", code=7)
        assert away.processes(), "it still trains"
        found = states(user, 7)
        assert {task: found[task] for task in ("ps:0", "worker:0")} == {"ps:0": "lost", "worker:0": "lost"}
        assert "gpu-3" in user.run("status").stderr
        eventually(
            lambda: not fleet["gpu-4"].processes() or "may still run on gpu-3" in head(user), RECOVERY_S, "an end"
        )
        assert states(user, 7)["worker:0"] == "lost"
    eventually(lambda: not away.processes(), RECOVERY_S, "the end of what ran on gpu-3")
    assert "Stopped" in head(user)
    assert set(states(user, 0).values()) == {"stopped"}


def test_status_counts_no_task_that_nobody_sees_and_names_the_missing_majority(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, THREE)
    scene.up()
    for name in ("gpu-4", "gpu-5"):
        fleet.crash(fleet[name])
    scene.wait_until(lambda: lost(scene, fleet["gpu-4"]) and lost(scene, fleet["gpu-5"]), "the losses")
    scene.wait_until(lambda: not scene.cluster()["leased"], "the end of the lease")
    scene.kill("worker:0")
    eventually(lambda: "worker:0: " in head(user), RECOVERY_S, "the loss of the lead")
    shown = user.dtctl("status", code=None)
    assert "gpu-3 coordinates, but reaches no majority of the voting hosts (gpu-[4-5] unreachable)" in shown
    assert "waiting: nothing is started until the coordinator is connected to 1 more host" in shown
    scene.kill("ps:0")
    for name in ("gpu-4", "gpu-5"):
        fleet.boot(fleet[name])
    scene.recover()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["gpu-5", "gpu-3"], ids=["a worker's host", "the coordinator's host"])
def test_restart_of_a_task_that_waits_for_a_host_that_is_away_names_it(name: str, fleet: Fleet, user: Desk) -> None:
    """All tasks of `sync-ps` are restarted with a ps, and begin together."""
    scene, away = stand_in(fleet, user, SYNC), fleet[name]
    scene.up()
    fleet.crash(away)
    scene.wait_until(lambda: scene.coordinator() is not away and lost(scene, away), "the loss to be noticed")
    scene.kill("ps:0")
    scene.wait_until(lambda: scene.task("ps:0")["state"] == "pending", "the recovery to hold ps:0")
    begun = time.monotonic()
    done = user.run("restart", "ps:0", timeout_s=180)
    took_s = time.monotonic() - begun
    print(f"restart took {took_s:.1f} s, exit {done.returncode}\n{done.stdout}{done.stderr}")
    assert took_s < 2 * BUSY_S, f"{took_s:.1f} s\n{done.stdout}{done.stderr}"
    assert done.returncode == 7, done.stdout + done.stderr
    assert "ps:0 on gpu-1" in done.stdout
    assert f"{name} is unreachable from the coordinator: its tasks start again when it is back" in done.stderr
    fleet.boot(away)
    scene.recover()
    user.dtctl("down", "--yes", timeout_s=120)


def test_commands_answer_soon_while_the_coordinators_home_is_full(fleet: Fleet, user: Desk) -> None:
    stand_in(fleet, user, THREE)
    full = fleet["gpu-3"]
    with faults.small_disk(full, ".dtctl", 8):
        user.dtctl("up")
        eventually(lambda: user.status()["progress"]["step"], RECOVERY_S, "the run to train")
        agent = int(full.exec("sh", "-c", "pgrep -x dtctl-agent"))
        with faults.full_disk(full, ".dtctl"):
            faults.send(full, agent)
            eventually(lambda: full.exec("sh", "-c", "pgrep -x dtctl-agent || true").strip() not in ("", str(agent)))
            took: dict[str, float] = {}
            for command in ("status", "diagnose", "logs -n 1", "restart worker:1", "stop"):
                begun = time.monotonic()
                user.run(*command.split(), timeout_s=180)
                took[command] = time.monotonic() - begun
        assert max(took.values()) < 2 * BUSY_S, took
        eventually(lambda: not fleet.busy(), RECOVERY_S, "the end of all tasks")
        user.dtctl("down", "--yes")
        eventually(lambda: not full.processes(), RECOVERY_S, "the end of all")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["gpu-3", "gpu-4"], ids=["the coordinator's host", "another host"])
def test_commands_answer_though_the_agent_was_killed_on_a_home_that_takes_not_a_byte(
    name: str, fleet: Fleet, user: Desk
) -> None:
    """The next agent works without a file of its own: no command waits in silence, and `stop` ends all tasks.

    Where no agent could start, `stop` and `status` exited with 7, and tasks of the coordinator's host ran on. The limit
    in seconds is for busy machines, and proves only that no command waits for a file: elsewhere each takes about 2 s.
    """
    scene, full = stand_in(fleet, user, THREE), fleet[name]
    with faults.small_home(fleet, full, HOME_MIB):
        user.dtctl("up", timeout_s=120)
        eventually(lambda: user.status()["progress"]["step"], RECOVERY_S, "the run to train")
        trainers = [scene.pid(task) for task, host in scene.places().items() if host == full.name]
        agent = scene.agent(full)
        (scene.run_directory(full) / "reserve").unlink()
        with faults.full_home(full):
            time.sleep(1.0)
            faults.send(full, agent)
            codes, waits = {}, {}
            for command in ("status", "diagnose", "logs -n 1", "restart worker:2", "stop"):
                codes[command], waits[command] = typed(user, command)
            print(codes, waits)
            assert not any(faults.has_process(full, pid) for pid in trainers)
            assert codes["stop"] == codes["status"] == codes["restart worker:2"] == 0
            assert max(waits.values()) < 2 * BUSY_S
            eventually(lambda: not fleet.busy(), RECOVERY_S, "the end of all tasks")
        eventually(lambda: set(states(user, 0).values()) == {"stopped"}, RECOVERY_S, "the end to be written")
        user.dtctl("down", "--yes")
        eventually(lambda: not full.processes(), RECOVERY_S, "the end of all")


def typed(user: Desk, command: str) -> tuple[int, float]:
    """The exit code of the command, and how long it printed nothing."""
    begun = time.monotonic()
    with user.start(*command.split()) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        silent_s = time.monotonic() - begun
        print(first + running.stdout.read())
    return running.returncode, silent_s


@pytest.mark.nightly
@pytest.mark.parametrize("way", [THREE, ALONE], ids=["three hosts", "one host"])
def test_a_stop_ends_a_run_while_the_coordinators_home_takes_not_a_byte(way: Way, fleet: Fleet, user: Desk) -> None:
    """What dtctl has set aside is used up, too, and whatever is removed is filled again."""
    scene, full = stand_in(fleet, user, way), fleet["gpu-3"]
    with faults.small_home(fleet, full, HOME_MIB):
        user.dtctl("up", timeout_s=120)
        eventually(lambda: user.status()["progress"]["step"], RECOVERY_S, "the run to train")
        trainers = [scene.pid(task) for task, host in scene.places().items() if host == full.name]
        (scene.run_directory(full) / "reserve").unlink()
        with faults.full_home(full):
            time.sleep(1.0)
            begun = time.monotonic()
            done = user.run("stop", timeout_s=180)
            print(f"stop took {time.monotonic() - begun:.1f} s")
            assert not any(faults.has_process(full, pid) for pid in trainers)
            assert time.monotonic() - begun < 2 * BUSY_S
            assert done.returncode == 0, done.stdout + done.stderr
            assert "the disk of gpu-3 is full, and the stop is not written there" in done.stderr
        eventually(lambda: set(states(user, 0).values()) == {"stopped"}, RECOVERY_S, "the end to be written")
        assert "Stopped" in head(user)
        user.dtctl("down", "--yes")
        eventually(lambda: not full.processes(), RECOVERY_S, "the end of all")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("way", "name", "kills"),
    [(THREE, "gpu-3", False), (THREE, "gpu-4", False), (ALONE, "gpu-3", False), (THREE, "gpu-3", True)],
    ids=["coordinator", "other", "one host", "killed coordinator"],
)
def test_down_removes_a_run_while_a_home_takes_not_a_byte(
    way: Way, name: str, kills: bool, fleet: Fleet, user: Desk
) -> None:
    """`kills`: the agent there, whose next one finds no room."""
    scene, full = stand_in(fleet, user, way), fleet[name]
    with faults.small_home(fleet, full, HOME_MIB):
        user.dtctl("up", timeout_s=120)
        eventually(lambda: user.status()["progress"]["step"], RECOVERY_S, "the run to train")
        trainers = [scene.pid(task) for task, host in scene.places().items() if host == full.name]
        agent = scene.agent(full)
        (scene.run_directory(full) / "reserve").unlink()
        with faults.full_home(full):
            time.sleep(1.0)
            if kills:
                faults.send(full, agent)
            begun = time.monotonic()
            done = user.run("down", "--yes", timeout_s=180)
            print(f"down took {time.monotonic() - begun:.1f} s\n{done.stdout}{done.stderr}")
            assert done.returncode == 0, done.stdout + done.stderr
            assert time.monotonic() - begun < 4 * BUSY_S
            assert not any(faults.has_process(full, pid) for pid in trainers)
            assert "the tasks start again" not in done.stderr
            eventually(lambda: not fleet.busy(), RECOVERY_S, "the end of all")
            assert [path for host in fleet.hosts for path in (host.home / ".dtctl").glob("runs/*")] == []
            assert "no run of" in user.run("status").stderr
        user.dtctl("up", timeout_s=120)
        eventually(lambda: user.status()["progress"]["step"], RECOVERY_S, "another run to train")
        user.dtctl("down", "--yes")
        eventually(lambda: not full.processes(), RECOVERY_S, "the end of all")
