"""The network's part of `check`, by real agents that listen and connect on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from dtctl.agent.host.ports import holding
from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost, Conversation, Fields, task
from tests.waiting import eventually

NONCE = "ab" * 16


def ask(talk: Conversation, host: AgentHost, nonce: str = NONCE, **question: Any) -> Fields:
    network = {"nonce": nonce, "cluster": "c", "host": host.name, **question}
    facts: Fields = talk.ask("check", **host.about({"ask": {"network": network}}))["facts"]["network"]
    return facts


def listen(talk: Conversation, host: AgentHost, *ports: int) -> list[int]:
    slots = [{"whose": f"worker:{number}", "port": port} for number, port in enumerate(ports)]
    return [slot["port"] for slot in ask(talk, host, listen=slots)["bound"] if slot["state"] == "bound"]


def peer(port: int, host: str = "h1", **fields: Any) -> Fields:
    return {"whose": "worker:0", "host": host, "address": f"127.0.0.1:{port}", **fields}


def reach(talk: Conversation, host: AgentHost, *peers: Fields, **question: Any) -> list[str]:
    answer = ask(talk, host, reach=list(peers), limit_s=1.0, **question)
    return [one["problem"] for one in answer["reached"]]


def test_an_agent_listens_and_another_one_reaches_it_by_its_name(make_host: MakeHost) -> None:
    first, second = make_host("h1"), make_host("h2")
    with first.open() as one, second.open() as other:
        (port,) = listen(one, first, 0)
        found = ask(other, second, reach=[peer(port), peer(port, "h3"), peer(1), peer(1) | {"address": "no.invalid:1"}])
        assert [each["problem"] for each in found["reached"]] == ["", "other_host", "refused", "unresolved"]
        assert [each["place"] for each in found["reached"]] == ["127.0.0.1", "127.0.0.1", "127.0.0.1", ""]
        assert found["reached"][1]["by"] == "h1"
        measured = ask(other, second, measure=[peer(port)], measure_s=0.05)["measured"][0]
        assert measured["problem"] == ""
        assert measured["latency_s"] > 0
        assert min(measured["sent"], measured["received"]) > 1e6


def test_the_ports_are_free_again_when_the_conversation_is_over(host: AgentHost) -> None:
    with host.open() as talk:
        (port,) = listen(talk, host, 0)
        assert reach(talk, host, peer(port)) == [""]
        assert ask(talk, host, measure=[peer(port)], measure_s=0.01)["measured"][0]["problem"] == ""
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    with socket.socket() as trainer:
        trainer.bind(("0.0.0.0", port))  # without SO_REUSEADDR
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_client_without_the_nonce_receives_nothing(host: AgentHost) -> None:
    with host.open() as talk:
        (port,) = listen(talk, host, 0)
        for command in (
            b"",
            b"x" * 100,
            b"cd" * 16 + b" ask\n",
            b"GET / HTTP/1.0\r\n\r\n",
            b"\n",
            NONCE.encode() + b" run\n",
        ):
            # A host whose answer is not accepted is disconnected, maybe before its last message.
            with socket.create_connection(("127.0.0.1", port)) as stranger, suppress(OSError):
                stranger.sendall(command)
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(100) == b""
        assert reach(talk, host, peer(port)) == [""]


def test_many_strangers_block_no_host(host: AgentHost) -> None:
    with host.open() as talk:
        (port,) = listen(talk, host, 0)
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(500)]
        try:
            assert reach(talk, host, peer(port)) == [""]
        finally:
            for stranger in crowd:
                stranger.close()


@pytest.mark.parametrize(
    ("banner", "problem"),
    [
        ("", "silent"),
        ("SSH-2.0-x\\r\\n", "stranger"),
        ("dtctl check h1\\n", "cut_off"),
        ("dtctl check h1\\n" + "." * 99, "cut_off"),
    ],
)
def test_foreign_servers_on_a_task_port_are_distinguished(host: AgentHost, banner: str, problem: str) -> None:
    script = (
        "import socket, sys\n"
        "listener = socket.create_server(('127.0.0.1', 0)); print(listener.getsockname()[1], flush=True)\n"
        "one = listener.accept()[0]; one.sendall(sys.argv[1].encode().decode('unicode_escape').encode())\n"
        "sys.stdin.read()\n"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", script, banner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as stranger,
        host.open() as talk,
    ):
        assert stranger.stdout
        port = int(stranger.stdout.readline())
        assert reach(talk, host, peer(port)) == [problem]
        stranger.communicate()


def test_a_port_that_another_process_has_is_reported_with_who_that_is(host: AgentHost) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taker, host.open() as talk:
        port = taker.getsockname()[1]
        (slot,) = ask(talk, host, listen=[{"whose": "worker:0", "port": port}])["bound"]
        assert slot["state"] == "taken"
        assert "pid " in slot["holder"]


def test_a_command_that_has_a_port_is_shown_shortened(host: AgentHost) -> None:
    script = (
        "import socket, sys; one = socket.create_server(('0.0.0.0', 0)); "
        "print(one.getsockname()[1], flush=True); sys.stdin.read()"
    )
    words = [f"/home/train/.dtctl/bundles/{'ab12' * 16}/tree/train.py", *(f"--flag{number}=1" for number in range(99))]
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as taker:
        assert taker.stdout
        port = int(taker.stdout.readline())
        holder = holding(port)[0]
        taker.communicate()
    assert len(holder) < 160
    assert "ab12" * 4 not in holder


def test_a_port_of_another_live_run_of_the_user_is_reported_with_that(host: AgentHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    script = f"import socket, time; one = socket.create_server(('0.0.0.0', {port})); time.sleep(1000)"
    run = host.started(task("worker:0", sys.executable, "-c", script, port=port))
    with host.open() as talk:
        eventually(lambda: holding(port)[0].startswith("pid"))
        (slot,) = ask(talk, host, cluster="another", listen=[{"whose": "worker:0", "port": port}])["bound"]
        assert slot["state"] == "taken"
        assert slot["run"] == run["run"]


def test_a_trainer_of_the_live_run_keeps_its_port_and_is_reached(host: AgentHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    script = f"import socket, time; one = socket.create_server(('127.0.0.1', {port})); time.sleep(1000)"
    host.started(task("worker:0", sys.executable, "-c", script, port=port), task("worker:1", "sleep", "1000", port=1))
    with host.open() as talk:
        slots = [{"whose": "worker:0", "port": port}, {"whose": "worker:1", "port": 1}]
        eventually(
            lambda: [each["state"] for each in ask(talk, host, listen=slots)["bound"]] == ["live", "idle"],
            what="a trainer that listens",
        )
        assert reach(talk, host, peer(port, live=True)) == [""]


def test_names_addresses_and_proxies_are_reported_without_passwords(host: AgentHost) -> None:
    with host.open(http_proxy="http://me:hunter2@proxy:3128", NO_PROXY="lab") as talk:
        answer = ask(talk, host, names=["localhost", "127.0.0.1", "192.0.2.77", "no.invalid"])
    assert {each["name"]: each["own"] for each in answer["resolved"]} == {
        "localhost": True,
        "127.0.0.1": True,
        "192.0.2.77": False,
        "no.invalid": False,
    }
    assert answer["proxies"] == {"NO_PROXY": "lab", "http_proxy": "http://proxy:3128"}
    assert not any(one["address"].startswith("127.") for one in answer["interfaces"])


def test_the_login_shell_is_looked_at_over_ssh_alone(host: AgentHost) -> None:
    def logins(**env: str) -> Fields:
        with host.open(**env) as talk:
            facts: Fields = talk.ask("check", **host.about({"ask": {"ssh": {"start_up": True}}}))["facts"]["ssh"]
            return facts

    assert logins()["start_up_s"] is None
    result = logins(SSH_CONNECTION="10.0.0.1 5 10.0.0.2 22", SSH_CLIENT="10.0.0.1 5 22")
    assert result["start_up_s"] > 0
    assert result["problem"] == ""
    assert result["machine"].endswith(" 22")
