"""Hosts are destroyed permanently, and spares take their places automatically, without a controller."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.desk import Desk, desk
from tests.faults import report
from tests.faults.losses import CASES, Case
from tests.faults.report import Row
from tests.faults.scene import Way, stand_in
from tests.faults.takeover import Takeover, check_end
from tests.faults.tensorflow_run import tensorflow
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost, module_fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults]

seven_hosts = module_fleet(7)


@pytest.fixture
def seven(seven_hosts: Fleet) -> Iterator[Fleet]:
    yield seven_hosts
    seven_hosts.restore()


@contextmanager
def never_twice(run: Takeover, program: str) -> Iterator[None]:
    """Checks that two hosts never run this program at the same time: both would write the same checkpoints."""
    seen: list[str] = []
    ends = threading.Event()

    def look() -> None:
        while not ends.is_set():
            there = [host.name for host in run.fleet.hosts if host.is_up and _runs(host, program)]
            seen.extend([", ".join(there)] if len(there) > 1 else [])
            time.sleep(0.1)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ends.set()
        watcher.join()
    assert seen == []


def _runs(host: FleetHost, program: str) -> bool:
    try:
        return any(re.search(program, line) for line in host.processes())
    except Exception:  # it has just died
        return False


CHIEF = "python.*--job_name=worker --task_index=0"

WAY = Way("async-ps", {"ps": "gpu-1", "worker": "gpu-[3-4]"}, {"way": "async"})


def test_a_spare_takes_the_place_of_the_leads_host_that_was_cut_off(fleet: Fleet, user: Desk, rows: list[Row]) -> None:
    """The part that is cut off still has the checkpoints: it has ended its chief before the other part starts one."""
    output = fleet.shared / user.name
    more: dict[str, Any] = {"dirs": {"output": str(output)}, "recovery": {"replace": "45s"}, "grace": "1s"}
    scene = stand_in(fleet, user, WAY, spares=["gpu-2", "gpu-5"], **more)
    run = Takeover(scene)
    user.dtctl("up", timeout_s=120)
    eventually(lambda: run.trains("worker:0"), 60, "the lead to train")
    eventually(lambda: any(output.glob("*.index")), 60, "a checkpoint")
    with never_twice(run, CHIEF):
        struck = time.time()
        fleet.cut(fleet["gpu-3"])
        there = run.moves("worker:0", away_from=fleet["gpu-3"])
        fleet.heal(fleet["gpu-3"])
        spares = {"gpu-2": "gpu-[3,5]", "gpu-5": "gpu-[2-3]"}[there.name]
        now = f"{there.name} has taken the place of gpu-3\nspares: {spares} ready"
        eventually(lambda: now in user.dtctl("status"), 60, "gpu-3 to be a spare")
        assert not _runs(fleet["gpu-3"], "trainer")
    assert user.dtctl("exec", "worker:0", "--", "hostname").strip() == there.name
    assert "step" in user.dtctl("logs", "worker:0", "-n", "3")
    there.exec("touch", f"{output}/enough")
    user.dtctl("wait", timeout_s=120)
    assert user.status()["conditions"][0]["type"] == "Succeeded"
    rows.append(
        report.measure("the lead's host is cut off for good, replace: 45s", WAY.strategy, struck, scene.story())
    )


STEPS = 8000


@pytest.mark.nightly
@pytest.mark.training
@pytest.mark.timeout(1800)
def test_training_succeeds_after_the_loss_of_three_machines(
    seven: Fleet, tmp_path: Path, client: str, rows: list[Row]
) -> None:
    """Five hosts with tasks and two spares; no controller reaches any of them after the first minute."""
    fleet = seven
    with desk(tmp_path / "home", name="digits", client=client) as user:
        output = fleet.shared / user.name
        scene = tensorflow(
            fleet,
            user,
            STEPS,
            jobs={"ps": {"hosts": "gpu-[1-2]"}, "worker": {"hosts": "gpu-[3-5]"}},
            dirs={"output": str(output)},
            recovery={"replace": "60s"},
            grace="5s",
            spares="gpu-[6-7]",
        )
        run = Takeover(scene)
        user.dtctl("up", timeout_s=300)
        with faults.without_controllers(fleet), never_twice(run, CHIEF):
            eventually(lambda: run.trains("worker:0"), scene.recovery_s, "the lead to train")
            eventually(lambda: any(output.glob("model.ckpt-*.index")), 120, "a checkpoint")

            def destroyed(what: str, host: FleetHost, task: str) -> FleetHost:
                struck = time.time()
                fleet.crash(host)
                there = run.moves(task, away_from=host)
                eventually(lambda: run.trains("worker:0"), scene.recovery_s, "the training to continue")
                name = f"the host of {what} is destroyed, replace: 60s"
                rows.append(report.measure(name, "async-ps, TensorFlow", struck, scene.story()))
                return there

            lead = destroyed("the lead", fleet["gpu-3"], "worker:0")
            destroyed("a ps", fleet["gpu-1"], "ps:0")
            destroyed("the lead again", lead, "worker:0")
            (output / "enough").touch()
            scene.wait_until(lambda: (output / "result.json").exists(), "the end of the training")
        user.dtctl("wait", timeout_s=300)
        assert user.status()["conditions"][0]["type"] == "Succeeded"
        assert json.loads((output / "result.json").read_text())["held_out_accuracy"] > 0.95
        print(user.dtctl("events"))


TARGETS = {"ps-async": 8000, "ps-sync": 1500, "multi-worker-mirrored": 2000}


@pytest.mark.nightly
@pytest.mark.training
@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", ["fabric"])
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_training_succeeds_despite_lost_machines(case: Case, fleet: Fleet, user: Desk, rows: list[Row]) -> None:
    target = TARGETS[case.program.template]
    with case.around(fleet):
        scene = tensorflow(
            fleet,
            user,
            target,
            case.program,
            jobs={job: {"hosts": where} for job, where in case.jobs.items()},
            dirs={"output": str(fleet.shared / user.name)},
            recovery={"replace": "45s"},
            grace="1s",
            spares=[host for host in ("gpu-1", "gpu-2", "gpu-5") if host not in case.hosts],
        )
        run = Takeover(scene, f"{case.program.strategy}, TensorFlow")
        run.begin()
        case.strike(run)
        check_end(run, target)
    events = run.command("events")
    assert re.search(".*".join(case.events), events, re.DOTALL), events
    rows += run.rows
    print(*run.rows, sep="\n")
    for host in fleet.hosts:
        if not host.is_up:
            faults.power_up(fleet, host)


HOUR_S = 300.0
"""An hour of the simulation of the same losses. `replace` and the time of starts are not shortened as much."""


def _saved(run: Takeover) -> int:
    """The step of the newest checkpoint."""
    return max(int(path.stem.partition("-")[2]) for path in run.output.glob("model.ckpt-*.index"))


@pytest.mark.nightly
@pytest.mark.training
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("client", ["fabric"])
@pytest.mark.parametrize(("spares", "least", "most"), [("gpu-[5-7]", 0.6, 1.1), ("", 0.3, 0.5)], ids=["spares", "none"])
def test_spares_keep_the_steps_of_a_run_that_loses_a_host_each_hour(
    seven: Fleet, tmp_path: Path, client: str, spares: str, least: float, most: float
) -> None:
    """Over four hours, as a share of the steps before the first loss."""
    more: dict[str, Any] = {"spares": spares, "recovery": {"replace": "45s"}} if spares else {}
    with desk(tmp_path / "home", name="digits", client=client) as user:
        scene = tensorflow(
            seven,
            user,
            100_000,
            jobs={"ps": {"hosts": "gpu-1"}, "worker": {"hosts": "gpu-[2-4]"}},
            dirs={"output": str(seven.shared / user.name)},
            grace="1s",
            **more,
        )
        run = Takeover(scene)
        run.begin()
        began, until = _saved(run), time.monotonic()
        steps = []
        for task, slot in (("worker:1", "gpu-3"), ("worker:0", "gpu-2"), ("ps:0", "gpu-1"), ("", "")):
            until += HOUR_S
            time.sleep(max(0.0, until - time.monotonic()))
            steps.append(_saved(run) - began)
            if task:
                faults.destroy(seven, run.host(task) if spares else seven[slot])
        share = steps[-1] / (4 * steps[0])
        print(f"steps after each hour: {steps}, {share:.0%} of those without a loss")
        assert least <= share <= most
