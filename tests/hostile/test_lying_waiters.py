"""A compromised host that votes, after a `down` without a host: it ends no other's wait, and removes nobody's run.

Real agents and real links over loopback: b coordinates, c is away, and a is the one that lies.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.link.dialer import Dialer
from dtctl.agent.link.hub import Hub
from dtctl.agent.link.tls import Identity
from dtctl.agent.records.messages import PROTOCOL
from tests.agent.conftest import make_host
from tests.agent.coordinate.test_coordination import Cluster, cluster
from tests.agent.coordinate.test_down_waits import down, has_run, is_gone
from tests.agent.coordinate.test_succession import voting
from tests.agent.host import kill
from tests.waiting import eventually

__all__ = ["cluster", "make_host", "voting"]

LIES_S = 16.0
"""Another coordinator is looked for after 10 to 13 s."""


@pytest.fixture
def agent_python() -> str:
    return sys.executable


class Liar:
    """In place of the agent of a, with its genuine credentials."""

    def __init__(self, cluster: Cluster) -> None:
        self.spec = cluster.specs["a"]
        self.directory = cluster.hosts["a"].run_directory(self.spec)
        self.identity = Identity(str(self.directory), self.spec["run"])
        self.places = {voter["host"]: voter for voter in cluster.voters}
        self.state = {**json.loads((self.directory / "state.json").read_text()), "run": self.spec["run"]}
        self.answers: list[Any] = []

    def report(self, host: str, first: dict[str, Any], seconds: float = 1.0) -> None:
        """Sends one first message to this host's agent, on a connection of its own."""
        now = time.monotonic()
        link = Dialer(self.places[host]["address"], host, self.identity, now, random.random)
        end = now + seconds
        while time.monotonic() < end:
            for message in link.step(time.monotonic()):
                self.answers.append(message)
                if message["type"] == "connected":
                    link.send(first)
            time.sleep(0.01)
        link.close()

    def hello(self, host: str) -> dict[str, Any]:
        """Of an agent of that host where everything has ended."""
        tasks = {task: {**entry, "state": "stopped"} for task, entry in self.state["tasks"].items()}
        report = {"state": {**self.state, "host": host, "tasks": tasks}, "intents": {}, "kept": True}
        whole = {"type": "hello", "v": PROTOCOL, "run": self.spec["run"], "host": host, "events": 0}
        return {**whole, **report, "agent": self.state["agent"], "lost_session": False}

    def end(self, host: str, seconds: float) -> None:
        """Sends whoever connects to it that the run was taken down."""
        stops = {"intents": {}, "recovering": False, "over": True, "removed": True}
        words = [{"type": "welcome", "v": PROTOCOL, "events_from": 0}, {"type": "orders", **stops}]
        place = self.places["a"]
        hub = Hub(
            place["address"],
            place["port"],
            None,
            [self.identity],
            lambda hello: ([*words], True),
            time.monotonic(),
            removed=lambda *_: True,
        )
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.answers += [message for name, message in hub.step(time.monotonic()) if name == host]
            time.sleep(0.01)
        hub.close()


@contextmanager
def lying(cluster: Cluster) -> Iterator[Liar]:
    while processes := cluster.hosts["a"].processes():
        for pid in processes:
            kill(pid)
    yield Liar(cluster)


def awaited(cluster: Cluster) -> list[str]:
    directory = cluster.hosts["b"].run_directory(cluster.specs["b"])
    found: list[str] = json.loads((directory / "awaited.json").read_text())["hosts"]
    return found


def test_a_liar_ends_nobodys_wait_for_another_host(voting: Cluster) -> None:
    thaw = voting.freeze_agent("c")
    down(voting, "a", "b")
    with lying(voting) as liar:
        for first in (
            {"type": "leave"},
            {"type": "leave", "host": "c", "run": voting.specs["c"]["run"]},
            liar.hello("c"),
            {**liar.hello("a"), "over": True},
            {"type": "over", "removed": True},
        ):
            liar.report("b", first)
            assert awaited(voting) == ["c"], first
        assert {"over", "refused"} <= {answer["type"] for answer in liar.answers}, "b has read what it sent"
    assert voting.hosts["b"].processes(), "it still waits"
    thaw()
    eventually(lambda: not voting.hosts["c"].processes(), 60, "the end of what was away")
    assert not has_run(voting, "c")
    gone: Path = voting.hosts["b"].run_directory(voting.specs["b"])
    eventually(lambda: is_gone(gone), 60, "the end of the wait")


def test_no_host_ends_or_removes_its_run_by_one_voters_word(voting: Cluster) -> None:
    """The coordinator is frozen, so that c asks the others."""
    before = voting.entry("worker:0")["pid"]
    thaw = voting.freeze_agent("b")
    with lying(voting) as liar:
        liar.end("c", LIES_S)
        assert any(answer["type"] == "superseded" for answer in liar.answers), "c has asked it"
    assert voting.entry("worker:0")["pid"] == before
    assert voting.entry("worker:0")["state"] == "running"
    thaw()
    down(voting, "a", "b", "c")
    assert not has_run(voting, "c")
