"""Agents of three hosts that act as one: real supervisors, real links over loopback, trainers that only listen."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from dtctl.operations.credentials import Authority
from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost, Conversation, Fields, kill, python_task
from tests.hosts.ports import free_port
from tests.reasons import reason_of
from tests.unit.agent.coordinate.world import spec_of
from tests.waiting import eventually

TRAINER = """
import os, signal, socket, sys, time

def save(*_):
    time.sleep(0.5)
    print("saved", flush=True)
    os._exit(0)

signal.signal(signal.SIGTERM, save)
server = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
end = time.monotonic() + float(os.environ.get("SECONDS", 1e9))
step = 0
while time.monotonic() < end:
    step += 1
    print("step", step)
    time.sleep(0.1)
"""
PLACES = {"ps:0": "a", "chief:0": "b", "worker:0": "c"}


class Cluster:
    """Hosts a, b and c with a task each; b coordinates."""

    def __init__(self, make_host: MakeHost) -> None:
        self.hosts = {name: make_host(name) for name in PLACES.values()}
        self.port = free_port()
        self.specs: dict[str, Fields] = {}
        self.runs = 0
        self.leading = "b"
        self.voters: list[Fields] = []
        """Without any, b coordinates for ever."""

    def up(self, strategy: str = "async-ps", seconds: float = 1e9, without: str = "", **fields: object) -> None:
        """Not on the host `without`."""
        with ExitStack() as stack:
            talks = self.start(stack, strategy, seconds, without, **fields)
            for talk in talks.values():
                talk.send("keep")
            for talk in talks.values():
                talk.await_type("result")
        for name in talks:
            self.hosts[name].begun(self.specs[name])

    def start(
        self, stack: ExitStack, strategy: str = "async-ps", seconds: float = 1e9, without: str = "", **fields: object
    ) -> dict[str, Conversation]:
        """Nothing is kept yet."""
        places = {task: name for task, name in PLACES.items() if name != without}
        recovery = {"max_restarts": 3, "backoff_min_s": 0.1, "backoff_max_s": 0.5, "reset_after_s": 600}
        where = {"host": "b", "address": f"127.0.0.1:{self.port}", "port": self.port}
        self.runs += 1
        fields = {"needs_checkpoint": False, "settle_s": 1.0, "grace_s": 5.0, "recovery": recovery, **fields}
        spec = spec_of(strategy, places, coordinator=where, voters=self.voters, run=f"demo-{self.runs}", **fields)
        authority = Authority(spec["run"])
        talks = {}
        for task, name in places.items():
            host = self.hosts[name]
            env = {"PORT": str(free_port()), "SECONDS": str(seconds if task == "chief:0" else 1e9)}
            own = task == "worker:0"
            program = python_task(task, TRAINER, env=env, port=int(env["PORT"]), ready="listening", own=own)
            own_part = {"host": name, "cluster": "c", "lead": "chief:0", "tasks": [program]}
            self.specs[name] = host.spec(program, **{**spec, **own_part})
            self.specs[name].update(digest=spec["run"], created=time.time())
            talks[name] = stack.enter_context(host.open())
            credentials = dataclasses.asdict(authority.issue(name, coordinates=name == "b" or bool(self.voters)))
            host.prepare(talks[name], self.specs[name], credentials=credentials, replace=True)
        for talk in talks.values():
            talk.send("start")
        for talk in talks.values():
            talk.await_type("started")
        return talks

    def of(self, task: str) -> tuple[AgentHost, Fields]:
        return self.hosts[PLACES[task]], self.specs[PLACES[task]]

    def view(self) -> Fields:
        found: Fields = json.loads(self.file("cluster.json").read_text())
        return found

    def file(self, name: str) -> Path:
        """Of the host that coordinates."""
        return self.hosts[self.leading].run_directory(self.specs[self.leading]) / name

    def story(self) -> list[Fields]:
        return [json.loads(line) for line in self.file("history.jsonl").read_text().splitlines()]

    def entry(self, task: str) -> Fields:
        host, spec = self.of(task)
        found: Fields = host.state(spec)["tasks"][task]
        return found

    def running(self, **attempts: int) -> bool:
        """All run and listen, in these attempts (the first if not said), and the coordinator knows it."""
        if not self.file("cluster.json").exists():
            return False
        known = self.view()
        states = [(known["hosts"][host]["state"] or {"tasks": {}})["tasks"].get(task) for task, host in PLACES.items()]
        return known["phase"] == "running" and all(
            entry is not None
            and entry["ready"]
            and entry["state"] == "running"
            and entry["attempt"] == attempts.get(task.partition(":")[0], 1)
            for task, entry in zip(PLACES, states, strict=True)
        )

    def elect(self, *names: str) -> None:
        """Before `up`: these hosts vote."""
        ports = {name: self.port if name == "b" else free_port() for name in names}
        self.voters = [{"host": name, "address": f"127.0.0.1:{port}", "port": port} for name, port in ports.items()]

    def kill_agent(self, name: str) -> None:
        kill(self.hosts[name].supervisor(self.specs[name]))

    def freeze_agent(self, name: str) -> Callable[[], None]:
        """Its tasks go on; returns what thaws it."""
        pid = self.hosts[name].supervisor(self.specs[name])
        kill(pid, signal.SIGSTOP)
        return lambda: kill(pid, signal.SIGCONT)

    def stop(self, *names: str) -> None:
        """As a controller does that does not reach the coordinator."""
        how = {"tasks": None, "grace_s": 2, "why": [{"kind": "stopped_by", "by": "ada"}], "by": "ada@laptop"}
        answers = {name: self.hosts[name].ask("stop", **how) for name in names}
        waiting = [name for name, answer in answers.items() if answer["waiting"]]
        assert waiting == [PLACES[task] for task in PLACES if task.startswith("ps") and PLACES[task] in names]
        for name in waiting:
            self.hosts[name].ask("stop", others_ended=True, **how)

    def keeps(self, name: str) -> bool:
        path = self.hosts[name].run_directory(self.specs[name]) / "intent.json"
        return json.loads(path.read_text())["session"] is None

    def all_ended(self) -> bool:
        return not any(host.processes() for host in self.hosts.values())


@pytest.fixture
def cluster(make_host: MakeHost) -> Iterator[Cluster]:
    made = Cluster(make_host)
    yield made
    for host in made.hosts.values():
        log = next(host.root.glob("runs/*/*/agent.log"), None)
        text = log.read_text() if log else ""
        assert "Traceback" not in text, text


def end_controller(cluster: Cluster, talks: dict[str, Conversation], *killed: str) -> None:
    """With the sessions on the hosts `killed`."""
    for name in killed:
        kill(talks[name].greeting["pid"])
    for talk in talks.values():
        talk.hang_up()


@pytest.mark.parametrize("killed", ["", "a", "abc"], ids=lambda hosts: f"killed sessions: {hosts or 'none'}")
def test_keep_that_only_reaches_the_coordinators_host_keeps_every_host(cluster: Cluster, killed: str) -> None:
    with ExitStack() as stack:
        talks = cluster.start(stack)
        talks["b"].send("keep")
        talks["b"].await_type("result")
        end_controller(cluster, talks, *killed)
        eventually(cluster.running, 30, "the run to train")
        for name in cluster.hosts:
            eventually(partial(cluster.keeps, name), 10, f"{name} to keep it")
        cluster.kill_agent("a")
        eventually(cluster.running, 30, "it to train")


@pytest.mark.parametrize(
    ("killed", "running"),
    [("", True), ("a", True), ("", False)],
    ids=["running", "one session is killed", "the agents have not met"],
)
def test_a_run_that_the_coordinators_host_was_not_asked_to_keep_is_kept_nowhere(
    cluster: Cluster, killed: str, running: bool
) -> None:
    with ExitStack() as stack:
        talks = cluster.start(stack)
        if running:
            eventually(cluster.running, 30, "the run to train")
        end_controller(cluster, talks, *killed)
        eventually(cluster.all_ended, 30, "the end of all")
        left = [name for name, host in cluster.hosts.items() if host.run_directory(cluster.specs[name]).exists()]
        assert left == list(killed)


def test_tasks_start_and_the_run_ends_by_itself_with_its_ps(cluster: Cluster) -> None:
    cluster.up(seconds=3)
    eventually(cluster.all_ended, 60, "every agent to be gone")
    known = cluster.view()
    assert (known["condition"]["type"], known["phase"]) == ("Succeeded", "ended")
    assert [cluster.entry(task)["state"] for task in PLACES] == ["stopped", "succeeded", "stopped"]
    begun = [line["task"] for line in cluster.story() if line["from"] == "starting" and line["to"] == "running"]
    assert sorted(begun) == ["chief:0", "ps:0", "worker:0"]
    ended = [line["task"] for line in cluster.story() if line["kind"] == "task" and line["to"] == "stopped"]
    assert ended == ["worker:0", "ps:0"]


def test_stop_on_every_host_ends_the_run(cluster: Cluster) -> None:
    cluster.up()
    cluster.stop("a", "b", "c")
    eventually(cluster.all_ended, what="every agent to be gone")
    assert cluster.view()["condition"]["type"] == "Stopped"


def test_drained_host_whose_agent_is_killed_stays_drained_and_answers(cluster: Cluster) -> None:
    cluster.up()
    eventually(cluster.running, what="the start")
    lead, worker = cluster.hosts["b"], cluster.hosts["c"]
    asked = {"drained": "c", "by": "anna@desk"}
    assert lead.ask("drain", **asked)["stopped"] == ["worker:0"]
    before = worker.supervisor(cluster.specs["c"])
    cluster.kill_agent("c")
    eventually(lambda: worker.supervisor(cluster.specs["c"]) not in (0, before), what="the next agent")
    answer = lead.ask("drain", drained="a", by="bob@desk")
    assert (answer["stopped"], answer["already"]) == (["ps:0", "chief:0"], ["worker:0"])
    condition = cluster.view()["condition"]
    assert (condition["type"], reason_of(condition)) == ("Suspended", "a is drained by bob@desk")
    ended = [line["task"] for line in cluster.story() if line["kind"] == "task" and line["to"] == "pending"]
    assert ended == ["worker:0", "chief:0", "ps:0"], "the chief still had its ps when it ended"
    assert lead.ask("undrain", drained="a", by="bob@desk")["tasks"]["chief:0"]["attempt"] == 2
    thaw = cluster.freeze_agent("b")
    assert worker.ask("undrain", **asked)["tasks"]["worker:0"]["state"] == "pending"
    thaw()
    eventually(lambda: cluster.running(ps=2, chief=2, worker=2), 30, "all to train again")
    asked_for = [reason_of(line) for line in cluster.story() if line["kind"] == "request"]
    assert asked_for == ["up", "drain c", "drain a", "undrain a", "c is in service again"]


@pytest.mark.parametrize("name", ["c", "b"])
def test_host_that_shuts_down_saves_and_starts_again_without_a_loss(cluster: Cluster, name: str) -> None:
    """As systemd ends a machine: SIGTERM to every process at once, and the end when they are gone."""
    cluster.up(recovery={"max_restarts": 0, "backoff_min_s": 0.1, "backoff_max_s": 0.5, "reset_after_s": 600})
    eventually(cluster.running, what="the start")
    host, task = cluster.hosts[name], next(task for task, place in PLACES.items() if place == name)
    for pid in host.processes():
        kill(pid, signal.SIGTERM)
    eventually(lambda: not host.processes(), 20, "the host to be quiet")
    entry = cluster.entry(task)
    assert (entry["state"], reason_of(entry)) == ("pending", f"{name} is shutting down")
    assert "saved" in host.log(cluster.specs[name], task)
    reported = [reason_of(line) for line in cluster.story() if line["host"] == name and line["kind"] == "contact"]
    assert reported[:1] == [f"{name} is shutting down"]
    assert host.ask("status")["state"]["tasks"], "which starts its agent, as a reboot does"
    attempts = {"worker": 2} if name == "c" else {"ps": 2, "chief": 2, "worker": 2}
    eventually(lambda: cluster.running(**attempts), 60, "all to train again")
    assert cluster.view()["incidents"] == []


@pytest.mark.parametrize("asked", ["stop", "replace"])
def test_host_that_missed_the_end_of_its_run_leaves_the_next_run_alone(cluster: Cluster, asked: str) -> None:
    cluster.up()
    eventually(cluster.running, what="the start")
    old = cluster.specs["a"]
    thaw = cluster.freeze_agent("a")
    eventually(lambda: not cluster.view()["hosts"]["a"]["connected"], what="the loss of host a")
    if asked == "stop":
        cluster.stop("b", "c")
    cluster.up(without="a")
    assert cluster.hosts["a"].state(old)["tasks"]["ps:0"]["state"] == "running"
    thaw()
    eventually(lambda: not cluster.hosts["a"].processes(), 60, "nothing left of the past")
    assert cluster.hosts["a"].state(old)["tasks"]["ps:0"]["state"] == "stopped"
    reasons = [reason_of(line) for line in cluster.story() if line["kind"] == "contact"]
    assert reasons == [f"a reconnected with run {old['run']} and was notified that it has ended"]
    assert [cluster.entry(task)["state"] for task in ("chief:0", "worker:0")] == ["running", "running"]
