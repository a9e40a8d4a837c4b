"""Who else than the hosts reaches the ports of tasks."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator

import pytest

from dtctl.errors import PreflightError
from dtctl.operations.checks import checking
from dtctl.operations.checks.dialling import Dialled, Door, dial
from dtctl.operations.checks.network.exposure import doors
from dtctl.operations.checks.network.tasks import TOPIC
from dtctl.operations.checks.topic import Heard, fails
from dtctl.operations.client.conversation import silent
from dtctl.operations.history.record import record_of
from tests.unit.checks.network.rounds import listening
from tests.unit.checks.network.test_tasks import asked, played
from tests.unit.checks.scenes import judged, scene, sentence, told
from tests.unit.clusters import cluster, job
from tests.unit.fakes import FakeTransport

NONCE = "ab" * 16


def opened(host: str, address: str = "10.0.0.1", seen_from: str = "10.0.0.99") -> Dialled:
    return Dialled(Door(host, "ps:0", host, 2222), address, seen_from)


def test_a_port_that_answers_this_machine_is_told_and_is_no_reason_to_fail() -> None:
    value = scene()
    (finding,) = judged(TOPIC, value, *played(value), dialled=[opened("a"), opened("b")], tried_doors=4)
    assert (finding.signature.name, finding.seen.hosts, fails(finding)) == ("exposed", ("a", "b"), False)
    assert "answered this machine (10.0.0.99), which is none of the cluster's hosts. Whoever" in sentence(finding)
    (finding,) = judged(TOPIC, value, *played(value), dialled=[opened("a", "34.1.2.3")])
    assert "at 34.1.2.3, an address of the internet" in sentence(finding)


def test_from_one_of_the_hosts_nothing_can_be_told() -> None:
    value = scene()
    assert judged(TOPIC, value, *played(value), dialled=[opened("b", seen_from="10.0.0.1")]) == []


def test_an_address_of_the_internet_that_was_not_tried_is_told() -> None:
    value = scene()
    rounds = played(value)
    rounds[0]["b"]["interfaces"].append({"name": "eth1", "address": "34.1.2.3", "link": None})
    assert told(judged(TOPIC, value, *rounds)) == {"public_address": ("b",)}
    tried = dataclasses.replace(value, reached_at={"b": "34.1.2.3"})
    assert judged(TOPIC, tried, *rounds) == []


def test_this_machine_connects_to_no_address_that_a_host_tells() -> None:
    value = dataclasses.replace(scene(), reached_at={"a": "a.example"})
    first = listening(asked(value))
    first["a"]["interfaces"].append({"name": "eth1", "address": "192.0.2.1", "link": None})
    first["a"]["resolved"][0]["addresses"].append("192.0.2.2")
    first["a"]["bound"].append({"whose": "worker:0", "port": 22, "state": "bound", "holder": "", "sockets": []})
    found = doors(value, Heard([first]))
    assert {(door.name, door.port) for door in found} == {(name, 2222) for name in ("a", "a.example", "b", "c", "d")}


def test_the_coordinators_port_is_nobodys_door_and_hosts_of_this_machine_have_none() -> None:
    value = scene()
    assert all(door.whose != "coordinator" for door in doors(value, Heard([listening(asked(value))])))
    assert doors(value, Heard([])) == ()
    brief = dataclasses.replace(value, brief=True)
    assert doors(brief, Heard([listening(asked(brief))])) == ()


def test_of_many_hosts_one_port_each_is_tried() -> None:
    names = [f"h{number}" for number in range(200)]
    value = scene(cluster(job("worker", names * 2, [2222] * 200 + [2223] * 200)))
    found = doors(value, Heard([listening(asked(value))]))
    assert len(found) == 200
    assert {door.host for door in found} == set(names)


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """Answers as the agent of gpu-1 does, and keeps what it heard."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    one = server.accept()[0]
                except OSError:
                    return
                with one:
                    heard.append(one.recv(100))
                    if heard[-1] == f"{NONCE} ask\n".encode():
                        one.sendall(b"dtctl check gpu-1\n" + b"." * 16_384)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_only_the_right_host_counts_as_reached(listener: tuple[int, list[bytes]]) -> None:
    port, heard = listener
    right, wrong = Door("gpu-1", "ps:0", "127.0.0.1", port), Door("gpu-2", "ps:1", "127.0.0.1", port)
    live = Door("gpu-3", "ps:2", "127.0.0.1", port, live=True)
    found = dial([right, wrong, live, Door("gpu-4", "ps:3", "127.0.0.1", 1), Door("x", "y", "no.invalid", 1)], NONCE)
    assert [(one.door, one.address, one.seen_from) for one in found] == [
        (right, "127.0.0.1", "127.0.0.1"),
        (live, "127.0.0.1", "127.0.0.1"),
    ]
    assert sorted(heard) == [b"", *[f"{NONCE} ask\n".encode()] * 2]  # a trainer is told nothing


def test_require_private_refuses_what_is_open_and_passes_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    value = scene()
    record = record_of(value.plan)
    answers = {host: iter(facts) for host, facts in by_host(played(value)).items()}

    def agent(session: object, said: object) -> list[object]:
        host = session.host.name  # type: ignore[attr-defined]
        whole = {"software": None, "machine": None, "storage": None, "ssh": None, "network": next(answers[host])}
        return [{"type": "result", "time": 1.0, "facts": whole}]

    def open_doors(found: tuple[Dialled, ...]) -> None:
        monkeypatch.setattr(checking, "dial", lambda doors, nonce: found)

    open_doors((opened("a"), opened("b")))
    with pytest.raises(PreflightError) as raised:
        checking.require_private(value, record, FakeTransport(agent), silent)  # type: ignore[arg-type]
    assert "strangers reach the ports of tasks on a,b" in raised.value.summary
    assert "--print-firewall" in raised.value.hint
    answers = {host: iter(facts) for host, facts in by_host(played(value)).items()}
    open_doors(())
    checking.require_private(value, record, FakeTransport(agent), silent)  # type: ignore[arg-type]


def by_host(rounds: list[dict[str, object]]) -> dict[str, list[object]]:
    return {host: [facts[host] for facts in rounds] for host in rounds[0]}
