"""Who an agent or the coordinator is: what its certificate says, and nothing else, over real sockets."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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
from tests.agent.link.forgery import FORGERIES, signed
from tests.agent.link.intruder import PATIENCE_S
from tests.agent.link.links import Links, hello, issued, mark_of, state, write_credentials
from tests.hosts.ports import free_port
from tests.reasons import reason_of, warnings_of
from tests.unit.agent.coordinate.world import spec_of

LIE = "its hello names 'h2', but its certificate names another host"


def test_a_hello_as_another_host_is_refused_without_effect_on_it(links: Links) -> None:
    true = links.agent("h2")
    for _ in range(3):
        liar = links.keyholder("h1")
        liar.say(hello("h2", events=9))
        assert json.loads(liar.receive()) == {"type": "refused", "text": LIE, "reason": LIE}
    true.ask("send", state("there"))
    assert mark_of(links.hub.expect_type("state", "h2")) == "there"
    assert true.said("gone") == links.hub.said("gone", "h2") == links.hub.said("hello", "h1") == []
    assert len(links.hub.said("hello", "h2")) == 1
    assert links.hub.said("invalid", "h1") == [{"type": "invalid", "reason": LIE, "host": "h1"}] * 3


@pytest.mark.parametrize("what", [*FORGERIES, "none"])
def test_a_peer_without_a_certificate_of_the_run_receives_nothing(links: Links, tmp_path: Path, what: str) -> None:
    forged = None
    if what != "none":
        own = links.authority.issue("h1", coordinates=False)
        forged = write_credentials(tmp_path / "forged", FORGERIES[what](links.authority, own))
    intruder = links.intruder()
    intruder.prove_token(links.credentials("h1"))
    with suppress(OSError):
        intruder.start_tls(forged)
        intruder.say(hello("h1"))
    assert intruder.receive() == b""
    links.agent("h2")
    assert links.hub.said("hello", "h1") == []


def test_a_certificate_that_a_test_makes_like_the_authority_does_gets_in(links: Links, tmp_path: Path) -> None:
    """Or the forgeries might be refused for what is the same in all of them."""
    own = links.authority.issue("h1", coordinates=False)
    like = write_credentials(tmp_path / "like", signed(own, "dtctl:r1/h1", by=links.authority))
    links.dialer(like).expect_type("connected")


IMPOSTORS = ["a worker's", "the coordinator's of another run", "that of another host which may coordinate"]


@pytest.mark.parametrize("whose", IMPOSTORS)
def test_an_agent_talks_to_no_coordinator_but_its_own(links: Links, tmp_path: Path, whose: str) -> None:
    """One that knows the run's port token, and has got the port after the coordinator had ended."""
    made = {
        "a worker's": links.authority.issue("c", coordinates=False),
        "the coordinator's of another run": links.past_authority.issue("c", coordinates=True),
        "that of another host which may coordinate": links.authority.issue("h2", coordinates=True),
    }[whose]
    impostor = write_credentials(tmp_path / "impostor", made)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(impostor / "link.crt", impostor / "link.key")
    context.load_verify_locations(links.directory / "link.ca")
    context.verify_mode = ssl.CERT_REQUIRED
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        agent = links.end("dialer", f"127.0.0.1:{listener.getsockname()[1]}", links.credentials("h1"))
        for _ in range(2):  # it tries again
            connection = listener.accept()[0]
            connection.settimeout(PATIENCE_S)
            connection.sendall(bytes(16))
            assert len(connection.recv(32, socket.MSG_WAITALL)) == 32
            with suppress(ssl.SSLError, ConnectionError), context.wrap_socket(connection, server_side=True) as end:
                heard.append(end.recv(1000))
            connection.close()
    agent.steps()
    assert agent.said("connected") == []
    assert b"".join(heard) == b""


@pytest.mark.parametrize(
    "intents",
    [{"ps:0": 7}, {"ps:0": {"want": "run", "version": "x"}}, {"ps:0": None}],
    ids=["a number", "a version that is none", "null"],
)
def test_an_agent_of_a_past_run_ends_its_own_connection_at_most(links: Links, intents: object) -> None:
    before = links.agent("h2")
    liar = links.intruder()
    past = links.past("h1")
    liar.prove_token(past)
    liar.start_tls(past)
    liar.say(hello("h1", run="r0", intents=intents))
    assert json.loads(liar.receive())["type"] == "refused"
    before.ask("send", state("there"))
    links.hub.expect_type("state", "h2")
    assert links.hub.said("gone", "h2") == before.said("gone") == []


def test_an_agent_of_a_past_run_cannot_speak_for_another_host_or_name_another_run(links: Links) -> None:
    past = links.past("h1")
    for message in (hello("h2", run="r0"), hello("h1", run="r7", intents={"ps:0": {"want": "run", "version": 1}})):
        liar = links.intruder()
        liar.prove_token(past)
        liar.start_tls(past)
        liar.say(message)
        liar.receive()
    links.agent("h3")
    assert links.hub.said("superseded", "h2") == []
    assert links.hub.said("superseded", "h1") == [{"type": "superseded", "run": "r0", "host": "h1"}]


def test_a_mistake_of_the_coordinators_own_ends_one_connection_only(links: Links) -> None:
    """As a message may bring it about that passes every check."""
    before, unlucky = links.agent("h2"), links.agent("h1")
    links.hub.ask("stumble", "h1")
    unlucky.ask("send", state("it happens"))
    assert links.hub.expect_type("gone", "h1")["reason"] == "its message is invalid"
    unlucky.expect_type("gone")
    before.ask("send", state("there"))
    links.hub.expect_type("state", "h2")
    unlucky.expect_type("connected")


def test_connections_of_one_host_are_limited_to_two(links: Links) -> None:
    connected = links.agent("h1")
    begin = links.hub.measure()["descriptors"]
    for _ in range(40):
        links.keyholder("h1")
    links.agent("h2")
    assert links.hub.measure()["descriptors"] - begin < 10
    assert connected.said("gone") == []


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
    assert warnings_of(view.data) == [problem]
    assert contacts(files) == [("c", problem)]

    leading.close()  # it is reported as long as it is true, whoever coordinates
    leading = Leading(files, spec, 200.0)
    step(leading, files, 200.0)
    assert warnings_of(leading.coordinator.view.data) == [problem]

    squatter.close()
    step(leading, files, 200.1)
    assert warnings_of(leading.coordinator.view.data) == [problem]
    step(leading, files, 200.0 + LISTEN_AGAIN_S)
    assert warnings_of(leading.coordinator.view.data) == []
    assert [line for line in contacts(files) if "restarted" not in line[1]] == [
        ("c", problem),
        ("c", "agents can reach the coordinator again"),
    ]
    leading.close()


def contacts(files: RunFiles) -> list[tuple[str, str]]:
    """Who, and what, in the story's lines about contact."""
    story = EventLog(files.path("history.jsonl")).since(0, 1000)
    return [(str(line["host"]), reason_of(line)) for line in story if line["kind"] == "contact"]


def test_a_damaged_run_keeps_the_coordinator_of_another_from_nothing(tmp_path: Path, port: int) -> None:
    damages: dict[str, Callable[[Path], object]] = {
        "no-token": lambda at: (at / "link.port_token").unlink(),
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
    assert warnings_of(leading.coordinator.view.data) == []
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
