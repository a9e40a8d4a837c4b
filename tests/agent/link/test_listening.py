"""What keeps the coordinator from its port, and what does not."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dtctl.agent.coordinate.contacts import superseded_identities
from dtctl.agent.coordinate.following import Following
from dtctl.agent.coordinate.leading import LISTEN_AGAIN_S, Leading
from dtctl.agent.host import processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Process
from dtctl.agent.records.spec import Spec
from dtctl.agent.records.starting import Credentials
from dtctl.agent.run import intents
from dtctl.agent.run.runfiles import EventLog, RunFiles
from dtctl.operations.credentials import Authority
from tests.agent.link.intruder import PATIENCE_S
from tests.agent.link.links import issued
from tests.hosts.ports import free_port
from tests.unit.agent.coordinate.world import spec_of


def make_run(
    root: Path, run: str, port: int, created: float = 1000.0, host: str = "c", authority: Authority | None = None
) -> tuple[RunFiles, Spec]:
    """As `up` makes it; c coordinates."""
    authority = authority or Authority(run)
    places = {"chief:0": "c", "worker:0": "h1"}
    own = [
        {"id": task, "argv": ["true"], "env": {}, "secrets": [], "code": False}
        for task, place in places.items()
        if place == host
    ]
    where = {"host": "c", "address": f"127.0.0.1:{port}", "port": port}
    spec = spec_of("async-ps", places, run=run, host=host, created=created, coordinator=where, tasks=own)
    files = RunFiles(str(root / "runs" / run / host))
    credentials = dataclasses.asdict(authority.issue(host, coordinates=host == "c"))
    session = made(Process, **processes.myself())
    files.begin(files.stage(spec, {}, {"PATH": os.environ["PATH"]}, session, made(Credentials, **credentials)), spec)
    return files, spec


def step(part: Leading | Following, files: RunFiles, now: float) -> None:
    """As the supervisor of that host has it done."""
    followed = intents.IntentFollower(files)
    followed.read()
    state = files.state()
    state["agent"] = {"pid": 1, "start_time": 1, "boot_id": "b", "since": 0.0}
    part.step(now, time.time(), state, followed)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def squatter(port: int) -> Iterator[socket.socket]:
    """Another user of the host, who was quicker."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield listener


def test_a_port_that_cannot_be_had_is_reported_once_and_so_is_its_end(
    tmp_path: Path, port: int, squatter: socket.socket
) -> None:
    files, spec = make_run(tmp_path, "r1", port)
    leading = Leading(files, spec, 100.0)
    view = leading.coordinator.view
    for number in range(5):
        step(leading, files, 100.0 + number)
    problem = f"agents cannot reach the coordinator: port {port}: address already in use"
    assert view.data["warnings"] == [problem]
    assert contacts(files) == [("c", problem)]

    leading.close()  # it is told of as long as it is true, whoever coordinates
    leading = Leading(files, spec, 200.0)
    step(leading, files, 200.0)
    assert leading.coordinator.view.data["warnings"] == [problem]

    squatter.close()
    step(leading, files, 200.1)
    assert leading.coordinator.view.data["warnings"] == [problem]
    step(leading, files, 200.0 + LISTEN_AGAIN_S)
    assert leading.coordinator.view.data["warnings"] == []
    assert [line for line in contacts(files) if "restarted" not in line[1]] == [
        ("c", problem),
        ("c", "agents can reach the coordinator again"),
    ]
    leading.close()


def contacts(files: RunFiles) -> list[tuple[str, str]]:
    """Who, and what, in the story's lines about contact."""
    story = EventLog(files.path("history.jsonl")).since(0, 1000)
    return [(str(line["host"]), str(line["reason"])) for line in story if line["kind"] == "contact"]


def test_a_damaged_run_keeps_the_coordinator_of_another_from_nothing(tmp_path: Path, port: int) -> None:
    damages: dict[str, Callable[[Path], object]] = {
        "no-knock": lambda at: (at / "link.knock").unlink(),
        "half-a-key": lambda at: (at / "link.key").write_text((at / "link.key").read_text()[:100]),
        "no-authority": lambda at: (at / "link.ca").write_text(""),
        "others-key": lambda at: (at / "link.key").write_bytes((issued(tmp_path / "x", "c") / "link.key").read_bytes()),
        "binary": lambda at: (at / "link.crt").write_bytes(bytes(range(256))),
        "spec-of-a-list": lambda at: (at / "spec.json").write_text("[]"),
        "spec-of-nonsense": lambda at: (at / "spec.json").write_text(
            '{"cluster": "demo", "host": 7, "coordinator": 7, "created": {}}'
        ),
        "deep-spec": lambda at: (at / "spec.json").write_text("[" * 100_000),
    }
    for number, (name, damage) in enumerate(damages.items()):
        old, _ = make_run(tmp_path, name, port, created=10.0 + number)
        damage(Path(old.directory))
    make_run(tmp_path, "whole", port, created=500.0)
    files, spec = make_run(tmp_path, "now", port)
    assert [identity.run for identity in superseded_identities(files, spec)] == ["whole"]
    leading = Leading(files, spec, 100.0)
    step(leading, files, 100.0)
    assert leading.coordinator.view.data["warnings"] == []
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S):
        leading.close()


def test_an_agent_that_lies_again_and_again_is_in_the_history_once(tmp_path: Path, port: int) -> None:
    """Its own supervisor's part, but for the name that it says."""
    authority = Authority("r1")
    files, spec = make_run(tmp_path, "r1", port, authority=authority)
    liar_files, its_spec = make_run(tmp_path, "r1", port, host="h1", authority=authority)
    leading = Leading(files, spec, time.monotonic())
    its_spec["host"] = "h2"
    liar = Following(liar_files, its_spec, time.monotonic())
    end = None
    while end is None or time.monotonic() < end:
        for part, held in ((leading, files), (liar, liar_files)):
            step(part, held, time.monotonic())
        if contacts(files) and end is None:
            end = time.monotonic() + 3.0  # it dials again, and says the same, at least twice
        time.sleep(0.005)
    lie = "its hello names 'h2', but its certificate names another host"
    reason = f"h1 sent an invalid message and was disconnected: {lie}"
    assert contacts(files) == [("h1", reason)]
    liar.close()
    leading.close()
