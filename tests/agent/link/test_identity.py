"""Who an agent or the coordinator is: what its certificate says, and nothing else, over real sockets."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent.link.forgery import FORGERIES, signed
from tests.agent.link.intruder import PATIENCE_S
from tests.agent.link.links import Links, hello, mark_of, state, write_credentials

LIE = "its hello names 'h2', but its certificate names another host"


def test_a_hello_as_another_host_is_refused_without_effect_on_it(links: Links) -> None:
    true = links.agent("h2")
    for _ in range(3):
        liar = links.keyholder("h1")
        liar.say(hello("h2", events=9))
        assert json.loads(liar.receive()) == {"type": "refused", "reason": LIE}
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
    intruder.knock(links.credentials("h1"))
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
    """One that knows the run's knock, and has got the port after the coordinator had ended."""
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
    liar.knock(past)
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
        liar.knock(past)
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


def test_one_host_holds_two_connections_at_most(links: Links) -> None:
    seated = links.agent("h1")
    begin = links.hub.measure()["descriptors"]
    for _ in range(40):
        links.keyholder("h1")
    links.agent("h2")
    assert links.hub.measure()["descriptors"] - begin < 10
    assert seated.said("gone") == []
