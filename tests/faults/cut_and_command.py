"""A host is cut off, a person types `replace` or `down`, and the link comes back: nothing acts beside its successor.

The run has no spares, and its directory is shared by all hosts. Every process of a trainer records there whatever it
does for the whole run: it saves, or restores the parameters.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests import event_files
from tests.desk import Desk
from tests.faults.scene import SPEED, TRAINER, Way
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

PATIENCE_S = 300.0
CUTS_S = (6.0, 12.0, 24.0, 45.0)
WAYS_OF_CUTTING = ("cut off", "deaf", "mute", "flapping")
FLAPS_S = ((0.5, 6.0), (0.2, 4.0))
"""For how long a flapping link is down, and then up, at least and at most."""


@dataclass(frozen=True)
class Plan:
    command: str
    """`replace` or `down`."""
    task: str
    """Its host is the one that is cut off."""
    how: str
    lasts_s: float
    typed_after_s: float
    flaps: tuple[tuple[float, float], ...] = ()
    """For how long the link is down, and then up."""

    def __str__(self) -> str:
        how = f"the host of {self.task} is {self.how} for {self.lasts_s:.0f} s"
        return f"{how}, dtctl {self.command} after {self.typed_after_s:.1f} s"


def plan(rng: random.Random, tasks: list[str], lead: str) -> Plan:
    lasts_s, how = rng.choice(CUTS_S), rng.choice(WAYS_OF_CUTTING)
    return Plan(
        command=rng.choice(["replace", "replace", "down"]),
        task=lead if rng.random() < 0.6 else rng.choice(tasks),
        how=how,
        lasts_s=lasts_s,
        typed_after_s=round(rng.uniform(0.0, lasts_s), 1),
        flaps=tuple(_flaps(rng, lasts_s)) if how == "flapping" else (),
    )


def _flaps(rng: random.Random, lasts_s: float) -> Iterator[tuple[float, float]]:
    passed_s = 0.0
    while passed_s < lasts_s:
        down_s, up_s = (rng.uniform(*limits) for limits in FLAPS_S)
        passed_s += down_s + up_s
        yield down_s, up_s


class Commanded:
    """A cluster whose file names the hosts of its tasks as they are now; two hosts at least have none."""

    def __init__(self, fleet: Fleet, user: Desk, way: Way, places: Mapping[str, str]) -> None:
        """`places`: the host of each task."""
        self.fleet, self.user, self.places = fleet, user, dict(places)
        self.output = fleet.shared / user.name
        self._way = way
        shutil.copytree(TRAINER, user.project / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(event_files.__file__, user.project / "event_files.py")

    def up(self) -> None:
        self._write_file()
        self.user.dtctl("up", timeout_s=240)
        self._until(self.trains, "the run to train")

    def carry_out(self, plan: Plan) -> str:
        """Returns the command with its exit code, when the run trains again or nothing of it is left."""
        victim = self.fleet[self.places[plan.task]]
        free = next(host.name for host in self.fleet.hosts if host.name not in self.places.values())
        words = ["replace", victim.name, free, "--yes"] if plan.command == "replace" else ["down", "--yes"]
        with self._cut(victim, plan):
            time.sleep(plan.typed_after_s)
            done = self.user.run(*words, timeout_s=PATIENCE_S)
        if plan.flaps and done.returncode not in (0, 7):  # the link went away in the middle of it
            assert "Traceback" not in done.stderr, done.stderr
            done = self.user.run(*words, timeout_s=PATIENCE_S)
        assert "Traceback" not in done.stderr, done.stderr
        reported = f"dtctl {' '.join(words)} -> {done.returncode}"
        if plan.command == "down":
            assert done.returncode in (0, 7), f"{reported}\n{done.stdout}{done.stderr}"
            self._until(self._is_gone, "nothing of the run to be left")
        else:
            assert done.returncode == 0, f"{reported}\n{done.stdout}{done.stderr}"
            moved = {task: free for task, host in self.places.items() if host == victim.name}
            self.places.update(moved)
            self._write_file()
            self._until(self.trains, "the successor to train")
            self._until(lambda: not victim.processes(), f"nothing of the old run to be left on {victim.name}")
        assert self.returned() == [], "a process acted after its successor had begun"
        return reported

    @contextmanager
    def _cut(self, victim: FleetHost, plan: Plan) -> Iterator[None]:
        """The link is back when the time is over, which may be while the command runs."""
        ways = {"cut off": self._cut_off, "deaf": faults.drop_incoming, "mute": faults.drop_outgoing}
        around = ways.get(plan.how, self._cut_off)
        cut = threading.Event()

        def last() -> None:
            for down_s, up_s in plan.flaps or [(plan.lasts_s, 0.0)]:
                with around(victim):
                    cut.set()
                    time.sleep(down_s)
                time.sleep(up_s)

        cutter = threading.Thread(target=last)
        cutter.start()
        try:
            assert cut.wait(30.0)
            yield
        finally:
            cutter.join()

    @contextmanager
    def _cut_off(self, host: FleetHost) -> Iterator[None]:
        self.fleet.cut(host)
        try:
            yield
        finally:
            self.fleet.heal(host)

    # What is seen.

    def trains(self) -> bool:
        """Whether all tasks run, and the lead reports another step."""
        before = self._steps()
        if before is None:
            return False
        deadline = time.monotonic() + 15.0
        while time.monotonic() < deadline:
            now = self._steps()
            if now is not None and now != before:
                return True
            time.sleep(0.5)
        return False

    def _steps(self) -> list[object] | None:
        """The steps of all tasks; None unless all of them run."""
        done = self.user.run("status", "-o", "json")
        tasks = json.loads(done.stdout).get("tasks", []) if done.stdout else []
        is_whole = {task["task"] for task in tasks} == self.places.keys()
        if not is_whole or any(task["state"] != "running" for task in tasks):
            return None
        return [task["step"] for task in tasks]

    def _is_gone(self) -> bool:
        runs = [path for host in self.fleet.hosts for path in (host.home / ".dtctl").glob("runs/*")]
        return not runs and not any(self.fleet.busy().values())

    def returned(self) -> list[str]:
        """The acts of a process for a task after another process had acted for that task."""
        found: list[str] = []
        newest: dict[str, str] = {}
        begun: dict[str, set[str]] = {}
        lines = (self.output / "acts").read_text().splitlines() if (self.output / "acts").exists() else []
        for line in sorted(lines, key=lambda line: float(line.split()[0])):
            _, task, process = line.split()[:3]
            if newest.get(task) != process and process in begun.setdefault(task, set()):
                found.append(line)
            begun[task].add(process)
            newest[task] = process
        return found

    def describe(self) -> str:
        acts = (self.output / "acts").read_text().splitlines() if (self.output / "acts").exists() else []
        by_process = [[*lines] for _, lines in itertools.groupby(acts, key=lambda line: line.split()[1:3])]
        parts = [f"{lines[0]} ... {lines[-1]} ({len(lines)})" for lines in by_process[-10:]]
        parts += [self.user.run("status").stdout, self.user.run("events").stdout[-4000:]]
        for host in self.fleet.hosts:
            parts.append(f"{host.name}: {host.processes() if host.is_up else 'down'}")
            logs = sorted((host.home / ".dtctl/runs").glob("*/*/agent.log"), key=lambda path: path.stat().st_mtime)
            parts += [line for path in logs[-2:] for line in [str(path), *path.read_text().splitlines()[-25:]]]
        return "\n".join(parts)

    def _until(self, condition: Callable[[], object], what: str) -> None:
        try:
            eventually(condition, PATIENCE_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def _write_file(self) -> None:
        jobs: dict[str, list[str]] = {}
        for task, host in self.places.items():
            jobs.setdefault(task.partition(":")[0], []).append(host)
        args = {**SPEED, **self._way.flags, "output_dir": "{output_dir}", "until_file": "{output_dir}/enough"}
        keys = {
            "jobs": {job: {"hosts": hosts} for job, hosts in jobs.items()},
            "strategy": self._way.strategy,
            "trainer": {"command": ["python", "-m", "trainer"], "dialect": "tensorflow", "args": args},
            "dirs": {"output": str(self.output)},
            "recovery": {"max_restarts": 10000, "max_run_restarts": 10000, "backoff": "100ms..200ms", "repeat": 0},
            "grace": "2s",
        }
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
        hosts = self.fleet.cluster_yaml(self.user.client)
        (self.user.project / "cluster.yaml").write_text(f"name: {self.user.name}\n{hosts}{text}")
