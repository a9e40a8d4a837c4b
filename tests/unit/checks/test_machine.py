"""Disks, memory, GPUs, limits and clocks: what of it hinders a run, to the byte."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.vitals import FULL_BYTES, Gpu
from dtctl.operations.client.persistent import Greeted
from dtctl.operations.findings import Finding, combine_similar
from dtctl.render.findings import remedies
from dtctl.render.format import size
from dtctl.rooms.check import Answers, CheckContext, Line
from dtctl.rooms.check.machine import (
    FEW_FILES,
    FEW_INODES,
    FEW_THREADS,
    HERE,
    LOW_BYTES,
    OFF_S,
    TOPIC,
    WRONG_S,
    clock_findings,
    clock_text,
    disk_row,
    gpu_findings,
    gpu_text,
)
from tests.unit.checks.contexts import GB, context, disk, hosts_by_signature, judged, machine, sentence
from tests.unit.clusters import cluster, job, ssh_host

MB = 10**6
RIGHT = (-0.01, 0.2)
GPU = {"name": "A100", "driver": "550.54", "busy": None, "used_bytes": 0, "memory_bytes": 80 * GB}


def test_hosts_that_share_a_full_disk_are_reported_once() -> None:
    facts = {host: machine(disks=[disk(free=0)]) for host in "abd"}
    found = judged(TOPIC, context(), facts)
    assert hosts_by_signature(found) == {"disk_full_before": ("a", "b", "d")}
    assert sentence(found[0]).startswith("a disk of a,b,d is full: 0 B of 500 GB left at /saved")


def test_disks_that_differ_only_in_their_free_space_are_one_finding() -> None:
    hosts = [f"h{number}" for number in range(44)]
    facts = {host: machine(disks=[disk(free=FULL_BYTES + number * MB)]) for number, host in enumerate(hosts)}
    every = judged(TOPIC, context(cluster(job("worker", hosts, [2222] * 44))), facts)
    assert len(every) == 44
    (one,) = combine_similar(every)
    assert one.seen.hosts == tuple(hosts)
    first, last = size(FULL_BYTES), size(FULL_BYTES + 43 * MB)
    assert sentence(one).startswith(f"a disk of h[0-43] is nearly full: {first} to {last} of 500 GB left at /saved")
    assert combine_similar(every[:3]) == every[:3], "a few are shown one by one"


def test_only_what_is_on_a_full_disk_is_advised_to_be_removed() -> None:
    own, other = disk("/home/me/.dtctl", free=0), disk("/saved", free=0)
    advised = {
        one.seen.fields["where"]: [line.partition("    ")[0] for line in remedies(one)]
        for one in judged(TOPIC, context(), {"a": machine(disks=[own, other])})
    }
    prune = "dtctl checkpoints prune --keep 2"
    assert advised == {
        "/home/me/.dtctl": ["dtctl gc", "dtctl exec @a -- df -h /home/me/.dtctl"],
        "/saved": [prune, "dtctl exec @a -- df -h /saved"],
    }
    (one,) = judged(TOPIC, context(), {"a": machine(disks=[own])})  # /saved is on the same disk
    assert [line.partition("    ")[0] for line in remedies(one)][:2] == ["dtctl gc", prune]
    value = context(cluster(dirs={"output": "~/saved"}))
    disks = [disk("/home/me/.dtctl"), disk("/home/me/saved", free=0)]
    (one,) = judged(TOPIC, value, {"a": machine(disks=disks)})
    assert prune in [line.partition("    ")[0] for line in remedies(one)]


def test_a_file_system_that_does_not_answer_is_a_problem() -> None:
    found = judged(TOPIC, context(), {"a": machine(silent=["/saved"]), "b": machine(silent=["/saved"])})
    assert hosts_by_signature(found) == {"disk_silent": ("a", "b")}


def with_gpus(count: int, tasks: int = 2) -> Any:
    jobs = [job("worker", ["a"] * tasks, list(range(2222, 2222 + tasks)))]
    return context(cluster(*jobs, hosts=[ssh_host("a", gpus=count)]))


def gpus(*used: int, users: Iterable[Any] = ()) -> list[dict[str, Any]]:
    """`users`: of the last one."""
    found: list[dict[str, Any]] = [
        {**GPU, "index": index, "used_bytes": bytes_ * GB} for index, bytes_ in enumerate(used)
    ]
    found[-1]["users"] = [*users]
    return found


OURS = {"pid": 8, "name": "python", "user": "me", "used_bytes": 40 * GB, "run": "demo-1", "task": "worker:1"}


def taken(index: int, of: str = "other", run: str = "other-1") -> dict[str, Any]:
    return {"gpu": index, "cluster": of, "run": run, "task": "worker:3"}


@pytest.mark.parametrize(
    ("has", "signature"),
    [
        ({"gpus": gpus(0, 0)}, None),
        ({"gpus": gpus(0)}, "gpus_missing"),
        ({"gpus": [*gpus(0), {"index": 1, "lost": True}]}, "gpus_missing"),
        ({"problem": "silent"}, "gpus_silent"),
        ({"problem": "error"}, "gpus_silent"),
        ({"problem": "no_driver"}, "gpus_unseen"),
        ({"gpus": gpus(0, 40)}, "gpus_in_use"),
        ({"gpus": gpus(0, 0), "gpus_taken": [taken(1)]}, "gpus_taken"),
        ({"gpus": gpus(0, 0), "gpus_taken": [taken(2)]}, None),
        ({"gpus": gpus(0, 40, users=[OURS]), "gpus_taken": [taken(1, "digits", "demo-1")]}, None),
    ],
)
def test_the_gpus_of_the_plan_have_to_be_there_and_free(has: dict[str, Any], signature: str | None) -> None:
    found = judged(TOPIC, with_gpus(2), {"a": machine(**has)})
    assert [one.signature.name for one in found] == ([signature] if signature else [])


def test_the_user_of_a_gpu_is_named() -> None:
    user = {"pid": 7, "name": "python", "user": "ada", "used_bytes": 2 * GB}
    (found,) = judged(TOPIC, with_gpus(2), {"a": machine(gpus=gpus(0, 2, users=[user]))})
    assert sentence(found) == (
        "GPU 1 of a is in use already by python of ada (pid 7, 2.0 GB): 2.0 GB of its 80.0 GB are used"
    )


def test_run_that_uses_a_gpu_is_named_with_its_tasks() -> None:
    facts = {"a": machine(gpus=gpus(0, 0), gpus_taken=[taken(0), taken(1)])}
    (found,) = judged(TOPIC, with_gpus(2), facts)
    assert sentence(found) == "GPU 0-1 of a is in use: it is assigned to worker:3 of your run other-1"
    assert remedies(found)[0] == "dtctl stop --cluster other    stops that run"


def test_tasks_that_see_the_gpus_of_another_run_are_named() -> None:
    facts = {"a": machine(gpus_taken=[taken(0), taken(1)])}
    undeclared = context(cluster(job("worker", ["a"], [2222])))
    (found,) = judged(TOPIC, undeclared, facts)
    assert sentence(found) == (
        "worker:0 may use GPU 0-1 of a, which are assigned to worker:3 of your run other-1: the file declares no GPUs"
        " there"
    )
    own = {"a": machine(gpus_taken=[taken(0, "digits", "digits-1")])}
    assert judged(TOPIC, undeclared, own) == []


def test_limits_that_are_low_are_reported() -> None:
    low = {"open_files": 256, "processes": 1024, "kills_at_logout": True}
    facts = {"a": machine(rights=low), "b": machine(rights={}), "c": machine(rights={**low, "lingers": True})}
    found = hosts_by_signature(judged(TOPIC, context(), facts))
    assert found == {"few_files": ("a", "c"), "few_processes": ("a", "c"), "killed_at_logout": ("a",)}


@pytest.mark.parametrize(
    ("ahead", "signature", "expected"),
    [
        ((299.9, 300.4), "clock_wrong", "the clock of d is 5m ahead of that of"),
        ((-300.4, -299.9), "clock_wrong", "the clock of d is 5m behind that of"),
        ((20.0, 21.0), "clock_off", "the clock of d is 20s ahead of that of"),
        ((-1.0, 30.0), None, ""),
        ((3.0, 4.0), None, ""),
    ],
)
def test_a_clock_is_wrong_by_what_is_certain(ahead: tuple[float, float], signature: str | None, expected: str) -> None:
    found = list(clock_findings({**dict.fromkeys("abc", RIGHT), "d": ahead}))
    assert [one.signature.name for one in found] == ([signature] if signature else [])
    assert all(one.seen.hosts == ("d",) and sentence(one).startswith(expected) for one in found)


def test_of_two_halves_that_differ_one_is_off_from_the_other() -> None:
    (found,) = clock_findings({"a": (300.0, 300.1), "b": (300.0, 300.1), "c": RIGHT})
    assert (found.seen.hosts, found.seen.fields["others"]) == (("a", "b"), ("c",))
    assert found.seen.fields["here"] == "this machine"


def test_in_passing_nothing_is_started_on_the_hosts() -> None:
    asked = TOPIC.questions(context(brief=True), Answers())["a"]
    assert (asked["gpus"], asked["rights"], asked["cluster"]) == (False, False, None)
    assert asked["places"] == ["/saved"]


def test_in_passing_gpus_are_read_where_the_file_declares_gpus() -> None:
    value = dataclasses.replace(with_gpus(2), brief=True)
    assert TOPIC.questions(value, Answers())["a"]["gpus"]
    assert set(hosts_by_signature(judged(TOPIC, value, {"a": machine(problem="no_driver")}))) == {"gpus_unseen"}


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((-0.1, 0.1), "right"),
        ((0.9, 2.0), "right"),
        ((1.0, 2.0), "1 s ahead"),
        ((-9.0, -1.0), "1 s behind"),
        ((299.6, 400.0), "300 s ahead"),
    ],
)
def test_a_clock_is_reported_against_this_machines(interval: tuple[float, float], expected: str) -> None:
    assert clock_text(interval) == expected


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


def test_a_single_host_with_another_clock_differs_from_this_machine() -> None:
    assert found(a=(8.0, 8.0)) == [("clock_off", ("a",), 8.0, "ahead of", (HERE,))]
    assert found(a=(OFF_S - 0.1, 9.0)) == []


def test_a_clock_that_is_slightly_off_is_no_reference() -> None:
    findings = found(a=(0, 0), b=(0, 0), c=(0, 0), d=(OFF_S, OFF_S), e=(90.0, 90.0))
    assert [one[-1] for one in findings] == [("a", "b", "c", HERE)] * 2


def test_this_machine_is_reported_as_such_whichever_way_it_is_off() -> None:
    assert found(a=(90.0, 90.0), b=(90.0, 90.0)) == [("clock_wrong_here", (), 90.0, "behind", ("a", "b"))]
    assert found(a=(-8.0, -8.0), b=(-8.0, -8.0)) == [("clock_wrong_here", (), 8.0, "ahead of", ("a", "b"))]


LARGE, SMALL = 1 << 50, 100 << 20


@pytest.mark.parametrize(
    ("left", "name"),
    [
        (disk(free=FULL_BYTES - 1, size=LARGE), "disk_full_before"),
        (disk(free=FULL_BYTES, size=LARGE), "disk_low"),
        (disk(free=(SMALL // 100) - 1, size=SMALL), "disk_full_before"),
        (disk(free=SMALL // 100, size=SMALL), "disk_low"),
        (disk(free=LOW_BYTES - 1, size=LARGE), "disk_low"),
        (disk(free=LOW_BYTES, size=LARGE), None),
        (disk(free=SMALL // 20 - 1, size=SMALL), "disk_low"),
        (disk(free=SMALL // 20, size=SMALL), None),
        (disk(files=FEW_INODES - 1), "inodes_gone"),
        (disk(files=FEW_INODES), None),
        (disk(files=None), None),
    ],
)
def test_a_disk_is_full_or_low_below_a_size_and_a_share(left: Any, name: str | None) -> None:
    assert disk_row(left) == name


@pytest.mark.parametrize(
    ("took", "available", "taking", "name"),
    [
        (16 * GB, 16, 0, None),
        (16 * GB + 1, 16, 0, "memory_short"),
        (8 * GB, 8, 0, None),
        (8 * GB + 1, 8, 0, "memory_taken"),
        (9 * GB, 8, GB, None),
        (9 * GB + 1, 8, GB, "memory_taken"),
    ],
)
def test_memory_is_short_when_the_tasks_took_more_than_there_is_or_is_free(
    took: int, available: int, taking: int, name: str | None
) -> None:
    value = context(cluster(job("worker", ["a", "a"], [2222, 2223])))
    earlier = {"worker:0": took - GB, "worker:1": GB, "ps:7": 99 * GB}
    facts = {"a": machine(available=available, took=earlier, taking_bytes=taking)}
    found = judged(TOPIC, value, facts)
    assert [one.signature.name for one in found] == ([name] if name else [])
    fields = {"took_bytes": took, "memory_bytes": 16 * GB, "available_bytes": available * GB}
    assert all(one.seen.fields == fields for one in found)


@pytest.mark.parametrize(
    ("rights", "name"),
    [
        ({"cpu_s": 3600}, "cpu_time_limited"),
        ({"file_bytes": 1 << 30}, "file_size_limited"),
        ({"open_files": FEW_FILES}, None),
        ({"open_files": FEW_FILES - 1}, "few_files"),
        ({"processes": FEW_THREADS}, None),
        ({"processes": FEW_THREADS - 1}, "few_processes"),
    ],
)
def test_limits_are_few_below_a_number(rights: dict[str, int], name: str | None) -> None:
    assert list(hosts_by_signature(judged(TOPIC, context(), {"a": machine(rights=rights)}))) == ([name] if name else [])


def lines(heard: Answers[Any]) -> Mapping[str, Mapping[str, object]]:
    return {one.what: one.values for one in TOPIC.lines(context(), heard) if isinstance(one, Line)}


def test_each_figure_of_a_machine_is_reported_by_host() -> None:
    full = machine(
        available=3,
        took={"worker:0": 1, "worker:1": 2},
        disks=[disk(free=9), disk("/b", free=5), disk("/proc", free=0, size=0)],
        rights={"selinux": "enforcing"},
    )
    greeted = {"a": Greeted({"system": "Debian 12"}, 0.1), "b": Greeted({}, 0.1)}
    assert lines(Answers([{"a": full, "b": machine()}], clocks={"a": (90.0, 90.1)}, greeted=greeted)) == {
        "system": {"a": "Debian 12", "b": ""},
        "processors": {"a": 8, "b": 8},
        "memory_bytes": {"a": 16 * GB, "b": 16 * GB},
        "free memory_bytes": {"a": 3 * GB, "b": 8 * GB},
        "tasks took_bytes": {"a": 3, "b": None},
        "GPUs": {"a": "", "b": ""},
        "free disk_bytes": {"a": 5, "b": None},
        "clock": {"a": "90 s ahead"},
        "SELinux": {"a": "enforcing"},
    }


def gpu(index: int, used: int = 0, name: str = "A100", driver: str = "550.54") -> dict[str, Any]:
    return {"index": index, "name": name, "driver": driver, "busy": None, "used_bytes": used, "memory_bytes": 80 * GB}


def planned(tasks: int, have: int, **settings: Any) -> CheckContext:
    jobs = [job("worker", ["a"] * tasks, list(range(tasks)), **settings), job("ps", ["a"], [99])]
    return context(cluster(*jobs, hosts=[ssh_host("a", gpus=have)]))


def found_of(value: CheckContext, **fields: Any) -> list[tuple[str, tuple[str, ...], Mapping[str, object]]]:
    facts = {"a": machine(**fields)}
    return [
        (one.signature.name, tuple(map(str, one.seen.tasks)), one.seen.fields) for one in gpu_findings(value, facts)
    ]


def test_missing_gpus_are_reported_with_their_tasks() -> None:
    missing = {"wanted": "1, 2, 3", "have": 1}
    assert found_of(planned(2, 4), gpus=[gpu(0)]) == [("gpus_missing", ("worker:0", "worker:1"), missing)]
    assert found_of(planned(2, 4), gpus=[gpu(0), gpu(1)]) == [
        ("gpus_missing", ("worker:1",), {"wanted": "2, 3", "have": 2})
    ]


def test_tasks_that_would_use_all_gpus_are_reported_without_ps() -> None:
    for settings in ({}, {"gpus_per_task": 1}):
        shared = found_of(planned(2, 0, **settings), gpus=[gpu(0), gpu(1)])
        assert shared == [("gpus_shared", ("worker:0", "worker:1"), {"have": 2})]
    assert found_of(planned(1, 0), gpus=[gpu(0), gpu(1)]) == []
    assert found_of(planned(2, 0), gpus=[]) == []


def test_a_gpu_is_in_use_above_a_tenth_of_its_memory_and_only_where_it_is_given() -> None:
    assert found_of(planned(1, 1), gpus=[gpu(0, 8 * GB), gpu(1, 70 * GB)]) == []
    user = {"pid": 7, "name": "python", "user": "ada", "used_bytes": None}
    users = [user, {**user, "pid": 8, "user": ""}, {**user, "pid": 9}, {**user, "pid": 10}]
    assert found_of(planned(1, 1), gpus=[gpu(0, 8 * GB + 1)])[0][2]["users"] == ""
    ((name, _, fields),) = found_of(planned(1, 1), gpus=[{**gpu(0, 8 * GB + 1), "users": users}])
    assert name == "gpus_in_use"
    assert fields == {
        "gpu": 0,
        "users": "python of ada (pid 7), python (pid 8), python of ada (pid 9)",
        "used_bytes": 8 * GB + 1,
        "memory_bytes": 80 * GB,
    }


def test_gpus_are_reported_in_short_by_their_kind() -> None:
    gpus = [made(Gpu, **gpu(0)), made(Gpu, **gpu(1)), made(Gpu, **gpu(2, name="T4", driver="535.1"))]
    assert gpu_text(gpus) == "2 x A100, driver 550.54; 1 x T4, driver 535.1"
    assert gpu_text([]) == ""


def test_drivers_that_differ_are_reported_with_those_that_fewer_hosts_have() -> None:
    other = gpu(0, driver="535.1")
    facts = {"a": machine(gpus=[gpu(0), gpu(1)]), "b": machine(gpus=[gpu(0)]), "c": machine(gpus=[other])}
    (one,) = gpu_findings(context(), facts)
    versions = (("535.1", ("c",)), ("550.54", ("a", "b")))
    assert (one.signature.name, one.seen.hosts, one.seen.fields) == ("drivers_differ", ("c",), {"versions": versions})
    assert list(gpu_findings(context(), {"a": facts["a"], "b": facts["b"]})) == []
