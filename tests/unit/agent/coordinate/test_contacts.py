"""Who is in touch, who is missed and since when, and that each coming and going is reported once."""

from __future__ import annotations

import socket

import pytest

from dtctl.agent.coordinate import contacts
from dtctl.agent.coordinate.contacts import ASK_AGAIN_S, DIAL_AGAIN_S, Answering, Contacts, answers
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, fact, said
from dtctl.agent.records.run_state import How
from tests.hosts.ports import free_port
from tests.reasons import reason_of, warnings_of
from tests.unit.agent.coordinate import views
from tests.unit.agent.coordinate.world import World, async_ps, collective, running
from tests.waiting import eventually


class Reports:
    """A coordinator's contacts, and the hosts of which something was reported."""

    def __init__(self, view: View | None = None) -> None:
        self.view = view or views.running()
        self.hosts: list[str] = []
        self.contacts = Contacts(self.view, self._tell)

    def _tell(self, kind: str, why: list[Fact], *, host: str) -> None:
        assert kind == "contact"
        self.hosts.append(host)
        self.last = why[0]

    @property
    def connected(self) -> set[str]:
        return {host for host, known in self.view.hosts.items() if known["connected"]}


def test_initially_no_host_is_connected_or_away() -> None:
    reported = Reports()
    assert (reported.connected, reported.contacts.away) == (set(), {})


def test_known_hosts_with_unfinished_tasks_are_expected() -> None:
    view = views.running()
    view.hosts["a"]["heard"] = None
    view.hosts["b"]["over"] = True
    reported = Reports(view)
    reported.contacts.expect(100.0, counts_on=True)
    assert reported.contacts.away == {"d": 100.0}, "c is the coordinator's own"


@pytest.mark.parametrize(("counts_on", "since"), [(True, 60.0), (False, 100.0)])
def test_absence_is_counted_on_once_and_only_without_another_coordinator(counts_on: bool, since: float) -> None:
    view = views.running()
    view.hosts["a"]["silent_s"] = 40.0
    reported = Reports(view)
    reported.contacts.expect(100.0, counts_on=counts_on)
    assert (reported.contacts.away["a"], view.hosts["a"]["silent_s"]) == (since, None)


def test_missing_host_is_reported_once() -> None:
    reported = Reports()
    reported.contacts.expect(100.0, counts_on=True)
    reported.contacts.miss(100.0 + DIAL_AGAIN_S)
    assert reported.hosts == []
    reported.contacts.greet("a", 100.0 + DIAL_AGAIN_S)
    reported.contacts.miss(100.1 + DIAL_AGAIN_S)
    reported.contacts.miss(500.0)
    assert reported.hosts == ["b", "d"]


def test_connecting_host_is_reported_only_if_it_was_missed() -> None:
    reported = Reports()
    reported.view.hosts["a"]["over"] = True
    reported.contacts.greet("a", 100.0)
    assert (reported.connected, reported.view.hosts["a"]["over"], reported.hosts) == ({"a"}, False, [])
    reported.contacts.lose("a", 105.0, "no word", is_done=False)
    assert (reported.connected, reported.contacts.away, reported.hosts) == (set(), {"a": 105.0}, ["a"])
    assert reported.last == fact("away", host="a", text="no word")
    reported.contacts.greet("a", 110.0)
    assert (reported.connected, reported.contacts.away, reported.hosts) == ({"a"}, {}, ["a", "a"])
    assert reported.last == fact("back", host="a", seconds=5.0)
    reported.contacts.greet("a", 111.0)
    assert reported.hosts == ["a", "a"]


def test_disconnect_of_a_finished_host_is_not_reported() -> None:
    reported = Reports()
    reported.contacts.greet("a", 100.0)
    reported.contacts.lose("a", 105.0, "closed", is_done=True)
    assert (reported.connected, reported.contacts.away, reported.hosts) == (set(), {}, [])
    assert reported.view.hosts["a"]["over"]


def test_unconnected_host_cannot_be_lost() -> None:
    reported = Reports()
    reported.contacts.lose("a", 105.0, "closed", is_done=True)
    reported.contacts.lose("b", 105.0, "closed", is_done=False)
    assert (reported.contacts.away, reported.hosts, reported.view.hosts["a"]["over"]) == ({}, [], False)


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
def test_coordinator_after_a_reboot_starts_nothing_before_a_majority_has_connected(
    reached: tuple[str],
) -> None:
    world = back_alone(*reached)
    world.run_for(600)
    assert world.attempts["chief:0"] == 1
    assert world.condition == "Restarting"
    missing = "1 more host" if reached else "2 more hosts"
    assert f"until the coordinator is connected to {missing} of the run" in reason_of(world.data["waits_for"])


def test_coordinator_continues_at_once_with_all_hosts() -> None:
    world = back_alone(*OTHERS)
    world.until(lambda: world.attempts["chief:0"] == 2, 5)


def test_coordinator_with_a_majority_waits_for_the_others_to_dial() -> None:
    world = back_alone("a", "b")
    world.run_for(DIAL_AGAIN_S - 1)
    assert world.attempts["chief:0"] == 1
    assert "connected to 0 more hosts" not in reason_of(world.data["waits_for"])
    world.until(lambda: world.attempts["chief:0"] == 2, 5)


def test_host_that_knows_of_the_end_ends_the_run_before_a_task_starts() -> None:
    world = back_alone("a", "b")
    world.run_for(10)
    world.ask_to_end("d", made(How, by="train@laptop", why=said("replaced")))
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


