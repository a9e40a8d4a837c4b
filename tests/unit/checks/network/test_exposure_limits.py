"""Which doors this machine tries, one by one, and what is told of those that open."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.model import Host, Local
from dtctl.operations.checks.dialling import Dialled, Door
from dtctl.operations.checks.network import exposure
from dtctl.operations.checks.network.exposure import MOST_DOORS, doors
from dtctl.operations.checks.topic import Heard, Scene, Statement
from tests.unit.checks.network.rounds import listening
from tests.unit.checks.network.test_tasks import asked
from tests.unit.checks.scenes import scene
from tests.unit.clusters import cluster, job, ssh_host

PUBLIC = "34.1.2.3"


def tried(value: Scene, **others: Any) -> list[tuple[str, str, int, bool]]:
    found = doors(value, Heard([listening(asked(value), **others)]))
    return [(door.host, door.name, door.port, door.live) for door in found]


def test_a_local_host_and_a_loopback_address_are_no_doors() -> None:
    hosts = [
        ssh_host("a", address="10.0.0.7"),
        ssh_host("b", address="127.0.0.1"),
        ssh_host("c", address="localhost"),
        Host("d", Local(), address="10.0.0.9"),
    ]
    value = scene(cluster(job("worker", list("abcd"), [1, 2, 3, 4]), hosts=hosts))
    assert tried(value) == [("a", "10.0.0.7", 1, False)]
    value = dataclasses.replace(value, reached_at={"b": "b.example", "d": "d.example"})
    assert [name for _, name, _, _ in tried(value)] == ["10.0.0.7", "b.example"]


def test_a_door_that_is_logged_in_to_by_its_own_name_is_tried_once() -> None:
    value = dataclasses.replace(scene(cluster(job("worker", ["a"], [1]))), reached_at={"a": "a"})
    assert tried(value) == [("a", "a", 1, False)]


def test_a_port_of_the_live_run_is_known_as_that() -> None:
    value = scene(cluster(job("worker", ["a"], [1])))
    assert tried(value, bound=[{"whose": "worker:0", "port": 1, "state": "live"}]) == [("a", "a", 1, True)]


def test_as_many_doors_as_there_may_be_are_tried_and_of_more_the_first_of_each_host() -> None:
    half = MOST_DOORS // 2
    names = [f"h{number}" for number in range(half)]
    jobs = [job("worker", names * 2, [1] * half + [2] * half)]
    assert len(tried(scene(cluster(*jobs)))) == MOST_DOORS
    more = tried(scene(cluster(*jobs, job("ps", ["h0"], [3]))))
    assert [(host, port) for host, _, port, _ in more] == [(name, 1) for name in names]


def test_of_more_hosts_than_doors_the_first_are_tried() -> None:
    names = [f"h{number}" for number in range(MOST_DOORS + 2)]
    found = tried(scene(cluster(job("worker", names, [1] * len(names)))))
    assert [host for host, *_ in found] == names[:MOST_DOORS]


def opened(host: str, whose: str, port: int, address: str = "10.0.0.1", seen_from: str = "10.0.0.99") -> Dialled:
    return Dialled(Door(host, whose, host, port), address, seen_from)


def heard(value: Scene, *found: Dialled, also: dict[str, str] | None = None, doors: int = 4) -> Heard[Any]:
    first = listening(asked(value))
    for host, address in (also or {}).items():
        first[host]["interfaces"].append({"name": "eth1", "address": address, "link": None})
    return Heard([first], dialled=found, tried_doors=doors)


def test_what_is_open_is_told_with_its_ports_and_tasks() -> None:
    value = scene()
    open_ = [opened("b", "ps:1", 9), opened("a", "ps:0", 7, PUBLIC), opened("b", "ps:1", 9)]
    (one,) = exposure.judge(value, heard(value, *open_))
    assert (one.seen.hosts, tuple(map(str, one.seen.tasks))) == (("b", "a"), ("ps:0", "ps:1"))
    assert one.seen.fields == {"ports": (7, 9), "seen_from": "10.0.0.99", "public": PUBLIC}
    assert exposure.is_exposed(one)
    (one,) = exposure.judge(value, heard(value, open_[0]))
    assert one.seen.fields["public"] is None


def test_an_address_of_the_internet_is_told_with_the_ports_that_listen_there() -> None:
    value = scene()
    (one,) = exposure.judge(value, heard(value, also={"c": PUBLIC}))
    assert (one.signature.name, one.seen.hosts) == ("public_address", ("c",))
    assert one.seen.fields == {"address": PUBLIC, "ports": (2222,)}, "the coordinator's port asks who is there"
    assert exposure.is_exposed(one)


def test_an_address_of_the_internet_is_told_once_and_not_where_it_was_tried_or_nothing_listens() -> None:
    value = scene()
    (one,) = exposure.judge(value, heard(value, opened("c", "worker:0", 2222), also={"c": PUBLIC}))
    assert one.signature.name == "exposed"
    named = scene(cluster(hosts=[*(ssh_host(name) for name in "abd"), ssh_host("c", address=PUBLIC)]))
    assert list(exposure.judge(named, heard(named, also={"c": PUBLIC}))) == []
    silent = heard(value, also={"c": PUBLIC})
    silent.first["c"]["bound"].clear()
    assert list(exposure.judge(value, silent)) == []


@pytest.mark.parametrize(
    ("found", "kind", "count"),
    [
        ((), "doors_closed", 0),
        ((opened("a", "ps:0", 1), opened("a", "ps:0", 1, "10.0.0.7"), opened("b", "ps:1", 1)), "doors_open", 2),
        ((opened("a", "ps:0", 1, seen_from="10.0.0.2"),), "doors_inside", 0),
    ],
)
def test_how_many_doors_were_open_is_told(found: tuple[Dialled, ...], kind: str, count: int) -> None:
    value = scene()
    assert list(exposure.describe(value, heard(value, *found))) == [Statement(kind, {"open": count, "doors": 4})]
    assert list(exposure.describe(value, heard(value, *found, doors=0))) == []
