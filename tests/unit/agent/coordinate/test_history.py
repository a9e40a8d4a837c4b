"""The account of a run's time, as a coordinator keeps it over losses, restarts and absences."""

from __future__ import annotations

import pytest

from dtctl.agent.coordinate.history import BURST_BYTES, MOST_HOST_BYTES, REFILL_BYTES_S, REPORT_S, Quota
from dtctl.agent.run import goodput
from tests.unit.agent.coordinate.world import World, async_ps, collective


def train(world: World, seconds: int, *names: str, start: int = 0) -> int:
    """A step a second; the last one."""
    for step in range(start + 1, start + seconds + 1):
        for name in names:
            if world.states[name] == "running":
                world.tell_step(name, step)
        world.run_for(1.0)
    return start + seconds


def parts(world: World) -> dict[str, float]:
    account = world.data["account"]
    assert account is not None
    found = goodput.parts(account)
    assert sum(found.values()) == pytest.approx(account["seconds"])
    return {what: round(seconds) for what, seconds in found.items() if round(seconds)}


def test_a_gang_that_is_restarted_waits_starts_and_does_its_steps_again() -> None:
    world = collective()
    names = ("worker:0", "worker:1", "worker:2")
    train(world, 60, *names)
    before = parts(world)
    assert before["kept"] in (58, 59, 60)
    world.tasks["worker:0"].stubborn = True
    world.die("worker:1")
    world.run_for(2.0)
    world.tasks["worker:0"].stubborn = False
    world.until(lambda: all(attempt == 2 for attempt in world.attempts.values()))
    world.run_for(8.0)
    train(world, 40, *names, start=40)
    after = parts(world)
    assert after["kept"] - before["kept"] in (19, 20, 21)
    assert after["again"] in (18, 19, 20, 21)
    assert after["start"] - before.get("start", 0) in (7, 8, 9, 10)
    assert after["wait"] > before.get("wait", 0)


def test_the_loss_of_one_worker_of_an_asynchronous_run_costs_none_of_its_time() -> None:
    world = async_ps()
    step = train(world, 30, "chief:0", "worker:0", "worker:1")
    before = parts(world)
    world.die("worker:1")
    train(world, 30, "chief:0", "worker:0", start=step)
    after = parts(world)
    assert after["kept"] - before["kept"] == 30
    assert {**after, "kept": 0} == {**before, "kept": 0}


def test_no_task_trains_while_a_ps_recovers() -> None:
    world = async_ps(strategy="ps-strategy")
    train(world, 30, "chief:0", "worker:0", "worker:1")
    before = parts(world)
    world.die("ps:0")
    world.until(lambda: world.attempts["ps:0"] == 2)
    world.run_for(10.0)
    after = parts(world)
    assert after["kept"] <= before["kept"] + 1
    assert sum(after.get(what, 0) - before.get(what, 0) for what in ("wait", "start", "again")) >= 10


def test_a_hang_counts_from_its_last_step() -> None:
    world = collective()
    train(world, 30, "worker:0", "worker:1", "worker:2")
    world.run_for(20.0)
    world.hang("worker:1", 20.0)
    world.run_for(2.0)
    assert parts(world)["stall"] in (20, 21, 22)


def test_a_host_that_is_away_and_silences_all_costs_its_absence() -> None:
    world = collective()
    train(world, 30, "worker:0", "worker:1", "worker:2")
    world.cut.add("b")
    world.run_for(40.0)
    assert parts(world)["away"] in (40, 41)


def test_restarted_coordinator_continues_the_goodput_account() -> None:
    world = async_ps()
    step = train(world, 30, "chief:0")
    before = parts(world)
    world.now += 50.0
    world.wall += 50.0
    world.restart_coordinator()
    train(world, 5, "chief:0", start=step + 50)
    assert parts(world)["kept"] - before["kept"] in (54, 55, 56)


def test_the_story_of_a_run_ends_with_where_its_time_went() -> None:
    world = collective()
    train(world, 60, "worker:0", "worker:1", "worker:2")
    world.run_for(2.0)
    world.die("worker:0", "worker:1", "worker:2", code=0)
    world.until(lambda: world.data["phase"] == "ended")
    assert world.condition == "Succeeded"
    assert world.decisions[-1].startswith(("goodput 8", "goodput 9"))
    ended = parts(world)
    assert ended["end"] in (2, 3)
    world.run_for(30.0)
    assert parts(world) == ended


def test_run_without_steps_has_no_goodput() -> None:
    world = collective()
    world.run_for(10.0)
    world.request("stop")
    world.until(lambda: world.data["phase"] == "ended")
    assert not any("goodput" in text for text in world.decisions)


def test_of_a_run_that_an_earlier_dtctl_has_begun_no_account_is_kept() -> None:
    world = collective()
    world.data["account"] = None
    world.restart_coordinator()
    train(world, 10, "worker:0", "worker:1", "worker:2")
    world.request("stop")
    world.until(lambda: world.data["phase"] == "ended")
    assert world.data["account"] is None


def test_clock_set_between_two_updates_counts_as_no_absence() -> None:
    world = async_ps()
    world.wall += 60 * 365 * 86400.0
    world.restart_coordinator()
    world.tick()
    account = world.data["account"]
    assert account is not None
    assert account["seconds"] < 40 * 86400.0


SECONDS_OF_ROOM = int(2 * REFILL_BYTES_S)
TAKEN: dict[str, list[tuple[float, int, bool]]] = {
    "a burst fits and nothing after it": [(100.0, BURST_BYTES, True), (100.0, 1, False)],
    "what does not fit takes no room": [(100.0, BURST_BYTES + 1, False), (100.0, BURST_BYTES, True)],
    "room comes back with time once": [
        (100.0, BURST_BYTES, True),
        (102.0, SECONDS_OF_ROOM + 1, False),
        (102.0, SECONDS_OF_ROOM, True),
        (102.0, 1, False),
    ],
    "a long rest makes no more than a burst": [(100.0, BURST_BYTES - 1, True), (1e9, BURST_BYTES + 1, False)],
}


@pytest.mark.parametrize("case", TAKEN)
def test_quota_takes_what_fits(case: str) -> None:
    """Each is a time, a size, and whether it fits."""
    quota = Quota(100.0)
    for now, size, fits in TAKEN[case]:
        assert quota.takes(size, now) is fits


def test_a_host_takes_no_more_than_its_share_of_the_history_in_the_whole_run() -> None:
    quota = Quota(0.0, used_bytes=BURST_BYTES)
    taken = sum(quota.takes(BURST_BYTES, now=1e6 * round_) for round_ in range(100))
    assert (taken + 1) * BURST_BYTES == MOST_HOST_BYTES


def test_omitted_events_are_reported_at_once_after_a_minute_and_ever_less_often() -> None:
    quota = Quota(100.0)
    assert quota.left_out(1000.0) == 0
    for _ in range(3):
        quota.takes(BURST_BYTES + 1, 100.0)
    assert quota.left_out(99.0) == 0
    assert quota.left_out(100.0) == 3
    assert quota.left_out(100.0 + REPORT_S) == 0
    quota.takes(BURST_BYTES + 1, 101.0)
    assert quota.left_out(100.0 + REPORT_S - 0.01) == 0
    assert quota.left_out(100.0 + REPORT_S) == 1
    quota.takes(BURST_BYTES + 1, 200.0)
    assert (quota.left_out(100.0 + 2 * REPORT_S), quota.left_out(100.0 + 3 * REPORT_S)) == (0, 1)
