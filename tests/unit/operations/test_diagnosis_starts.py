"""Who has not begun, and when nobody begins: each signature asked by itself, to the second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dtctl.model import TaskId, TaskState
from dtctl.operations.diagnosis import hosts
from dtctl.operations.diagnosis.facts import Facts
from dtctl.operations.diagnosis.signature import Seen
from dtctl.operations.snapshot import TaskStatus
from tests.unit.diagnosing import NOW, decided, facts, of_record, running, who
from tests.unit.tasks import changed, changed_attempt, past_attempt


def started(name: str, age_s: float = 300.0, **told: Any) -> TaskStatus:
    return running(name, f"on-{name}", since=NOW - age_s, **told)


def taught(name: str, took_s: float = 20.0, **told: Any) -> TaskStatus:
    return running(name, f"on-{name}", **{"step": 9, "step_time": 999.0, "first_step_s": took_s, **told})


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
def test_one_has_not_begun_when_most_of_its_peers_have_told_a_step_in_a_fifth_of_the_time(
    age_s: float, peers: list[TaskStatus], tells: bool
) -> None:
    found = facts(running("chief:0"), started("worker:9", age_s), *peers)
    assert ("worker:9" in who(hosts.not_begun(found))) is tells


def test_one_that_has_not_begun_is_told_with_the_slowest_of_its_peers() -> None:
    (seen,) = hosts.not_begun(facts(running("chief:0"), *PEERS, started("worker:9")))
    assert seen == Seen((TaskId("worker", 9),), ("on-worker:9",), {"age_s": 300.0, "others_s": 24.0})
    (seen,) = hosts.not_begun(facts(running("chief:0"), *PEERS, started("worker:9", idle_since=900.0)))
    assert seen.fields["idle_s"] == 100.0


@pytest.mark.parametrize("told", [{"step": 0}, {"state": TaskState.STARTING}, {"id": TaskId("ps", 9)}])
def test_who_has_told_a_step_or_does_not_run_or_tells_none_has_not_failed_to_begin(told: dict[str, Any]) -> None:
    late = changed(started("worker:9"), **told)
    peers = [replace(one, id=TaskId(late.id.job, one.id.index)) for one in PEERS]
    assert who(hosts.not_begun(facts(running("chief:0"), *peers, late))) == []


def beside(lead: TaskStatus | None = None, **told: Any) -> list[str]:
    """The one worker beside a lead that took 20 s for its first step."""
    worker = started("worker:1", **{"idle_since": NOW - 300.0 + 70.0, **told})
    return who(hosts.not_begun(facts(lead or taught("chief:0"), worker)))


def test_one_that_was_idle_soon_after_its_start_while_the_lead_trains_has_not_begun() -> None:
    assert beside() == ["worker:1"]
    assert beside(idle_since=NOW - 300.0 + 70.1) == []
    assert beside(idle_since=None) == []
    assert beside(lead=taught("chief:0", 0.0)) == []
    assert beside(lead=taught("chief:0", step=None)) == []
    assert beside(lead=taught("chief:0", 5.0), idle_since=NOW - 299.0) == ["worker:1"]


def test_of_one_whose_start_is_not_known_nothing_is_said() -> None:
    worker = changed(started("worker:1", idle_since=700.0), since=None)
    assert who(hosts.not_begun(facts(taught("chief:0"), worker))) == []


def test_without_a_lead_that_is_known_here_nothing_is_said() -> None:
    found = facts(started("worker:0", idle_since=700.0))
    found = of_record(found, lead=TaskId("chief", 0))
    assert who(hosts.not_begun(found)) == []


def test_the_lead_itself_has_nobody_to_be_compared_with() -> None:
    lead = started("chief:0", idle_since=700.0)
    assert who(hosts.not_begun(facts(lead, taught("worker:0")))) == []


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
def test_nobody_begins_when_the_last_to_work_has_stopped_for_long(ages: tuple[float | None, ...], tells: bool) -> None:
    found = idle(*ages)
    assert bool(list(hosts.nobody_begins(found))) is tells
    assert not list(hosts.nobody_begins(decided(found)))


def test_that_nobody_begins_is_told_of_those_who_train_with_the_first_to_stop_where_it_stands_out() -> None:
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


def test_a_run_of_ps_tasks_alone_has_nobody_who_might_begin() -> None:
    assert not list(hosts.nobody_begins(idle(300.0, jobs=("ps:0",))))


def test_a_run_that_has_told_a_step_before_has_begun() -> None:
    tasks = [*idle(300.0, 200.0, 200.0).tasks]
    past = past_attempt(1, 900.0, 960.0, 1, None, asked=False)
    assert list(hosts.nobody_begins(facts(*tasks[:2], changed(tasks[2], history=(past,)))))
    for told in ({"step": 0}, {"history": (past, changed_attempt(past, step=0))}):
        assert not list(hosts.nobody_begins(facts(*tasks[:2], changed(tasks[2], **told))))
