"""Spares take the places of hosts that are gone: real supervisors, real links, and hosts that do not come back."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dtctl.agent.records.spec import shortest_replace_s
from dtctl.agent.records.values import address_mark
from dtctl.operations.credentials import Authority
from tests.agent.conftest import MakeHost
from tests.agent.host import Conversation, Fields, kill, python_task
from tests.hosts.ports import free_port
from tests.unit.agent.coordinate.seating import with_spares
from tests.waiting import eventually

TRAINER = """
import os, socket, time
own = os.environ["OWN"]
server = socket.create_server(("127.0.0.1", int(own.rpartition(":")[2])))
step = 0
while True:
    step += 1
    print("step", step, "of", own, "beside", os.environ["PS"], flush=True)
    if os.environ["DTCTL_TASK"] == "chief:0":
        with open(os.path.join(os.environ["SHARED"], "written"), "a") as file:
            file.write("%f %s\\n" % (time.time(), os.environ["DTCTL_HOST"]))
    time.sleep(0.1)
"""
PLACES = {"ps:0": "a", "chief:0": "b", "worker:0": "c"}
SPARES = ("s", "t")
GRACE_S = 1.0


class Seats:
    """Hosts a, b and c with a task each, of which b has the lead, and two spares. All vote."""

    def __init__(self, make_host: MakeHost, shared: Path, replace_s: float, strategy: str = "async-ps") -> None:
        self.hosts = {name: make_host(name) for name in (*PLACES.values(), *SPARES)}
        self.shared = shared
        self.gone: set[str] = set()
        ports = {name: free_port() for name in self.hosts}
        voters = [{"host": name, "address": f"127.0.0.1:{port}", "port": port} for name, port in ports.items()]
        voters.sort(key=lambda one: one["host"] != "b")
        recovery = {"max_restarts": 5, "backoff_min_s": 0.1, "backoff_max_s": 0.5, "replace_s": replace_s}
        whole = with_spares(
            strategy,
            PLACES,
            *SPARES,
            recovery=recovery,
            voters=voters,
            coordinator=voters[0],
            grace_s=GRACE_S,
            needs_checkpoint=False,
            cluster="c",
            checkpoint_dirs=[str(shared)],
        )
        at = {(task, host): free_port() for task, own in PLACES.items() for host in (own, *SPARES)}
        for member in whole["roster"]:
            member["address"] = f"127.0.0.1:{at[member['task'], member['host']]}"
        for name, spare in whole["spares"].items():
            spare["addresses"] = {task: f"127.0.0.1:{at[task, name]}" for task in PLACES}
        self.specs: dict[str, Fields] = {}
        for name in self.hosts:
            tasks = {task: self._task(task, at[task, name]) for task in PLACES if (task, name) in at}
            own = [program for task, program in tasks.items() if PLACES[task] == name]
            seats = {PLACES[task]: [program] for task, program in tasks.items()} if name in SPARES else {}
            self.specs[name] = {**whole, "host": name, "tasks": own, "seats": seats, "created": time.time()}
        self.up()

    def _task(self, task: str, port: int) -> Fields:
        env = {"OWN": address_mark(task), "PS": address_mark("ps:0"), "SHARED": str(self.shared)}
        return python_task(task, TRAINER, env=env, port=port, ready="listening", own=task == "worker:0")

    def up(self) -> None:
        authority = Authority("demo-1")
        with ExitStack() as stack:
            talks: dict[str, Conversation] = {}
            for name, host in self.hosts.items():
                talks[name] = stack.enter_context(host.open())
                credentials = dataclasses.asdict(authority.issue(name, coordinates=True))
                host.prepare(talks[name], self.specs[name], credentials=credentials)
            for words, answer in (("start", "started"), ("keep", "result")):
                for talk in talks.values():
                    talk.send(words)
                for talk in talks.values():
                    talk.await_type(answer)

    def destroy(self, name: str) -> None:
        self.gone.add(name)
        self.hosts[name].clean_up()

    def runs(self, task: str, host: str, attempt: int) -> bool:
        state = self.hosts[host].state(self.specs[host])
        entry = state["tasks"].get(task, {"attempt": 0})
        return (entry["attempt"], entry.get("state"), entry.get("ready")) == (attempt, "running", True)

    def says(self, task: str, host: str, attempt: int) -> str:
        return self.hosts[host].log(self.specs[host], task, attempt).splitlines()[-1]

    def history(self) -> list[str]:
        """As the coordinator of the moment has it."""
        files = [self.hosts[name].run_directory(self.specs[name]) for name in self.hosts if name not in self.gone]
        found = [directory / "history.jsonl" for directory in files if (directory / "cluster.json").exists()]
        return [json.loads(line)["reason"] for path in found for line in path.read_text().splitlines()]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.fixture
def logs(request: pytest.FixtureRequest) -> Iterator[list[Seats]]:
    """Of no agent has a bug ended the look."""
    made: list[Seats] = []
    yield made
    for seats in made:
        for host in seats.hosts.values():
            for log in host.root.glob("runs/*/*/agent.log"):
                assert "Traceback" not in log.read_text(), log.read_text()


def test_a_lost_worker_goes_on_at_a_spare_and_its_host_is_told_when_it_is_back(
    make_host: MakeHost, shared: Path, logs: list[Seats]
) -> None:
    seats = Seats(make_host, shared, replace_s=25.0)
    logs.append(seats)
    eventually(lambda: all(seats.runs(task, host, 1) for task, host in PLACES.items()), 30, "the start")
    pids = seats.hosts["c"].processes()
    for pid in pids:
        kill(pid, 19)
    eventually(lambda: seats.runs("worker:0", "s", 2), 60, "the worker at the spare")
    assert seats.says("worker:0", "s", 2).endswith(f"beside {seats.specs['b']['roster'][0]['address']}")
    for pid in pids:
        kill(pid, 18)
    eventually(lambda: not seats.hosts["c"].state(seats.specs["c"])["tasks"], 40, "the old host without a task")
    eventually(lambda: "c is back; its tasks are on s now" in seats.history(), 30, "a line about it")
    assert "step" in seats.says("ps:0", "a", 1)
    assert seats.runs("ps:0", "a", 1)
    assert seats.runs("chief:0", "b", 1), "who does not dial it goes on"


@pytest.mark.nightly
def test_the_lead_with_the_coordinator_and_then_a_ps_are_lost(
    make_host: MakeHost, shared: Path, logs: list[Seats]
) -> None:
    seats = Seats(make_host, shared, replace_s=shortest_replace_s(GRACE_S))
    logs.append(seats)
    eventually(lambda: all(seats.runs(task, host, 1) for task, host in PLACES.items()), 30, "the start")
    seats.destroy("b")
    eventually(lambda: seats.runs("chief:0", "s", 2) or seats.runs("chief:0", "t", 2), 120, "the lead at a spare")
    assert seats.runs("worker:0", "c", 1), "it does not dial the lead"
    written = [line.split() for line in (seats.shared / "written").read_text().splitlines()]
    hosts = [host for _, host in written]
    assert hosts == sorted(hosts), "one writer after the other"
    seats.destroy("a")
    eventually(lambda: any(seats.runs("ps:0", host, 2) for host in SPARES), 120, "the ps at the other spare")
    eventually(lambda: any(seats.runs("chief:0", host, 2) for host in SPARES), 60, "the lead")
