"""A lying agent, with the genuine certificate of its host, against a real coordinator while a neighbour trains."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate.history import BURST_BYTES
from dtctl.agent.records.messages import PROTOCOL
from dtctl.agent.records.reasons import said
from tests.agent.conftest import MakeHost
from tests.agent.coordinate.test_coordination import PLACES, Cluster
from tests.agent.host import AgentHost
from tests.agent.link.intruder import Intruder
from tests.hostile.agent_lies import LIES, Message, event, events, line
from tests.reasons import reason_of
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("an agent that lies")  # one coordinator receives all lies


class Liar:
    """A liar on host c, whose genuine agent is there as well; host a trains, and b coordinates."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.directory = cluster.hosts["c"].run_directory(cluster.specs["c"])
        self.coordinator = cluster.hosts["b"].supervisor(cluster.specs["b"])
        self._thaw: Callable[[], None] | None = None

    def freeze(self) -> None:
        """Stops the genuine agent, until `thaw`."""
        if self._thaw is None:
            self._thaw = self.cluster.freeze_agent("c")
            eventually(lambda: not self.is_heard(), what="the genuine agent to be missed")

    def thaw(self) -> None:
        if self._thaw is not None:
            self._thaw()
            self._thaw = None

    def is_heard(self) -> bool:
        return bool(self.cluster.view()["hosts"]["c"]["connected"])

    def hello(self) -> Message:
        state, intent = (json.loads((self.directory / name).read_text()) for name in ("state.json", "intent.json"))
        return {
            "type": "hello",
            "v": PROTOCOL,
            "run": state["run"],
            "host": "c",
            "agent": state["agent"],
            "events": 0,
            "state": state,
            "intents": intent["tasks"],
            "kept": True,
            "lost_session": False,
        }

    def connect(self) -> Intruder:
        made = Intruder(self.cluster.port)
        made.prove_token(self.directory)
        made.start_tls(self.directory)
        return made

    def tell(self, *lines: bytes) -> bytes:
        """Sends until the coordinator disconnects. Returns its messages."""
        connection = self.connect()
        try:
            with suppress(OSError):  # it may disconnect before it has received all
                for each in lines:
                    connection.send(each)
            return connection.receive()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def agent_python() -> str:
    """One interpreter is enough: the same code checks lies on all."""
    import sys

    return sys.executable


@pytest.fixture(scope="module")
def liar(make_hosts: MakeHost) -> Iterator[Liar]:
    cluster = Cluster(make_hosts)
    cluster.up()
    eventually(cluster.running, 60, "the start")
    made = Liar(cluster)
    yield made
    made.thaw()
    for host in cluster.hosts.values():
        for log in host.root.glob("runs/*/*/agent.log"):
            assert "Traceback" not in log.read_text()


def step_of(liar: Liar, task: str) -> int:
    return int(liar.cluster.entry(task)["step"] or 0)


def others(liar: Liar) -> Any:
    """The state that no lie of host c may change: the intents, attempts and processes of the other hosts' tasks."""
    view = liar.cluster.view()
    entries = {task: liar.cluster.entry(task) for task in ("ps:0", "chief:0")}
    reported = {
        task: [entry[name] for name in ("state", "attempt", "generation", "pid")] for task, entry in entries.items()
    }
    return reported, {task: view["intents"][task] for task in reported}, view["condition"]["type"]


def files_of(liar: Liar) -> set[str]:
    directory = Path(liar.cluster.hosts["b"].root)
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if ".new" not in path.name}


@pytest.fixture
def silent(liar: Liar) -> Liar:
    """Its genuine agent is stopped, so that only the liar is connected to the coordinator."""
    liar.freeze()
    return liar


@pytest.mark.parametrize("what", LIES)
def test_a_lie_ends_one_connection_and_reaches_nothing_else(silent: Liar, what: str) -> None:
    before, files = others(silent), files_of(silent)
    answer = silent.tell(*LIES[what](silent.hello()))
    assert b'"refused"' in answer or answer == b""  # unless the connection ends in the middle of a line
    eventually(lambda: not silent.is_heard(), what="the end of the connection")
    assert others(silent) == before
    assert files_of(silent) <= files
    assert silent.cluster.hosts["b"].supervisor(silent.cluster.specs["b"]) == silent.coordinator


def test_a_flood_of_events_fills_no_disk_and_blocks_no_agent(silent: Liar) -> None:
    connection = silent.connect()
    hello = silent.hello()
    connection.send(line({**hello, "events": 10**6}))
    history = silent.cluster.file("history.jsonl")
    flood, end, first = (
        event(why=said("x" * 4000)),
        time.monotonic() + 5.0,
        len((silent.directory / "events.jsonl").read_text().splitlines()),
    )
    with suppress(OSError):
        while time.monotonic() < end:
            connection.send(events(first, *[flood] * 100))
            first += 100
    connection.close()
    assert history.stat().st_size < 1.2 * BURST_BYTES
    reported = [
        reason_of(one) for one in silent.cluster.story() if "more events than the event history takes" in reason_of(one)
    ]
    assert reported
    assert reported[0].startswith("c sends more")


def test_after_all_lies_the_other_host_trains_and_the_genuine_agent_connects(liar: Liar) -> None:
    liar.thaw()
    eventually(liar.is_heard, what="the genuine agent to be back")
    steps = {task: step_of(liar, task) for task in PLACES}
    eventually(lambda: all(step_of(liar, task) > step for task, step in steps.items()), what="all to train on")


def test_a_query_is_answered_and_replaces_no_connection(liar: Liar) -> None:
    liar.thaw()
    eventually(liar.is_heard, what="the genuine agent to be there")
    before = len(liar.cluster.story())
    answer = liar.tell(*[line({"type": "query"})] * 3)
    assert answer.count(b'"stance"') == 3
    assert liar.is_heard()
    assert not [one for one in liar.cluster.story()[before:] if one["kind"] == "contact"]


@pytest.mark.parametrize("what", ["intents of a foreign task, later", "a history of null", "no JSON"])
def test_lying_agent_is_disconnected_and_the_genuine_one_reconnects(liar: Liar, what: str) -> None:
    liar.thaw()
    eventually(liar.is_heard, what="the genuine agent to be there")
    before = others(liar)
    liar.tell(*LIES[what](liar.hello()))
    eventually(liar.is_heard, what="the genuine agent to be back")
    assert others(liar) == before


def test_invalid_messages_are_reported_with_the_name_of_the_host(liar: Liar) -> None:
    liar.tell(*LIES["intents of a foreign task"](liar.hello()))
    reported = [reason_of(one) for one in liar.cluster.story() if one["kind"] == "contact" and one["host"] == "c"]
    assert any(text.startswith("c sent an invalid message and was disconnected: ") for text in reported)
    assert sum("sent an invalid message" in text for text in reported) <= 10


def test_run_can_be_stopped_after_all_lies(liar: Liar) -> None:
    liar.cluster.stop("a", "b", "c")
    eventually(liar.cluster.all_ended, 60, "every agent to be gone")
    assert liar.cluster.view()["condition"]["type"] == "Stopped"


@pytest.fixture(scope="module")
def make_hosts(agent_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeHost]:
    made: list[AgentHost] = []

    def make(name: str = "h1", root: Path | None = None) -> AgentHost:
        made.append(AgentHost(tmp_path_factory.mktemp(f"host{len(made)}"), agent_python, name, root))
        return made[-1]

    yield make
    for host in made:
        host.clean_up()
