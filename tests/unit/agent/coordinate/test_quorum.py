"""Who may start anything: a coordinator that comes back asks those who may have gone on without it."""

from __future__ import annotations

import pytest

from dtctl.agent.coordinate.contacts import DIAL_AGAIN_S
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import How
from tests.unit.agent.coordinate.world import World, async_ps

pytestmark = pytest.mark.usefixtures("processes_in_memory")

OTHERS = ("a", "b", "d", "e")
"""Besides c, where the lead and the coordinator are."""


def back_alone(*reached: str, rebooted: bool = True) -> World:
    """The coordinator's host was away, and sees these hosts; its lead is gone."""
    world = async_ps()
    world.cut.update(set(OTHERS) - {*reached})
    world.restart_coordinator(rebooted=rebooted)
    world.die("chief:0")
    return world


@pytest.mark.parametrize("reached", [(), ("d",)], ids=["nobody", "one of four"])
def test_after_a_restart_of_its_machine_a_coordinator_starts_nothing_before_most_have_called(
    reached: tuple[str],
) -> None:
    world = back_alone(*reached)
    world.run_for(3600)
    assert world.attempts["chief:0"] == 1
    assert world.condition == "Running"
    missing = str(2 - len(reached))
    assert f"before {missing} more of the run's hosts have called" in str(world.data["missing"])


def test_with_everybody_it_goes_on_at_once() -> None:
    world = back_alone(*OTHERS)
    world.until(lambda: world.attempts["chief:0"] == 2, 5)


def test_with_most_it_gives_the_others_the_time_to_call() -> None:
    world = back_alone("a", "b")
    world.run_for(DIAL_AGAIN_S - 1)
    assert world.attempts["chief:0"] == 1
    world.until(lambda: world.attempts["chief:0"] == 2, 5)


def test_one_that_knows_of_the_end_ends_it_before_anything_is_started() -> None:
    world = back_alone("a", "b")
    world.run_for(10)
    world.ask_to_end("d", made(How, by="train@laptop", reason="replaced"))
    world.cut.discard("d")
    world.run_for(30)
    assert (world.attempts["chief:0"], world.condition) == (1, "Stopped")


def test_a_power_cut_of_the_whole_cluster_heals_by_itself() -> None:
    world = async_ps()
    for host in ("a", "b", "c", "d", "e"):
        world.crash(host)
    for host in ("a", "b", "c", "d", "e"):
        world.boot(host)
    world.restart_coordinator(rebooted=True)
    world.until(lambda: set(world.attempts.values()) == {2})


def test_one_whose_agent_alone_was_killed_goes_on_with_those_it_waits_for() -> None:
    world = back_alone("a", "b", rebooted=False)
    world.until(lambda: world.attempts["chief:0"] == 2, 5)


def test_after_a_cut_it_asks_first() -> None:
    world = async_ps()
    world.cut.update(OTHERS)
    world.run_for(15)
    world.die("chief:0")
    world.run_for(100)
    assert world.attempts["chief:0"] == 1
    world.ask_to_end("e", made(How, by="train@laptop", reason="replaced"))
    world.cut.difference_update({"a", "b"})
    world.run_for(10)
    world.cut.clear()
    world.run_for(10)
    assert (world.attempts["chief:0"], world.condition) == (1, "Stopped")


def test_what_a_person_asks_for_is_started() -> None:
    world = back_alone()
    world.run_for(60)
    world.request("restart", ["chief:0"])
    world.until(lambda: world.attempts["chief:0"] == 2, 5)


def test_no_deadline_of_the_start_counts_meanwhile() -> None:
    world = back_alone("d")
    world.run_for(2000)
    assert world.condition == "Running"
