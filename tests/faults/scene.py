"""A run on five hosts during a fault: its strategy, the places of its processes, and its checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtctl.agent.checkpoints import reading
from dtctl.agent.run.runfiles import RunFiles
from tests import event_files
from tests.desk import Desk
from tests.faults.report import Story
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

RECOVERY_S = 90.0
"""For machines that are busy with other work."""

ADVANCE_S = 15.0
"""A training task reports another step within this time."""

KEEP = 5
"""The number of checkpoints that the trainer keeps."""


class Scene:
    """The run of the cluster.yaml on the desk; its lead is on gpu-3. No recovery may take longer than `recovery_s`."""

    def __init__(self, fleet: Fleet, user: Desk, recovery_s: float = RECOVERY_S) -> None:
        self.fleet, self.user, self.recovery_s = fleet, user, recovery_s
        self._damaged = ""

    def up(self) -> None:
        """Returns when every task runs, the run advances, and there are two checkpoints to go back to."""
        self.user.dtctl("up", timeout_s=120)
        self.wait_until(self.is_whole, "the run to train")
        self.wait_until(lambda: len(self.complete_checkpoints()) >= 2, "two checkpoints")

    # The contents of the run's files.

    def host(self, task: str) -> FleetHost:
        return self.fleet[self.places()[task]]

    def run_directory(self, host: FleetHost) -> Path:
        """The directory of the newest run there."""
        run = (host.home / ".dtctl" / "clusters" / self.user.name / host.name / "current").read_text().strip()
        return host.home / ".dtctl" / "runs" / run / host.name

    def run_file(self, host: FleetHost, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run_directory(host) / name).read_text())
        return found

    def coordinator(self) -> FleetHost:
        """The coordinator of the newest term that hosts know; the first term has one without an election."""
        directories = [self.run_directory_or_none(host) for host in self.fleet.hosts]
        ballots = [RunFiles(str(directory)).ballot() for directory in directories if directory is not None]
        known = [ballot for ballot in ballots if ballot is not None]
        newest = max(known, key=lambda one: (one["term"], one["coordinator"] is not None), default=None)
        return self.fleet[(newest and (newest["coordinator"] or newest["last"])) or "gpu-3"]

    def cluster(self) -> dict[str, Any]:
        """The cluster.json of the coordinator."""
        return self.run_file(self.coordinator(), "cluster.json")

    def task(self, task: str) -> dict[str, Any]:
        found: dict[str, Any] = self.run_file(self.host(task), "state.json")["tasks"][task]
        return found

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Every task as recorded by its own agent."""
        found: dict[str, dict[str, Any]] = {}
        for host in self.fleet.hosts:
            if (self.run_directory_or_none(host)) is not None:
                found.update(self.run_file(host, "state.json")["tasks"])
        return found

    def run_directory_or_none(self, host: FleetHost) -> Path | None:
        try:
            return self.run_directory(host)
        except FileNotFoundError:
            return None

    def pid(self, task: str) -> int:
        return int(self.task(task)["pid"])

    def keeper(self, task: str) -> int:
        directory = self.run_directory(self.host(task)) / "tasks" / task.replace(":", "-")
        start = directory / f"attempt-{self.task(task)['attempt']}" / "start.json"
        return int(json.loads(start.read_text())["keeper"]["pid"])

    def agent(self, host: FleetHost) -> int:
        return int(self.run_file(host, "state.json")["agent"]["pid"])

    def story(self) -> Story:
        lines = (self.run_directory(self.coordinator()) / "history.jsonl").read_text().splitlines()
        return Story(self.cluster(), [json.loads(line) for line in lines])

    # Its progress.

    def steps(self) -> dict[str, int]:
        """The last step of each task that reports steps."""
        return {name: task["step"] for name, task in self.tasks().items() if task["step"] is not None}

    def is_whole(self) -> bool:
        """Whether nothing is lost, and the training tasks advance."""
        try:
            before = self.steps()
            return self._lacks_nothing() and self._advances(before) and self._lacks_nothing()
        except (FileNotFoundError, json.JSONDecodeError):
            return False  # not started yet, or just being replaced

    def _lacks_nothing(self) -> bool:
        """Whether every host is connected, every task runs, and no loss is open."""
        cluster, tasks = self.cluster(), self.tasks()
        open_ones = [one for one in cluster["incidents"] if one["recovered"] is None and one["given_up"] is None]
        in_touch = all(host["connected"] for host in cluster["hosts"].values())
        return bool(tasks) and all(task["state"] == "running" for task in tasks.values()) and in_touch and not open_ones

    def _advances(self, before: Mapping[str, int]) -> bool:
        deadline = time.monotonic() + ADVANCE_S
        while before and time.monotonic() < deadline:
            if all(step != before[name] for name, step in self.steps().items() if name in before):
                return True
            time.sleep(0.05)
        return False

    def goes_on(self) -> None:
        """Returns when every training task has reported another step."""
        before = self.steps()
        self.wait_until(lambda: all(step != before.get(name) for name, step in self.steps().items()), "steps")

    def recover(self) -> None:
        self.wait_until(self.is_whole, "the run to train again")

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Waits as `eventually` does, but fails with all known facts."""
        try:
            eventually(condition, self.recovery_s, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def describe(self) -> str:
        parts = [self.user.run("status").stdout]
        for host in self.fleet.hosts:
            if (directory := self.run_directory_or_none(host)) is not None:
                parts += [f"{host.name}: {host.processes() if host.is_up else 'down'}"]
                for name in ("agent.log", "history.jsonl"):
                    if (directory / name).exists():
                        parts += [name, *(directory / name).read_text().splitlines()[-40:]]
        return "\n".join(parts)

    def enough(self, hosts: Iterable[str] = ("gpu-3",)) -> None:
        """Lets training finish."""
        for host in hosts:
            self.fleet[host].exec("touch", f"{self.output}/enough")

    def places(self) -> dict[str, str]:
        """The host of each task."""
        return {place["task"]: place["host"] for place in self.run_file(self.fleet["gpu-3"], "spec.json")["roster"]}

    def restarted(self) -> list[str]:
        """The tasks with more than one attempt."""
        return [name for name, task in self.tasks().items() if task["attempt"] > 1]

    # Its checkpoints.

    @property
    def output(self) -> str:
        return f"dtctl/{self.user.name}/output"

    def complete_checkpoints(self) -> dict[str, Path]:
        """Prefix -> index file of all complete checkpoints, the newest first."""
        directory = self.fleet["gpu-3"].home / self.output
        (found,) = reading.report([str(directory)])
        return {each["prefix"]: directory / f"{each['prefix']}.index" for each in found["all"] if each["complete"]}

    def damage_newest_checkpoint(self) -> None:
        """Truncates a shard."""
        index = next(iter(self.complete_checkpoints().values()))
        shard = max(index.parent.glob(f"{index.stem}.data-*"))
        self._damaged = index.stem
        os.truncate(shard, shard.stat().st_size - 100)

    def newest_step(self) -> int:
        return max(int(prefix.rpartition("-")[2]) for prefix in self.complete_checkpoints())

    def lost_checkpoints(self, before: Mapping[str, Path]) -> list[str]:
        """Earlier complete checkpoints that are gone, except those that the trainer deleted, which keeps the newest."""
        gone = self._gone(before)
        # A save during the first inspection hides one that the trainer deletes next.
        return list(self._gone(gone)) if gone else []

    def _gone(self, before: Mapping[str, Path]) -> dict[str, Path]:
        now = self.complete_checkpoints()
        gone = {prefix: before[prefix] for prefix in before if prefix not in now and prefix != self._damaged}
        return gone if len(now) < KEEP else {prefix: index for prefix, index in gone.items() if index.exists()}

    # Faults and orders.

    def kill(self, task: str) -> None:
        faults.send(self.host(task), self.pid(task))


TRAINER = Path(__file__).with_name("trainer")

TARGET = 200
"""The step at which training may end; it continues until it is stopped."""

SPEED = {"train_steps": TARGET, "steps_per_s": 60, "save_s": 0.5, "poll_s": 0.2}

RECOVERY = {"max_restarts": 3, "backoff": "100ms..200ms"}


@dataclass(frozen=True)
class Way:
    """A strategy. The lead is always on gpu-3."""

    strategy: str
    jobs: Mapping[str, str]
    flags: Mapping[str, object]

    def cluster_yaml(self, name: str, hosts: str, more: Mapping[str, object]) -> str:
        """`more`: further keys of the file. Its `args`, `recovery` and `trainer` extend the existing ones."""
        args = {**SPEED, **self.flags, "output_dir": "{output_dir}", "until_file": "{output_dir}/enough"}
        keys = {
            "jobs": {job: {"hosts": where} for job, where in self.jobs.items()},
            "strategy": self.strategy,
            "trainer": {
                "command": ["python", "-m", "trainer"],
                "dialect": "tensorflow",
                "args": {**args, **mapping(more.get("args"))},
                **mapping(more.get("trainer")),
            },
            "dirs": {"output": "output"},
            "recovery": {**RECOVERY, **mapping(more.get("recovery"))},
            "grace": "2s",
            "settle": "5s",
            **{key: value for key, value in more.items() if key not in ("args", "recovery", "trainer")},
        }
        return f"name: {name}\n{hosts}" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())


def stand_in(fleet: Fleet, user: Desk, way: Way, **more: object) -> Scene:
    """A project on the desk whose trainer is the stand-in; `more` as for Way.cluster_yaml."""
    shutil.copytree(TRAINER, user.project / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(event_files.__file__, user.project / "event_files.py")
    (user.project / "cluster.yaml").write_text(way.cluster_yaml(user.name, fleet.cluster_yaml(user.client), more))
    return Scene(fleet, user)


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


ASYNC = Way("async-ps", {"ps": "gpu-[1-2]", "worker": "gpu-[3-5]"}, {"way": "async"})
SYNC = Way("sync-ps", {"ps": "gpu-[1-2]", "worker": "gpu-[3-5]"}, {"way": "sync"})
STRATEGY = Way("ps-strategy", {"ps": "gpu-[1-2]", "chief": "gpu-3", "worker": "gpu-[4-5]"}, {"way": "ps-strategy"})
COLLECTIVE = Way("mirrored", {"worker": "gpu-[3-5]"}, {"way": "collective", "heartbeat_s": 3})
