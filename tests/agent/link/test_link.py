"""The link between agents and the coordinator, over real sockets: those who belong to the run, and those who do not."""

from __future__ import annotations

import json
import resource
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dtctl.agent.link.tls import NONCE_BYTES
from dtctl.agent.records.messages import PROTOCOL
from tests.agent.link.links import Links, Message, client_hello, hello, mark_of, orders, state

"""One of each kind; tests/unit/agent/link/test_hub.py has the others."""


def test_both_ends_hear_each_other(links: Links) -> None:
    agent = links.agent("h1")
    links.hub.ask("send", "h1", {"type": "welcome", "v": PROTOCOL, "events_from": 7})
    assert agent.expect_type("welcome")["events_from"] == 7
    for number in range(5):
        agent.ask("send", state(f"é{number}", size=400_000))
        links.hub.ask("send", "h1", orders(f"é{number}", size=400_000))
    for number in range(5):
        assert mark_of(links.hub.expect_type("state", "h1")) == f"é{number}"
        assert mark_of(agent.expect_type("orders")) == f"é{number}"
    agent.close()
    links.forget(agent)
    assert links.hub.expect_type("gone", "h1")["reason"] == "the other end has closed the connection"


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
def test_the_coordinator_is_reached_by_its_name_and_by_either_kind_of_address(links: Links, host: str) -> None:
    if host == "[::1]" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    links.dialer(address=host).expect_type("connected")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_a_coordinator_that_is_known_by_a_loopback_address_listens_there_only(
    tmp_path: Path, agent_python: str, address: str
) -> None:
    if address == "[::1]:0" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    own = address.rpartition(":")[0]
    links = Links(tmp_path, agent_python, address)
    try:
        links.dialer(address=own).expect_type("connected")
        for other in {"127.0.0.1", "127.0.0.2", "::1"} - {own.strip("[]")}:
            with pytest.raises(OSError, match=r"."), socket.create_connection((other, links.port), 5):
                pass
    finally:
        links.close()


def _has_ipv6() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def test_an_agent_finds_the_coordinator_that_comes_back(links: Links) -> None:
    agent = links.agent("h1")
    links.hub.kill()
    links.forget(links.hub)
    agent.expect_type("gone")
    links.hub = links.end("hub", f"coordinator:{links.port}")
    agent.expect_type("connected")
    agent.ask("send", hello("h1"))
    links.hub.expect_type("hello", "h1")


def test_the_second_connection_of_a_host_replaces_the_first(links: Links) -> None:
    first = links.agent("h1")
    second = links.dialer()
    second.expect_type("connected")
    second.ask("send", hello("h1", events=5))
    assert links.hub.expect_type("gone", "h1")["reason"] == "it has connected again"
    assert links.hub.expect_type("hello", "h1")["events"] == 5
    first.expect_type("gone")
    links.hub.ask("send", "h1", {"type": "welcome", "v": PROTOCOL, "events_from": 5})
    second.expect_type("welcome")
    assert first.said("welcome") == []


def test_refused_agent_gets_the_reason_while_it_still_sends(links: Links) -> None:
    links.hub.ask("refuse", "h9", "it is not there, so that nothing happens")
    agent = links.agent("h9")
    for _ in range(50):
        agent.ask("send", state(size=10_000))
    links.hub.ask("refuse", "h9", "h9 is not in the roster")
    assert agent.expect_type("refused")["text"] == "h9 is not in the roster"
    assert agent.expect_type("gone")["reason"] == "the coordinator refuses this agent: h9 is not in the roster"
    assert links.hub.said("gone", "h9") == []


def test_the_last_orders_arrive_though_the_coordinator_goes(links: Links) -> None:
    agent = links.agent("h1")
    links.hub.ask("send", "h1", orders(size=10_000, over=True))
    links.hub.close()
    links.forget(links.hub)
    assert agent.expect_type("orders")["over"] is True


def test_a_message_that_is_too_long_ends_the_connection_and_not_the_process(links: Links) -> None:
    agent = links.agent("h1")
    agent.ask("send", state(size=1 << 20))
    assert "too long to be sent" in agent.expect_type("gone")["reason"]
    agent.expect_type("connected")


def test_an_agent_that_does_not_read_is_given_up(links: Links) -> None:
    slow_reader = links.keyholder()
    slow_reader.say(hello("h1"))
    links.hub.expect_type("hello", "h1")
    for _ in range(40):
        links.hub.ask("send", "h1", orders(size=900_000))
        with suppress(OSError):  # given up already
            slow_reader.say({"type": "beat"})
    assert links.hub.expect_type("gone", "h1")["reason"] == "it does not read what it is sent"


