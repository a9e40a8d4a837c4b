"""Who else than the hosts reaches the ports of tasks."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.network.records import Bound
from dtctl.errors import PreflightError
from dtctl.model import Host, Local
from dtctl.operations.client import silent
from dtctl.operations.findings import fails
from dtctl.operations.run_record import record_of
from dtctl.rooms.check import Answers, CheckContext, Dialled, Door, Statement, checking
from dtctl.rooms.check.network import exposure
from dtctl.rooms.check.network.exposure import MOST_DOORS, dial, doors
from dtctl.rooms.check.network.tasks import TOPIC
from tests.unit.checks.contexts import context, judged, sentence
from tests.unit.checks.network.networks import listening
from tests.unit.checks.network.test_tasks import asked, played
from tests.unit.clusters import cluster, job, ssh_host
from tests.unit.fakes import FakeTransport
from tests.waiting import eventually

NONCE = "ab" * 16


def opened(host: str, address: str = "10.0.0.1", seen_from: str = "10.0.0.99") -> Dialled:
    return Dialled(Door(host, "ps:0", host, 2222), address, seen_from)


def test_a_port_that_answers_this_machine_is_reported_and_is_no_reason_to_fail() -> None:
    value = context()
    (finding,) = judged(TOPIC, value, *played(value), dialled=[opened("a"), opened("b")], tried_doors=4)
    assert (finding.signature.name, finding.seen.hosts, fails(finding)) == ("exposed", ("a", "b"), False)
    assert "answered this machine (10.0.0.99), which is none of the cluster's hosts. Anyone" in sentence(finding)
    (finding,) = judged(TOPIC, value, *played(value), dialled=[opened("a", "34.1.2.3")])
    assert "at 34.1.2.3, a public address" in sentence(finding)


def test_controller_never_connects_to_addresses_reported_by_hosts() -> None:
    value = dataclasses.replace(context(), reached_at={"a": "a.example"})
    first = listening(asked(value))
    first["a"]["interfaces"].append({"name": "eth1", "address": "192.0.2.1", "link": None})
    first["a"]["resolved"][0]["addresses"].append("192.0.2.2")
    first["a"]["bound"].append(made(Bound, whose="worker:0", port=22, state="bound"))
    found = doors(value, Answers([first]))
    assert {(door.name, door.port) for door in found} == {(name, 2222) for name in ("a", "a.example", "b", "c", "d")}


def test_coordinator_ports_and_local_hosts_are_not_probed() -> None:
    value = context()
    assert all(door.whose != "coordinator" for door in doors(value, Answers([listening(asked(value))])))
    assert doors(value, Answers([])) == ()
    brief = dataclasses.replace(value, brief=True)
    assert doors(brief, Answers([listening(asked(brief))])) == ()


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
    eventually(lambda: len(heard) == 3)
    assert sorted(heard) == [b"", *[f"{NONCE} ask\n".encode()] * 2]  # nothing is sent to a trainer


def test_require_private_refuses_what_is_open_and_passes_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    value = context()
    record = record_of(value.plan)
    answers = {host: iter(facts) for host, facts in by_host(played(value)).items()}

    def agent(session: object, request: object) -> list[object]:
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


PUBLIC = "34.1.2.3"


def tried(value: CheckContext, **others: Any) -> list[tuple[str, str, int, bool]]:
    found = doors(value, Answers([listening(asked(value), **others)]))
    return [(door.host, door.name, door.port, door.live) for door in found]


def test_local_and_loopback_addresses_are_not_probed() -> None:
    hosts = [
        ssh_host("a", address="10.0.0.7"),
        ssh_host("b", address="127.0.0.1"),
        ssh_host("c", address="localhost"),
        Host("d", Local(), address="10.0.0.9"),
    ]
    value = context(cluster(job("worker", list("abcd"), [1, 2, 3, 4]), hosts=hosts))
    assert tried(value) == [("a", "10.0.0.7", 1, False)]
    value = dataclasses.replace(value, reached_at={"b": "b.example", "d": "d.example"})
    assert [name for _, name, _, _ in tried(value)] == ["10.0.0.7", "b.example"]


def test_a_door_that_is_logged_in_to_by_its_own_name_is_tried_once() -> None:
    value = dataclasses.replace(context(cluster(job("worker", ["a"], [1]))), reached_at={"a": "a"})
    assert tried(value) == [("a", "a", 1, False)]


def test_as_many_doors_as_there_may_be_are_tried_and_of_more_the_first_of_each_host() -> None:
    half = MOST_DOORS // 2
    names = [f"h{number}" for number in range(half)]
    jobs = [job("worker", names * 2, [1] * half + [2] * half)]
    assert len(tried(context(cluster(*jobs)))) == MOST_DOORS
    more = tried(context(cluster(*jobs, job("ps", ["h0"], [3]))))
    assert [(host, port) for host, _, port, _ in more] == [(name, 1) for name in names]


def doors_opened(host: str, whose: str, port: int, address: str = "10.0.0.1", seen_from: str = "10.0.0.99") -> Dialled:
    return Dialled(Door(host, whose, host, port), address, seen_from)


def heard(value: CheckContext, *found: Dialled, also: dict[str, str] | None = None, doors: int = 4) -> Answers[Any]:
    first = listening(asked(value))
    for host, address in (also or {}).items():
        first[host]["interfaces"].append({"name": "eth1", "address": address, "link": None})
    return Answers([first], dialled=found, tried_doors=doors)


def test_open_ports_are_reported_with_their_tasks() -> None:
    value = context()
    open_ = [doors_opened("b", "ps:1", 9), doors_opened("a", "ps:0", 7, PUBLIC), doors_opened("b", "ps:1", 9)]
    (one,) = exposure.exposure_findings(value, heard(value, *open_))
    assert (one.seen.hosts, tuple(map(str, one.seen.tasks))) == (("b", "a"), ("ps:0", "ps:1"))
    assert one.seen.fields == {"ports": (7, 9), "seen_from": "10.0.0.99", "public": PUBLIC}
    assert exposure.is_exposed(one)
    (one,) = exposure.exposure_findings(value, heard(value, open_[0]))
    assert one.seen.fields["public"] is None


def test_an_address_of_the_internet_is_reported_with_the_ports_that_listen_there() -> None:
    value = context()
    (one,) = exposure.exposure_findings(value, heard(value, also={"c": PUBLIC}))
    assert (one.signature.name, one.seen.hosts) == ("public_address", ("c",))
    assert one.seen.fields == {"address": PUBLIC, "ports": (2222,)}, "the coordinator's port asks who is there"
    assert exposure.is_exposed(one)


def test_public_address_is_reported_once_unless_tried_or_without_a_listener() -> None:
    value = context()
    (one,) = exposure.exposure_findings(value, heard(value, doors_opened("c", "worker:0", 2222), also={"c": PUBLIC}))
    assert one.signature.name == "exposed"
    named = context(cluster(hosts=[*(ssh_host(name) for name in "abd"), ssh_host("c", address=PUBLIC)]))
    assert list(exposure.exposure_findings(named, heard(named, also={"c": PUBLIC}))) == []
    silent = heard(value, also={"c": PUBLIC})
    silent.first["c"]["bound"].clear()
    assert list(exposure.exposure_findings(value, silent)) == []


@pytest.mark.parametrize(
    ("found", "kind", "count"),
    [
        ((), "doors_closed", 0),
        (
            (doors_opened("a", "ps:0", 1), doors_opened("a", "ps:0", 1, "10.0.0.7"), doors_opened("b", "ps:1", 1)),
            "doors_open",
            2,
        ),
        ((doors_opened("a", "ps:0", 1, seen_from="10.0.0.2"),), "doors_inside", 0),
    ],
)
def test_the_number_of_exposed_ports_is_reported(found: tuple[Dialled, ...], kind: str, count: int) -> None:
    value = context()
    assert list(exposure.exposure_lines(value, heard(value, *found))) == [Statement(kind, {"open": count, "doors": 4})]
    assert list(exposure.exposure_lines(value, heard(value, *found, doors=0))) == []
