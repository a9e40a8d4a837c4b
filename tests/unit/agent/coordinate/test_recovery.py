"""What is restarted when what is lost, by the way of training."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.messages import FROM_AGENT
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.run_state import LostCheckpoint
from tests.reasons import reason_of
from tests.unit.agent.coordinate.world import World, async_ps, collective

UNREADABLE = "tensorflow.errors.DataLossError: Checksum does not match\n"


def lost_checkpoint(elsewhere: str | None) -> LostCheckpoint:
    return {"path": "/out/model.ckpt-200", "problem": "the index is cut short", "elsewhere": elsewhere}


def recovered(world: World) -> bool:
    return all(task.entry["ready"] for task in world.tasks.values()) and world.data["phase"] == "running"


def only_once_more(world: World, *names: str) -> None:
    assert world.attempts == {name: 2 if name in names else 1 for name in world.tasks}


def test_lost_ps_is_reported_with_the_rollback_step() -> None:
    world = async_ps()
    world.tell_step("chief:0", 1237)
    world.checkpoint = 1000
    world.die("ps:1")
    world.until(lambda: world.attempts["ps:1"] == 2)
    world.run_for(5)
    assert world.data["phase"] == "recovering"  # it is there, but no task has reported a step since
    world.tell_step("chief:0", 1001)
    world.until(lambda: recovered(world))
    incident = world.data["incidents"][-1]
    assert (incident["step"], incident["back_to"]) == (1237, 1000)
    assert "back to step 1000, 237 steps lost" in world.decisions[-1]


def test_during_a_recovery_only_the_step_that_ends_it_triggers_a_decision() -> None:
    world = async_ps()
    world.tell_step("chief:0", 1237)
    world.die("ps:1")
    world.until(lambda: world.attempts["ps:1"] == 2)
    world.run_for(5)

    def decides(**fields: object) -> bool:
        reported = {"type": "progress", "serial": 99, "tasks": {"chief:0": fields}}
        return world.coordinator.receive("c", checked(FROM_AGENT["progress"], reported), world.now, world.wall)

    assert not decides(loss="0.5", progress=world.wall)
    assert not decides(step=1237)
    assert decides(step=1238)
    world.coordinator.step(world.now, world.wall)
    assert recovered(world)
    assert not decides(step=1239)


def test_a_long_healthy_life_gives_the_budget_back() -> None:
    world = async_ps(recovery={"reset_after_s": 30.0})
    for _ in range(4):
        world.run_for(31)
        world.die("ps:0")
        world.until(lambda: recovered(world))
    assert world.tasks["ps:0"].entry["restarts"] == 1


def test_the_only_checkpoint_is_damaged_and_the_run_fails_at_once() -> None:
    world = async_ps()
    world.loss = lost_checkpoint("/old/model.ckpt-50")
    world.die("chief:0", code=1, log=UNREADABLE)
    world.until(lambda: world.data["phase"] == "ended")
    assert (world.condition, world.attempts["chief:0"]) == ("Failed", 1)
    why = world.data["condition"]["why"]
    assert fact("damaged_checkpoint", what="/out/model.ckpt-200", text="the index is cut short") in why
    assert fact("complete_elsewhere", what="/old/model.ckpt-50") in why
    assert "recovery.allow_scratch: true" in reason_of(world.data["condition"])


def test_allow_scratch_recovers_without_a_checkpoint() -> None:
    world = async_ps(recovery={"allow_scratch": True})
    world.loss = lost_checkpoint(None)
    world.die("chief:0", code=1, log=UNREADABLE)
    world.until(lambda: recovered(world))
    assert world.verified_all


def test_agents_see_a_loss_until_all_tasks_are_back() -> None:
    world = async_ps()
    world.tasks["ps:0"].ready_s = 30.0
    world.die("ps:0")
    world.run_for(20)
    assert set(world.recovering.values()) == {True}
    world.until(lambda: recovered(world))
    world.tick()
    assert set(world.recovering.values()) == {False}


def test_task_restarted_with_a_lost_one_records_which_and_why() -> None:
    world = collective()
    world.die("worker:1", signal=11)
    world.until(lambda: world.attempts["worker:0"] == 2)
    began = [event for event in world.tasks["worker:0"].events if event["to"] == "pending"][-1]
    assert began["why"] == [fact("restarted_with", task="worker:1"), fact("killed", signal=11)]


def test_a_restarted_task_that_never_listens_fails_the_run() -> None:
    world = async_ps(start_timeout_s=60.0)
    world.tasks["ps:0"].ready_s = 1e9
    world.die("ps:0")
    world.until(lambda: world.data["phase"] == "ended", 120)
    assert "ps:0 is loading" in reason_of(world.data["condition"])


@pytest.mark.parametrize(
    ("start", "name"),
    [(async_ps, "worker:1"), (async_ps, "chief:0"), (async_ps, "ps:0"), (collective, "worker:1")],
    ids=["worker", "chief", "ps", "gang"],
)
def test_a_task_that_a_person_restarts_while_it_waits_for_that_comes_back_at_once(
    start: Callable[..., World], name: str
) -> None:
    world = start(recovery={"backoff_min_s": 50.0, "backoff_max_s": 60.0})
    world.die(name)
    world.run_for(3)
    world.request("restart", [name])
    world.until(lambda: recovered(world), limit_s=30)
    assert world.condition == "Running"
    only_once_more(world, *(world.tasks if start is collective else [name]))


BAD_SHAPE = "Traceback (most recent call last):\nValueError: shapes (%d, 3) and (4,) do not match"
DAMAGED = "Traceback (most recent call last):\nKeyError: 'layer_%d'"
PEER_LOST = "Traceback (most recent call last):\nConnectionResetError: [Errno 104] Connection reset by peer"


def tries_until_failed(
    count: int, ends: Callable[[int], Mapping[str, str]], *, steps: Container[int] = (), **budget: Any
) -> tuple[int, str]:
    """A collective of so many workers, in which try N of the group (from 0) ends with the ends of `ends(N)`: the log
    of each worker that ends by itself. How often the group was tried when the run had failed, and why it has.

    `steps`: tries in which the workers come further than before.
    """
    recovery = {"repeat": 3, "max_restarts": 20, "max_run_restarts": 100, "backoff_max_s": 1.0, **budget}
    world = World("collective", {f"worker:{one}": f"h{one}" for one in range(count)}, recovery=recovery)
    for number in range(8):
        world.until(lambda: set(world.states.values()) == {"running"})
        world.run_for(1.0)
        if number in steps:
            for name in world.tasks:
                world.tell_step(name, 100 * (number + 1))
            world.run_for(3.0)
        for name, log in ends(number).items():
            world.die(name, code=1, log=log % number if "%d" in log else log)
        world.run_for(4.0)
        if world.condition == "Failed":
            return number + 1, reason_of(world.data["condition"])
    return 0, ""


@pytest.mark.parametrize("count", [2, 3, 6])
def test_workers_that_end_in_turn_with_one_error_have_the_tries_of_one(count: int) -> None:
    tries, why = tries_until_failed(count, lambda number: {f"worker:{number * 5 % count}": BAD_SHAPE})
    assert (tries, "gave up after 3 identical failures" in why) == (3, True), why


def test_workers_that_all_end_with_one_error_have_its_tries_whoever_is_noticed_first() -> None:
    tries, why = tries_until_failed(6, lambda number: {f"worker:{one}": BAD_SHAPE for one in range(number % 2, 6)})
    assert (tries, "gave up after 3 identical failures" in why) == (3, True), why


def test_error_of_one_worker_counts_where_another_that_lost_it_is_noticed_first() -> None:
    tries, _ = tries_until_failed(4, lambda number: {"worker:0": PEER_LOST, f"worker:{1 + number % 3}": BAD_SHAPE})
    assert tries == 3


def test_a_new_step_gives_the_group_its_tries_again() -> None:
    def ends(number: int) -> dict[str, str]:
        return {f"worker:{number % 6}": BAD_SHAPE}

    assert tries_until_failed(6, ends, steps=range(8)) == (0, "")
    tries, _ = tries_until_failed(6, ends, steps=(0, 1, 2, 4))
    assert tries == 7  # with the step of the fifth try, it, the sixth and the seventh


@pytest.mark.parametrize(
    ("ends", "budget"),
    [
        (lambda number: {f"worker:{number % 6}": BAD_SHAPE if number % 2 else DAMAGED}, {}),
        (lambda number: {f"worker:{number % 6}": PEER_LOST}, {}),
        (lambda number: {f"worker:{number % 6}": BAD_SHAPE}, {"repeat": 0}),
        (lambda number: {f"worker:{number % 6}": BAD_SHAPE}, {"retry": [1]}),
    ],
    ids=["two errors in turn", "lost peers", "no limit", "a code that is always retried"],
)
def test_group_is_tried_on_where_no_single_error_repeats_itself(
    ends: Callable[[int], Mapping[str, str]], budget: dict[str, Any]
) -> None:
    assert tries_until_failed(6, ends, **budget) == (0, "")