@pytest.mark.parametrize(
    "message", [state(), hello("h1", v=99), {**hello("h1"), "host": None}], ids=["none", "another version", "no host"]
)
def test_connections_without_a_valid_hello_are_ignored(links: Links, message: Message) -> None:
    breaker = links.keyholder()
    breaker.say(message)
    breaker.say(hello("h1"))
    assert json.loads(breaker.receive())["type"] == "refused"
    links.agent("h2")
    assert links.hub.said("hello", "h1") == links.hub.said("gone", "h1") == []


RUNNING = {"want": "run", "generation": 2, "version": 5}


def test_an_agent_of_a_past_run_is_informed_that_it_is_over(links: Links) -> None:
    late = links.dialer(links.past("h1"))
    late.expect_type("connected")
    late.ask("send", hello("h1", run="r0", events=7, intents={"ps:0": RUNNING}))
    assert links.hub.expect_type("superseded", "h1") == {"type": "superseded", "run": "r0"}
    assert late.expect_type("welcome")["events_from"] == 7
    answer = late.expect_type("orders")
    assert answer["over"]
    assert answer["intents"]["ps:0"]["want"] == "stop"
    assert answer["intents"]["ps:0"]["version"] == 6
    late.expect_type("gone")
    links.agent("h1")
    assert len(links.hub.said("hello", "h1")) == 1


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2,
    "half a proof": b"x" * 16,
    "a line": json.dumps(hello("h1")).encode() + b"\n",
    "zeros": bytes(100_000),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_stranger_is_not_answered(links: Links, garbage: bytes) -> None:
    intruder = links.intruder()
    with suppress(OSError):
        intruder.send(garbage)
    assert intruder.receive()[NONCE_BYTES:] == b""
    links.agent("h1")


def test_tls_is_not_answered_without_a_token_proof(links: Links) -> None:
    intruder = links.intruder()
    intruder.send(client_hello())
    assert len(intruder.receive()) == NONCE_BYTES


def test_a_token_proof_that_was_seen_on_the_network_is_of_no_use(links: Links) -> None:
    seen = links.intruder().prove_token(links.credentials("h1"))
    intruder = links.intruder()
    intruder.send(seen + client_hello())
    assert len(intruder.receive()) == NONCE_BYTES


@pytest.mark.parametrize(
    "garbage", [b"x" * 1000, b"\x16\x03\x01\x40\x00" + bytes(10)], ids=["text", "an endless record"]
)
def test_a_token_proof_without_tls_receives_an_alert_at_most(links: Links, garbage: bytes) -> None:
    intruder = links.intruder()
    intruder.prove_token(links.directory)
    with suppress(OSError):
        intruder.send(garbage)
    answer = intruder.receive()
    assert answer == b"" or (answer[0] == 0x15 and len(answer) == 7)
    links.agent("h1")


def test_silent_strangers_are_disconnected(links: Links) -> None:
    silent = [links.intruder() for _ in range(100)]
    token_holder = links.intruder()
    token_holder.prove_token(links.directory)
    assert {len(intruder.receive()) for intruder in silent} == {NONCE_BYTES}
    assert token_holder.receive() == b""


def test_a_peer_without_a_hello_is_disconnected(links: Links) -> None:
    assert links.keyholder().receive() == b""


def test_the_hub_waits_out_a_lack_of_descriptors_without_spinning(links: Links) -> None:
    before = links.agent("h1")
    links.hub.ask("fill", 64)
    links.hub.expect(lambda _: True, "filled")
    waiting = links.dialer()
    begin = links.hub.steps()
    time.sleep(3)
    assert links.hub.steps() - begin < 100  # thousands, if it span
    before.ask("send", state("there"))
    links.hub.expect_type("state", "h1")
    assert waiting.said("connected") == []
    links.hub.ask("free", 30)
    waiting.expect_type("connected")


def test_hundreds_of_hosts_do_not_need_low_descriptors(links: Links) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1200:
        pytest.skip("this machine does not let a process have 1200 descriptors")
    links.hub.ask("fill", 1200)
    links.hub.expect(lambda _: True, "filled")
    links.hub.ask("free", 100)
    agent = links.agent("h1")
    links.hub.ask("send", "h1", {"type": "welcome", "v": PROTOCOL, "events_from": 0})
    agent.expect_type("welcome")
