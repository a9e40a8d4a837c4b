"""Who is slow, behind, silent or has not begun, and what is short on hosts: each signature asked by itself, to
the second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dtctl.agent.records.vitals import FULL_BYTES, Machine
from dtctl.model import TaskId, TaskState
from dtctl.operations import pace
from dtctl.operations.findings import Facts, Match
from dtctl.operations.snapshot import TaskStatus
from dtctl.rooms.diagnose import hosts
from tests.unit.diagnosing import NOW, decided, facts, host, machine, of_record, running, vitals, who
from tests.unit.tasks import changed, changed_attempt, past_attempt


def workers(*rates: float | None, **fields: Any) -> list[TaskStatus]:
    return [running(f"worker:{n}", f"gpu-{n}", rate=rate, step=100, **fields) for n, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("rates", "slow"),
    [
        ((10.0, 10.0, 5.9), ["worker:2"]),
        ((10.0, 10.0, 6.0), []),
        ((10.0, 0.1), []),
        ((10.0, None, 1.0), []),
        ((10.0, 10.0, 1.0, None), ["worker:2"]),
        ((10.0, 10.0, 1.0, 2.0, 10.0), ["worker:2", "worker:3"]),
        ((10.0, 10.0, 0.0), ["worker:2"]),
    ],
)
def test_stragglers_are_far_slower_than_the_middle_of_a_job(rates: tuple[float | None, ...], slow: list[str]) -> None:
    assert who(pace.stragglers(facts(*workers(*rates)))) == slow


def test_only_running_tasks_of_the_same_job_are_peers() -> None:
    tasks = workers(10.0, 10.0, 1.0)
    assert who(pace.stragglers(facts(*tasks[:2], replace(tasks[2], state=TaskState.BACKOFF)))) == []
    assert who(pace.stragglers(facts(*tasks[:2], running("chief:0", rate=1.0)))) == []
    assert who(pace.stragglers(facts(replace(tasks[0], state=TaskState.FAILED), *tasks[1:]))) == []


def test_a_straggler_is_reported_with_its_rate_and_what_is_short_on_its_host() -> None:
    busy = [{"pid": 9, "name": "stress", "user": "eve", "cpu": 3.94}, {"pid": 8, "name": "x", "user": "y", "cpu": 1.0}]
    hosts_facts = {"gpu-2": host(machine=machine(load=9.126, waiting={"cpu": 0.4}), busy=busy)}
    (seen,) = pace.stragglers(facts(*workers(10.0, 12.0, 1.0), hosts=hosts_facts))
    assert seen == Match(
        (TaskId("worker", 2),),
        ("gpu-2",),
        {
            "rate": 1.0,
            "usual": 10.0,
            "cpu_share": 0.4,
            "load": "9.13",
            "cpus": 4,
            "available_bytes": 8 << 30,
            "memory_bytes": 16 << 30,
            "taker": "stress of eve (pid 9)",
            "taker_cpus": "3.9",
        },
    )
    (seen,) = pace.stragglers(facts(*workers(10.0, 12.0, 1.0)))
    assert seen.fields == {"rate": 1.0, "usual": 10.0}


def late(*ages: float | None) -> list[TaskStatus]:
    return [
        running(f"worker:{n}", f"gpu-{n}", step=9, step_time=None if age is None else NOW - age)
        for n, age in enumerate(ages)
    ]


@pytest.mark.parametrize(
    ("ages", "behind"),
    [
        ((1.0, 30.0), ["worker:1"]),
        ((1.0, 29.9), []),
        ((8.0, 40.0), ["worker:1"]),
        ((8.0, 39.9), []),
        ((0.1, 30.0), ["worker:1"]),
        ((40.0,), []),
        ((40.0, None), []),
        ((1.0, None, 30.0), ["worker:2"]),
        ((30.0, 30.0), []),
        ((1.0, 8.0, 9.0, 40.0), ["worker:3"]),
    ],
)
def test_who_is_behind_has_been_silent_for_long_and_its_peers_have_not(
    ages: tuple[float | None, ...], behind: list[str]
) -> None:
    assert who(hosts.behind(facts(*late(*ages)))) == behind


def test_a_task_that_is_behind_is_reported_with_what_is_short_on_its_host() -> None:
    (seen,) = hosts.behind(facts(*late(1.0, 40.0), machines={"gpu-0": machine(), "gpu-1": BUSY}))
    assert (seen.fields["silent_s"], seen.fields["others_s"], seen.fields["cpu_share"]) == (40.0, 1.0, 0.8)


def test_tasks_that_do_not_run_are_ignored_for_behind() -> None:
    first, second = late(1.0, 40.0)
    assert who(hosts.behind(facts(first, replace(second, state=TaskState.BACKOFF)))) == []
    assert who(hosts.behind(facts(replace(first, state=TaskState.SUCCEEDED), second))) == []
    assert who(hosts.behind(facts(running("chief:0", step_time=999.0), second))) == []


@pytest.mark.parametrize(
    ("ages", "target", "tells"),
    [
        ((30.0, 50.0), None, True),
        ((29.9, 50.0), None, False),
        ((30.0, None), None, True),
        ((None, None), None, False),
        ((30.0,), 10, True),
        ((30.0,), 9, False),
    ],
)
def test_run_is_silent_half_a_minute_after_its_last_step(
    ages: tuple[float | None, ...], target: int | None, tells: bool
) -> None:
    found = of_record(facts(*late(*ages)), target_step=target)
    assert bool(list(hosts.silent(found))) is tells
    assert not list(hosts.silent(decided(found)))


@pytest.mark.parametrize(("age_s", "tells"), [(179.0, False), (180.0, True)])
def test_run_that_reports_steps_seldom_is_silent_after_three_of_its_gaps(age_s: float, tells: bool) -> None:
    tasks = [changed(one, step_gap_s=60.0) for one in late(age_s, age_s)]
    assert bool(list(hosts.silent(facts(*tasks)))) is tells


def test_a_run_that_has_reached_its_last_step_is_silent_for_good_reason() -> None:
    first, second = late(40.0, 40.0)
    assert not list(hosts.silent(of_record(facts(first, changed(second, step=5)), target_step=9)))
    assert list(hosts.silent(of_record(facts(changed(first, step=None)), target_step=1)))


def test_a_silent_run_is_reported_with_who_uses_no_processor() -> None:
    first, second, third = late(40.0, 50.0, None)
    tasks = [changed(first, cpu=0.02), changed(second, cpu=0.019), third]
    (seen,) = hosts.silent(facts(*tasks, replace(third, id=TaskId("worker", 3), state=TaskState.FAILED)))
    assert seen == Match((first.id, second.id), (), {"silent_s": 40.0, "idle": (second.id, third.id)})
    (seen,) = hosts.silent(facts(changed(first, cpu=0.5)))
    assert seen.fields == {"silent_s": 40.0}
    stopped = replace(first, state=TaskState.STOPPED)
    assert list(hosts.silent(facts(stopped, changed(second, step_time=NOW)))) == []


@pytest.mark.parametrize(
    ("usage", "short"),
    [
        (
            {"waiting": {"cpu": 0.4, "memory": 0.1, "io": 0.4}},
            {"cpu_share": 0.4, "memory_share": 0.1, "disk_share": 0.4},
        ),
        ({"waiting": {"cpu": 0.39, "memory": 0.09, "io": 0.39}}, {}),
        ({"waiting": {"cpu": 0.0, "memory": 0.0, "io": 0.0}, "stolen": 0.0, "resent": 0.0}, {}),
        ({"stolen": 0.15, "resent": 0.05}, {"stolen_share": 0.15, "resent_share": 0.05}),
        ({"stolen": 0.14, "resent": 0.04}, {}),
        ({"memory_bytes": 1000, "available_bytes": 49}, {"memory_low": 0.049}),
        ({"memory_bytes": 1000, "available_bytes": 50}, {}),
        ({"memory_bytes": 0, "available_bytes": 0}, {}),
    ],
)
def test_what_is_short_on_a_host_is_reported_from_a_limit_on(usage: dict[str, Any], short: dict[str, float]) -> None:
    assert pace.pressure(machine(**usage)) == short


BUSY: Machine = machine(waiting={"cpu": 0.8})


@pytest.mark.parametrize(
    ("busy", "of", "slow"), [(1, 2, ["gpu-0"]), (2, 4, ["gpu-0", "gpu-1"]), (2, 3, []), (1, 1, []), (3, 4, [])]
)
def test_a_host_is_slow_where_what_is_short_is_not_on_most_others(busy: int, of: int, slow: list[str]) -> None:
    machines = {f"gpu-{n}": BUSY if n < busy else machine() for n in range(of)}
    found = facts(*workers(*[1.0] * of), machines=machines)
    assert [seen.hosts[0] for seen in hosts.slow(found)] == slow


def test_memory_that_is_low_is_reported_for_every_host() -> None:
    machines = {f"gpu-{n}": machine(memory_bytes=1000, available_bytes=1) for n in range(2)}
    assert [seen.hosts for seen in hosts.slow(facts(*workers(1.0, 1.0), machines=machines))] == [("gpu-0",), ("gpu-1",)]


def test_hosts_that_are_short_of_different_things_are_not_alike() -> None:
    machines = {"gpu-0": BUSY, "gpu-1": machine(stolen=0.5)}
    assert len(list(hosts.slow(facts(*workers(1.0, 1.0), machines=machines)))) == 2


def test_only_hosts_of_the_run_on_which_somebody_works_count() -> None:
    first, second = workers(1.0, 1.0)
    machines = {"gpu-0": BUSY, "gpu-1": machine(), "gpu-9": BUSY}
    (seen,) = hosts.slow(facts(first, second, machines=machines))
    assert (seen.tasks, seen.hosts, seen.fields["cpu_share"]) == ((first.id,), ("gpu-0",), 0.8)
    beside = replace(first, id=TaskId("worker", 2), state=TaskState.BACKOFF)
    assert list(hosts.slow(facts(first, second, beside, machines=machines)))
    for state, matches in ((TaskState.STARTING, 1), (TaskState.BACKOFF, 0), (TaskState.SUCCEEDED, 0)):
        assert len(list(hosts.slow(facts(replace(first, state=state), second, machines=machines)))) == matches


@pytest.mark.parametrize(
    ("free", "size", "files", "full"),
    [
        (FULL_BYTES - 1, 1 << 50, 9, True),
        (FULL_BYTES, 1 << 50, 9, False),
        (9, 1000, 9, True),
        (10, 1000, 9, False),
        (500, 1000, 0, True),
        (500, 1000, None, False),
    ],
)
def test_a_disk_is_full_below_a_share_and_a_size_or_without_room_for_another_file(
    free: int, size: int, files: int | None, full: bool
) -> None:
    disks = [{"path": "/d", "free_bytes": free, "size_bytes": size, "free_files": files}]
    matches = list(hosts.full_disks(facts(running("worker:0"), hosts={"gpu-a": host(disks=disks)})))
    fields = {"where": "/d", "free_bytes": free, "size_bytes": size}
    assert matches == ([Match((), ("gpu-a",), fields)] if full else [])
    sampled = {"gpu-a": machine(full=disks[0]), "gpu-b": machine()}
    assert list(hosts.full_disks(facts(running("worker:0"), machines=sampled))) == matches, "by its agent's own sample"


def test_versions_differ_by_what_fewer_hosts_have() -> None:
    def packaged(*versions: str, package: str = "keras") -> list[Match]:
        hosts_facts = {
            f"gpu-{n}": host({f"worker:{n}": vitals(packages={package: version})}) for n, version in enumerate(versions)
        }
        return list(hosts.versions_differ(facts(*workers(*[1.0] * len(versions)), hosts=hosts_facts)))

    assert packaged("3.1", "3.1") == []
    assert packaged("3.1", "3.2", package="numpy") == []
    (seen,) = packaged("3.10", "3.9", "3.9")
    versions = (("3.10", ("gpu-0",)), ("3.9", ("gpu-1", "gpu-2")))
    assert seen == Match((), ("gpu-0",), {"package": "keras", "versions": versions, "version": "3.9"})
    (seen,) = packaged("3.10", "3.9")
    assert (seen.hosts, seen.fields["version"]) == (("gpu-1",), "3.10"), "of two that as many have the newer is usual"
    (seen,) = packaged("2", "1", "3", "3", "2", "3")
    assert (seen.hosts, seen.fields["version"]) == (("gpu-1",), "3")


GOING = {"continues": "continues"}
"""Of a run in which a task lives."""


@pytest.mark.parametrize(("loss", "bad"), [("nan", True), ("-inf", True), ("+inf", True), ("1", False), (None, False)])
def test_a_loss_that_is_nan_is_reported_while_its_task_lives(loss: str | None, bad: bool) -> None:
    task = running("worker:0", loss=loss, step=None)
    expected = [Match((task.id,), ("gpu-a",), {"loss": loss, **GOING})] if bad else []
    assert list(hosts.diverged(facts(task))) == expected
    assert list(hosts.diverged(facts(replace(task, state=TaskState.FAILED)))) == []


def test_a_loss_in_event_files_is_reported_once_and_after_those_of_tasks() -> None:
    files = {name: host(diverged=[{"path": "/o", "tag": "loss", "step": 7}] * 2) for name in ("gpu-a", "gpu-b")}
    known = {"loss": "not finite", "tag": "loss", "path": "/o", "step": 7}
    assert list(hosts.diverged(facts(running("worker:0"), hosts=files))) == [Match((), ("gpu-a",), {**known, **GOING})]
    over = replace(running("worker:0"), state=TaskState.FAILED)
    assert list(hosts.diverged(facts(over, hosts=files))) == [Match((), ("gpu-a",), known)]
    (seen,) = hosts.diverged(facts(running("worker:0", loss="nan", step=5), hosts=files))
    assert seen.fields == {"loss": "nan", "step": 5, **GOING}


@pytest.mark.parametrize(
    ("shares", "held"),
    [
        ((0.3, None), ["worker:0"]),
        ((0.29, None), []),
        ((0.5, 0.5), []),
        ((0.5, 0.5, None, 0.0), ["worker:0", "worker:1"]),
        ((0.5,), []),
    ],
)
def test_a_limit_is_reported_unless_it_holds_back_most(shares: tuple[float | None, ...], held: list[str]) -> None:
    tasks = [running(f"worker:{n}", f"gpu-{n}", throttled=share) for n, share in enumerate(shares)]
    assert who(hosts.throttled(facts(*tasks))) == held
    assert who(hosts.throttled(facts(*(replace(task, state=TaskState.STARTING) for task in tasks)))) == []


def test_a_limit_is_reported_with_what_its_task_uses() -> None:
    (seen,) = hosts.throttled(facts(running("worker:0", throttled=0.9, cpu=0.123), running("worker:1", throttled=0.1)))
    assert seen.fields == {"throttled_share": 0.9, "used": "0.12", "pid": 7}
    (seen,) = hosts.throttled(facts(running("worker:0", throttled=0.9), running("worker:1")))
    assert seen.fields["used"] == "0"


def started(name: str, age_s: float = 300.0, **fields: Any) -> TaskStatus:
    return running(name, f"on-{name}", since=NOW - age_s, **fields)


def taught(name: str, took_s: float = 20.0, **fields: Any) -> TaskStatus:
    return running(name, f"on-{name}", **{"step": 9, "step_time": 999.0, "first_step_s": took_s, **fields})


PEERS = [taught("worker:0"), taught("worker:1", 24.0)]


@pytest.mark.parametrize(
    ("age_s", "peers", "tells"),
    [
        (hosts.PATIENCE_S, PEERS, True),
        (hosts.PATIENCE_S - 0.1, PEERS, False),
        (150.0, [taught("worker:1", 30.0)], True),
        (149.9, [taught("worker:1", 30.0)], False),
        (500.0, [taught("worker:1", 30.0), started("worker:2", step=9)], False),
        (500.0, [taught("worker:1", 30.0), taught("worker:2", 0.0)], False),
        (500.0, [taught("worker:1", 30.0), taught("worker:2", 30.0), started("worker:3", age_s=1.0)], True),
        (500.0, [taught("other:1", 30.0)], False),
        (500.0, [], False),
    ],
)
def test_task_has_not_begun_when_most_peers_took_a_fifth_of_its_time_to_a_step(
    age_s: float, peers: list[TaskStatus], tells: bool
) -> None:
    found = facts(running("chief:0"), started("worker:9", age_s), *peers)
    assert ("worker:9" in who(hosts.not_begun(found))) is tells


def test_task_that_has_not_begun_is_reported_with_its_slowest_peer() -> None:
    (seen,) = hosts.not_begun(facts(running("chief:0"), *PEERS, started("worker:9")))
    assert seen == Match((TaskId("worker", 9),), ("on-worker:9",), {"age_s": 300.0, "others_s": 24.0})
    (seen,) = hosts.not_begun(facts(running("chief:0"), *PEERS, started("worker:9", idle_since=900.0)))
    assert seen.fields["idle_s"] == 100.0


@pytest.mark.parametrize("fields", [{"step": 0}, {"state": TaskState.STARTING}, {"id": TaskId("ps", 9)}])
def test_task_with_a_step_or_not_running_or_never_reporting_has_not_failed_to_begin(fields: dict[str, Any]) -> None:
    late = changed(started("worker:9"), **fields)
    peers = [replace(one, id=TaskId(late.id.job, one.id.index)) for one in PEERS]
    assert who(hosts.not_begun(facts(running("chief:0"), *peers, late))) == []


def beside(lead: TaskStatus | None = None, **fields: Any) -> list[str]:
    """The one worker beside a lead that took 20 s for its first step."""
    worker = started("worker:1", **{"idle_since": NOW - 300.0 + 70.0, **fields})
    return who(hosts.not_begun(facts(lead or taught("chief:0"), worker)))


def test_one_that_was_idle_soon_after_its_start_while_the_lead_trains_has_not_begun() -> None:
    assert beside() == ["worker:1"]
    assert beside(idle_since=NOW - 300.0 + 70.1) == []
    assert beside(idle_since=None) == []
    assert beside(lead=taught("chief:0", 0.0)) == []
    assert beside(lead=taught("chief:0", step=None)) == []
    assert beside(lead=taught("chief:0", 5.0), idle_since=NOW - 299.0) == ["worker:1"]


def idle(*ages: float | None, jobs: tuple[str, ...] = ("ps:0", "worker:0", "worker:1")) -> Facts:
    """So long each has been idle; a run that is to make steps."""
    return facts(
        *(
            running(name, f"on-{name}", since=0.0, idle_since=None if age is None else NOW - age)
            for name, age in zip(jobs, ages, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("ages", "tells"),
    [
        ((300.0, 120.0, 130.0), True),
        ((300.0, 119.9, 130.0), False),
        ((1.0, 120.0, 130.0), True),
        ((None, 120.0, 130.0), False),
        ((300.0, None, 130.0), False),
    ],
)
def test_idle_start_is_detected_when_the_last_task_has_been_idle_for_long(
    ages: tuple[float | None, ...], tells: bool
) -> None:
    found = idle(*ages)
    assert bool(list(hosts.nobody_begins(found))) is tells
    assert not list(hosts.nobody_begins(decided(found)))


def test_idle_start_is_reported_for_training_tasks_with_the_first_idle_one() -> None:
    (seen,) = hosts.nobody_begins(idle(500.0, 150.0, 160.0))
    first, second = TaskId("worker", 1), TaskId("worker", 0)
    assert (seen.tasks, seen.hosts) == ((first, second), ("on-worker:1", "on-worker:0"))
    assert seen.fields == {"task": first, "age_s": 100.0, "idle_s": 150.0, "first": (first,), "first_s": 160.0}
    (seen,) = hosts.nobody_begins(idle(500.0, 150.0, 159.9))
    assert seen.fields == {"task": first, "age_s": 100.0, "idle_s": 150.0}
    (seen,) = hosts.nobody_begins(idle(500.0, 150.0, jobs=("ps:0", "worker:0")))
    assert seen.fields == {"task": second, "age_s": 100.0, "idle_s": 150.0}


def test_programs_that_count_no_steps_may_wait_for_anything() -> None:
    alone = idle(200.0, 200.0, jobs=("worker:0", "worker:1"))
    assert not list(hosts.nobody_begins(alone))
    assert list(hosts.nobody_begins(of_record(alone, target_step=100)))


def test_a_collective_that_hangs_before_it_listens_is_reported() -> None:
    tasks = [changed(one, ready=False) for one in idle(200.0, 130.0, jobs=("worker:0", "worker:1")).tasks]
    (seen,) = hosts.nobody_begins(facts(*tasks))
    assert set(seen.tasks) == {TaskId("worker", 0), TaskId("worker", 1)}
    assert not list(hosts.nobody_begins(facts(tasks[0], changed(tasks[1], idle_since=None))))


def test_an_evaluator_and_who_does_not_run_may_do_what_they_like() -> None:
    evaluated = idle(300.0, 200.0, None, jobs=("ps:0", "worker:0", "evaluator:0"))
    (seen,) = hosts.nobody_begins(evaluated)
    assert seen.tasks == (TaskId("worker", 0),)
    tasks = [*idle(300.0, 200.0, 200.0).tasks]
    (seen,) = hosts.nobody_begins(facts(*tasks[:2], replace(tasks[2], state=TaskState.FAILED)))
    assert seen.tasks == (TaskId("worker", 0),)


def test_a_run_that_has_reported_a_step_before_has_begun() -> None:
    tasks = [*idle(300.0, 200.0, 200.0).tasks]
    past = past_attempt(1, 900.0, 960.0, 1, None, asked=False)
    assert list(hosts.nobody_begins(facts(*tasks[:2], changed(tasks[2], history=(past,)))))
    for fields in ({"step": 0}, {"history": (past, changed_attempt(past, step=0))}):
        assert not list(hosts.nobody_begins(facts(*tasks[:2], changed(tasks[2], **fields))))
