"""Disks, memory, GPUs, limits and clocks: what of it hinders a run."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.operations.checks.machine import HERE, OFF_S, TOPIC, WRONG_S, apart, clock_findings, clock_words
from dtctl.operations.checks.topic import Heard
from dtctl.operations.diagnosis.signature import Finding
from dtctl.render.diagnosis import remedies
from tests.unit.checks.scenes import GB, disk, judged, machine, scene, sentence, told
from tests.unit.clusters import cluster, job, ssh_host

MB = 10**6
RIGHT = (-0.01, 0.2)
GPU = {"name": "A100", "driver": "550.54", "busy": None, "used_bytes": 0, "memory_bytes": 80 * GB}


def test_hosts_with_room_pass() -> None:
    facts = {host: machine(disks=[disk()]) for host in "abcd"}
    assert judged(TOPIC, scene(), facts, clocks=dict.fromkeys("abcd", RIGHT)) == []


def test_hosts_that_share_a_full_disk_are_told_once() -> None:
    facts = {host: machine(disks=[disk(free=0)]) for host in "abd"}
    found = judged(TOPIC, scene(), facts)
    assert told(found) == {"disk_full_before": ("a", "b", "d")}
    assert sentence(found[0]).startswith("a disk of a,b,d is full: 0 B of 500 GB left at /saved")


def test_only_what_is_on_a_full_disk_is_advised_to_be_removed() -> None:
    own, other = disk("/home/me/.dtctl", free=0), disk("/saved", free=0)
    advised = {
        one.seen.fields["where"]: [line.partition("    ")[0] for line in remedies(one)]
        for one in judged(TOPIC, scene(), {"a": machine(disks=[own, other])})
    }
    prune = "dtctl checkpoints prune --keep 2"
    assert advised == {
        "/home/me/.dtctl": ["dtctl gc", "dtctl exec @a -- df -h /home/me/.dtctl"],
        "/saved": [prune, "dtctl exec @a -- df -h /saved"],
    }
    (one,) = judged(TOPIC, scene(), {"a": machine(disks=[own])})  # /saved is on the same disk
    assert [line.partition("    ")[0] for line in remedies(one)][:2] == ["dtctl gc", prune]


def test_a_file_system_that_does_not_answer_is_a_problem() -> None:
    found = judged(TOPIC, scene(), {"a": machine(silent=["/saved"]), "b": machine(silent=["/saved"])})
    assert told(found) == {"disk_silent": ("a", "b")}


def test_what_the_clusters_own_tasks_take_now_is_theirs() -> None:
    value = cluster(job("worker", ["a"], [2222]))
    facts = {"a": machine(available=4, took={"worker:0": 10 * GB}, taking_bytes=9 * GB)}
    assert judged(TOPIC, scene(value), facts) == []


def with_gpus(count: int, tasks: int = 2) -> Any:
    jobs = [job("worker", ["a"] * tasks, list(range(2222, 2222 + tasks)))]
    return scene(cluster(*jobs, hosts=[ssh_host("a", gpus=count)]))


def gpus(*used: int) -> list[dict[str, Any]]:
    return [{**GPU, "index": index, "used_bytes": bytes_ * GB} for index, bytes_ in enumerate(used)]


@pytest.mark.parametrize(
    ("has", "signature"),
    [
        ({"nvidia_smi": True, "gpus": gpus(0, 0)}, None),
        ({"nvidia_smi": True, "gpus": gpus(0)}, "gpus_missing"),
        ({"nvidia_smi": True}, "gpus_silent"),
        ({}, "gpus_unseen"),
        ({"drivers": True}, None),
        ({"nvidia_smi": True, "gpus": gpus(0, 40)}, "gpus_in_use"),
    ],
)
def test_the_gpus_of_the_plan_have_to_be_there_and_free(has: dict[str, Any], signature: str | None) -> None:
    found = judged(TOPIC, with_gpus(2), {"a": machine(**has)})
    assert [one.signature.name for one in found] == ([signature] if signature else [])


def test_who_uses_a_gpu_is_named() -> None:
    user = {"gpu": 1, "pid": 7, "name": "python", "user": "ada"}
    facts = {"a": machine(nvidia_smi=True, gpus=gpus(0, 40), gpu_users=[user])}
    found = judged(TOPIC, with_gpus(2), facts)
    assert sentence(found[0]) == "GPU 1 of a has 40.0 GB of 80.0 GB in use already, by python of ada (pid 7)"


def test_limits_that_are_low_are_told() -> None:
    low = {"open_files": 256, "processes": 1024, "kills_at_logout": True}
    facts = {"a": machine(rights=low), "b": machine(rights={}), "c": machine(rights={**low, "lingers": True})}
    found = told(judged(TOPIC, scene(), facts))
    assert found == {"few_files": ("a", "c"), "few_processes": ("a", "c"), "killed_at_logout": ("a",)}


@pytest.mark.parametrize(
    ("ahead", "signature", "said"),
    [
        ((299.9, 300.4), "clock_wrong", "the clock of d is 5m ahead of that of"),
        ((-300.4, -299.9), "clock_wrong", "the clock of d is 5m behind that of"),
        ((20.0, 21.0), "clock_off", "the clock of d is 20s ahead of that of"),
        ((-1.0, 30.0), None, ""),
        ((3.0, 4.0), None, ""),
    ],
)
def test_a_clock_is_wrong_by_what_is_certain(ahead: tuple[float, float], signature: str | None, said: str) -> None:
    found = list(clock_findings({**dict.fromkeys("abc", RIGHT), "d": ahead}))
    assert [one.signature.name for one in found] == ([signature] if signature else [])
    assert all(one.seen.hosts == ("d",) and sentence(one).startswith(said) for one in found)


def test_of_two_halves_that_differ_one_is_off_from_the_other() -> None:
    (found,) = clock_findings({"a": (300.0, 300.1), "b": (300.0, 300.1), "c": RIGHT})
    assert (found.seen.hosts, found.seen.fields["others"]) == (("a", "b"), ("c",))
    assert found.seen.fields["here"] == "this machine"


def test_a_late_answer_accuses_nobody() -> None:
    """As of hosts that were reached only when a passphrase had been typed."""
    late = dict.fromkeys("abc", (-0.2, 12.0))
    assert list(clock_findings(late)) == []
    (found,) = clock_findings({**late, "d": (299.9, 300.4)})
    assert (found.signature.name, found.seen.hosts) == ("clock_wrong", ("d",))


def test_in_passing_nothing_is_started_on_the_hosts() -> None:
    asked = TOPIC.ask(scene(brief=True), Heard())["a"]
    assert (asked["gpus"], asked["rights"], asked["cluster"]) == (False, False, None)
    assert asked["places"] == ["/saved"]


def test_in_passing_nvidia_smi_is_asked_where_the_file_declares_gpus() -> None:
    value = dataclasses.replace(with_gpus(2), brief=True)
    assert TOPIC.ask(value, Heard())["a"]["gpus"]
    assert set(told(judged(TOPIC, value, {"a": machine()}))) == {"gpus_unseen"}


@pytest.mark.parametrize(
    ("interval", "off"),
    [
        ((2.0, 3.0), 2.0),
        ((-3.0, -2.0), -2.0),
        ((-1.0, 1.0), 0.0),
        ((-1.0, 0.0), 0.0),
        ((0.0, 1.0), 0.0),
        ((5.0, 5.0), 5.0),
    ],
)
def test_a_clock_is_off_by_the_nearest_bound(interval: tuple[float, float], off: float) -> None:
    assert apart(interval, 0.0) == off
    assert apart((interval[0] + 7, interval[1] + 7), 7.0) == off


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((-0.1, 0.1), "right"),
        ((0.9, 2.0), "right"),
        ((1.0, 2.0), "1 s ahead"),
        ((-9.0, -1.0), "1 s behind"),
        ((299.6, 400.0), "300 s ahead"),
    ],
)
def test_a_clock_is_told_against_this_machines(interval: tuple[float, float], words: str) -> None:
    assert clock_words(interval) == words


def found(**intervals: tuple[float, float]) -> list[tuple[object, ...]]:
    return [
        (one.signature.name, one.seen.hosts, one.seen.fields["off_s"], one.seen.fields["way"], others(one))
        for one in clock_findings(intervals)
    ]


def others(one: Finding) -> tuple[str, ...]:
    """With whom its hosts are compared."""
    here = one.seen.fields.get("here")
    return (*one.seen.fields["others"], *([here] if here else []))


@pytest.mark.parametrize(("off_s", "name"), [(OFF_S, "clock_off"), (59.0, "clock_off"), (WRONG_S, "clock_wrong")])
def test_a_clock_is_off_from_five_seconds_on_and_wrong_from_a_minute_on(off_s: float, name: str) -> None:
    others = ("a", "b", HERE)
    assert found(a=(0, 0), b=(0, 0), c=(off_s, off_s)) == [(name, ("c",), off_s, "ahead of", others)]
    assert found(a=(0, 0), b=(0, 0), c=(-off_s, -off_s)) == [(name, ("c",), off_s, "behind", others)]
    assert found(a=(0, 0), b=(0, 0), c=(OFF_S - 0.1, OFF_S)) == []


def test_one_host_is_told_to_differ_from_this_machine() -> None:
    assert found(a=(8.0, 8.0)) == [("clock_off", ("a",), 8.0, "ahead of", (HERE,))]
    assert found(a=(OFF_S - 0.1, 9.0)) == []


def test_of_two_hosts_the_one_that_differs_from_the_other_and_from_here_is_wrong() -> None:
    assert found(a=(0, 0), b=(8.0, 8.0)) == [("clock_off", ("b",), 8.0, "ahead of", ("a", HERE))]


def test_hosts_that_are_off_alike_are_told_together_and_are_no_others_of_anybody() -> None:
    told = found(a=(0, 0), b=(0, 0), c=(0, 0), d=(20.2, 21), e=(20.4, 21), f=(-300.0, -299.6))
    others = ("a", "b", "c", HERE)
    assert told == [
        ("clock_off", ("d", "e"), 20, "ahead of", others),
        ("clock_wrong", ("f",), 300, "behind", others),
    ]


def test_a_clock_that_is_just_off_speaks_for_nobody() -> None:
    told = found(a=(0, 0), b=(0, 0), c=(0, 0), d=(OFF_S, OFF_S), e=(90.0, 90.0))
    assert [one[-1] for one in told] == [("a", "b", "c", HERE)] * 2


def test_this_machine_is_told_as_such_whichever_way_it_is_off() -> None:
    assert found(a=(90.0, 90.0), b=(90.0, 90.0)) == [("clock_wrong_here", (), 90.0, "behind", ("a", "b"))]
    assert found(a=(-8.0, -8.0), b=(-8.0, -8.0)) == [("clock_wrong_here", (), 8.0, "ahead of", ("a", "b"))]
