"""A run with spares: the hosts of its tasks by the files of the remaining hosts, and the writers of its checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from tests.faults import report
from tests.faults.report import Row
from tests.faults.scene import Scene
from tests.hosts.fleet import FleetHost
from tests.waiting import eventually

TAKEOVER_S = 120.0
"""The time after a loss: that of `replace`, and more on machines that are busy with other work."""


class Takeover:
    """The places of tasks are read from files, without queries. `way`: of its rows in the report."""

    def __init__(self, scene: Scene, way: str = "") -> None:
        self.scene, self.fleet, self.user, self.way = scene, scene.fleet, scene.user, way
        self.output = self.fleet.shared / self.user.name
        self.patience_s = TAKEOVER_S + scene.recovery_s
        self.rows: list[Row] = []

    def begin(self, timeout_s: float = 300.0) -> None:
        """Returns when the lead trains and has saved."""
        self.user.dtctl("up", timeout_s=timeout_s)
        self.until(lambda: self.trains("worker:0"), "the lead to train")
        self.until(lambda: any(self.output.glob("*.index")), "a checkpoint")

    def until(self, condition: Any, what: str) -> Any:
        try:
            return eventually(condition, self.patience_s, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.scene.describe()}") from None

    # The places of tasks.

    def places(self, task: str) -> dict[str, dict[str, Any]]:
        """Host -> its entry of the task, on each host that is up and runs it."""
        found = {}
        for host in self.fleet.hosts:
            entry = self._file(host, "state.json").get("tasks", {}).get(task)
            if entry is not None and entry["state"] == "running":
                found[host.name] = entry
        return found

    def host(self, task: str) -> FleetHost:
        (name,) = self.places(task)
        return self.fleet[name]

    def trains(self, task: str, *, beside: str = "") -> FleetHost | None:
        """The host where it runs and has reported a step, other than `beside`."""
        for name, entry in self.places(task).items():
            if name != beside and (entry["step"] is not None or (task.startswith("ps") and entry["ready"])):
                return self.fleet[name]
        return None

    def moves(self, task: str, *, away_from: FleetHost) -> FleetHost:
        found = self.until(lambda: self.trains(task, beside=away_from.name), f"{task} to leave {away_from.name}")
        assert isinstance(found, FleetHost)
        return found

    def chosen_for(self, slot: str) -> FleetHost:
        """The host that is to take its place, as soon as a host has recorded that."""

        def chosen() -> str | None:
            moved = [self._file(host, "moved.json") for host in self.fleet.hosts]
            newest = max(moved, key=lambda one: one.get("number", 0))
            found: str | None = newest.get("slots", {}).get(slot)
            return found

        return self.fleet[self.until(chosen, f"a spare to be chosen for {slot}")]

    def becomes_a_spare(self, host: FleetHost) -> None:
        def is_one() -> bool:
            known = self.scene.cluster()["hosts"][host.name]
            return bool(known["connected"]) and self._file(host, "state.json").get("tasks") == {}

        self.until(is_one, f"{host.name} to be a spare")

    def _file(self, host: FleetHost, name: str) -> dict[str, Any]:
        """A file of its newest run; {} if there is none. A disk of its own is visible only on the host."""
        directory = self.scene.run_directory_or_none(host) if host.is_up else None
        with suppress(FileNotFoundError, json.JSONDecodeError, CalledProcessError):
            if directory is None and host.is_up:
                found = json.loads(host.exec("sh", "-c", f"cat .dtctl/runs/*/*/{name}"))
            else:
                found = json.loads((directory / name).read_text()) if directory is not None else {}
            return dict(found)
        return {}

    # Its progress.

    def continues(self) -> None:
        """Returns when the lead has reported a step beyond the current one, or beyond the restored checkpoint."""
        before = [(name, entry["attempt"], entry["step"]) for name, entry in self.places("worker:0").items()]

        def advances() -> bool:
            now = [(name, entry["attempt"], entry["step"]) for name, entry in self.places("worker:0").items()]
            return any(one not in before and one[2] is not None for one in now)

        self.until(advances, "the training to continue")

    @contextmanager
    def measured(self, fault: str) -> Iterator[None]:
        """Measures the time from a loss until training continues."""
        struck = time.time()
        yield
        self.continues()
        self.until(lambda: not self._open_incidents(), "the losses to be recovered from")
        self.rows.append(report.measure(fault, self.way, struck, self.scene.story()))

    def _open_incidents(self) -> list[Any]:
        found = self.scene.cluster()["incidents"]
        return [one for one in found if one["recovered"] is None and one["given_up"] is None]

    def command(self, *words: str, code: int | None = 0) -> str:
        """Runs a command as a user does; its output is shown if the test fails."""
        done = self.user.run(*words, timeout_s=240)
        print(f"$ dtctl {' '.join(words)}    -> {done.returncode}\n{done.stdout}{done.stderr}")
        assert "Traceback" not in done.stderr
        assert code is None or done.returncode == code
        return done.stdout

    def write_spare_into_file(self) -> None:
        """Writes gpu-5 in place of gpu-4 into the file, where these are a spare and a host of workers."""
        file = self.user.project / "cluster.yaml"
        text = file.read_text().replace("gpu-[3-4]", "gpu-[3,5]").replace('"gpu-2", "gpu-5"', '"gpu-2"')
        file.write_text(text)

    # The writers.

    def writers_at_once(self) -> list[str]:
        """Pairs of processes that were the same task at the same time, by their own records."""
        lives: dict[str, list[tuple[float, float, str]]] = {}
        for path in (self.output / "writers").iterdir():
            lines = path.read_text().split()
            if lines:
                life = (float(lines[0]), float(lines[-1]), path.name)
                lives.setdefault(path.name.partition("@")[0], []).append(life)
        return [
            f"{one[2]} until {one[1]}, {other[2]} from {other[0]}"
            for each in lives.values()
            for one, other in pairwise(sorted(each))
            if other[0] <= one[1]
        ]


def check_end(run: Takeover, steps: int) -> None:
    """Checks the target step, the trained model, and that there was one writer at any time."""
    (run.output / "enough").touch()
    run.command("wait")
    assert run.user.status()["conditions"][0]["type"] == "Succeeded"
    result = json.loads(Path(run.output / "result.json").read_text())
    assert result["step"] >= steps
    assert result["held_out_accuracy"] > 0.95
    assert run.writers_at_once() == []