def test_coordinator_whose_agent_was_killed_continues_with_the_majority() -> None:
    world = back_alone("a", "b", rebooted=False)
    world.until(lambda: world.attempts["chief:0"] == 2, 5)


def test_coordinator_that_was_cut_off_starts_nothing_before_hosts_report() -> None:
    world = async_ps()
    world.cut.update(OTHERS)
    world.run_for(15)
    world.die("chief:0")
    world.run_for(100)
    assert world.attempts["chief:0"] == 1
    world.ask_to_end("e", made(How, by="train@laptop", why=said("replaced")))
    world.cut.difference_update({"a", "b"})
    world.run_for(10)
    world.cut.clear()
    world.run_for(10)
    assert (world.attempts["chief:0"], world.condition) == (1, "Stopped")


def test_up_of_the_same_run_has_it_started_and_changes_nothing_else() -> None:
    world = back_alone()
    world.run_for(60)
    world.request("restart", [])
    world.until(lambda: world.attempts["chief:0"] == 2, 5)
    world.request("restart", [])
    world.run_for(5)
    assert [reason_of(line) for line in world.events if line["kind"] == "request"] == ["up"]
    assert set(world.attempts.values()) == {1, 2}


def lead_and_ps_on_one_host() -> World:
    return running(World("async-ps", {"ps:0": "a", "worker:0": "a", "worker:1": "b", "worker:2": "c"}))


def test_coordinator_that_lost_every_host_starts_nothing_before_they_report() -> None:
    world = lead_and_ps_on_one_host()
    world.cut.update({"b", "c"})
    world.run_for(15)
    world.die("ps:0", "worker:0")
    world.run_for(600)
    assert (world.attempts["worker:0"], world.attempts["ps:0"], world.condition) == (1, 1, "Restarting")
    world.cut.clear()
    world.until(lambda: world.attempts["worker:0"] == world.attempts["ps:0"] == 2, 30)


@pytest.mark.parametrize("rebooted", [False, True])
def test_coordinator_alone_reports_no_task_as_running_that_it_does_not_see(rebooted: bool) -> None:
    world = collective()
    assert reason_of(world.data["condition"]) == "3 of 3 tasks run"
    world.crash("b")
    world.crash("c")
    world.tick()
    world.die("worker:0")
    if rebooted:
        world.restart_coordinator(rebooted=True)
    world.run_for(1.0)
    assert (world.condition, reason_of(world.data["condition"])) == ("Restarting", "worker:0: killed by SIGKILL")
    assert "nothing is started until the coordinator is connected to" in reason_of(world.data["waits_for"])


def test_condition_of_a_run_none_of_whose_tasks_is_seen_counts_none() -> None:
    world = running(World("async-ps", {"ps:0": "b", "chief:0": "c", "worker:0": "d"}))
    world.restart_coordinator(rebooted=True)
    for host in ("b", "c", "d"):
        world.cut.add(host)
    world.run_for(1.0)
    assert (world.condition, reason_of(world.data["condition"])) == ("Running", "0 of 3 tasks run")


def test_coordinator_connected_to_one_host_restarts_its_own_task() -> None:
    world = running(
        World("async-ps", {"ps:0": "a", "worker:0": "a", **{f"worker:{i}": h for i, h in enumerate("bcd", 1)}})
    )
    world.cut.update({"b", "c"})
    world.run_for(15)
    world.die("worker:0")
    world.until(lambda: world.attempts["worker:0"] == 2, 5)


def test_no_deadline_of_the_start_counts_meanwhile() -> None:
    world = back_alone("d")
    world.run_for(2000)
    assert world.condition == "Restarting"


def test_a_machine_that_accepts_or_refuses_a_connection_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert answers("127.0.0.1", server.getsockname()[1])
    assert answers("127.0.0.1", free_port())


@pytest.mark.parametrize("error", [TimeoutError(), OSError(113, "No route to host"), UnicodeError("label too long")])
def test_unreachable_host_does_not_answer(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fails)
    assert not answers("gpu-b", 2221)


def test_unreachable_host_is_probed_again_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def answers_now(address: str, port: int) -> bool:
        asked.append((address, port))
        return True

    monkeypatch.setattr(contacts, "answers", answers_now)
    machines = Answering()
    machines.of("b", "gpu-b", 2221, 100.0)
    eventually(lambda: machines.of("b", "gpu-b", 2221, 100.0) is True, what="the answer")
    machines.of("b", "gpu-b", 2221, 100.0 + ASK_AGAIN_S - 1)
    assert asked == [("gpu-b", 2221)]
    machines.of("b", "gpu-b", 2221, 100.0 + ASK_AGAIN_S)
    eventually(lambda: len(asked) == 2, what="another question")


@pytest.mark.usefixtures("processes_in_memory")
def test_missing_agent_is_a_warning_until_it_connects_or_its_machine_is_silent() -> None:
    world = async_ps()
    world.cut.add("d")
    world.run_for(60)
    for answered in (True, True, False, True):
        world.coordinator.contacts.note_answer("d", answers=answered)
        assert any(text.startswith("d answers, but its agent") for text in warnings_of(world.data)) is answered
    assert len(warnings_of(world.data)) == 1
    assert set(world.coordinator.away) == {"d"}
    world.cut.clear()
    world.run_for(2)
    assert warnings_of(world.data) == []
    assert [reason_of(line)[:9] for line in world.events if line["kind"] == "contact"].count("d answers") == 2
