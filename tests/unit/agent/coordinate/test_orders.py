"""What hosts are sent: orders that are new to them, and how long peers took for the first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dtctl.agent.coordinate import orders
from dtctl.agent.coordinate.orders import OrderBook
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, Past
from tests.unit.agent.coordinate import views

LOST = made(Past, attempt=1, started=1000.0, ended=1001.0, asked=False, signal=9)


Steps = Callable[[View], object]


def reported(task: str, **entry: Any) -> Steps:
    return lambda view: views.reported(view, task, **entry)


def lead_alone_reports(view: View) -> None:
    """And worker:1 has done nothing since about its start."""
    views.reported(view, "worker:0", step=None)
    views.reported(view, "worker:1", since=1000.0, idle_since=1010.0)


def lead_is_silent(view: View) -> None:
    views.reported(view, "chief:0", step=None)
    views.reported(view, "worker:0", step=5)
    views.reported(view, "worker:1", step=5, first_step_s=3.0)


START_ENDS = 1000.0 + orders.START_S + 9.0 * orders.STARTS
FIRST_STEPS: dict[str, tuple[list[Steps], dict[str, float]]] = {
    "its peers teach a silent task": ([], {"worker:1": 4.0}),
    "also before it listens": ([reported("worker:1", ready=False)], {"worker:1": 4.0}),
    "also after a loss": ([reported("worker:1", history=[LOST])], {"worker:1": 4.0}),
    "it has reported a step": ([reported("worker:1", step=1)], {}),
    "it does not run": ([reported("worker:1", state="backoff")], {}),
    "it starts": ([reported("worker:1", state="starting")], {}),
    "it was ended for a hang before": ([reported("worker:1", history=[{**LOST, "hung": True}])], {}),
    "the lead is no peer": ([reported("worker:0", step=None)], {}),
    "the lead has no peers": ([lead_is_silent], {}),
    "a single step of a peer is no proof": ([reported("worker:0", first_step_s=0.0)], {}),
    "a stopped peer is none": ([lambda view: view.wanted(["worker:0"], want="stop")], {}),
    "an ended peer is none": ([reported("worker:0", state="succeeded")], {}),
    "the lead teaches a task that has done nothing": ([lead_alone_reports], {"worker:1": 9.0}),
    "rather than its peers": ([lead_alone_reports, reported("worker:0", step=100)], {"worker:1": 9.0}),
    "it was idle when its start ended": (
        [lead_alone_reports, reported("worker:1", idle_since=START_ENDS)],
        {"worker:1": 9.0},
    ),
    "it worked after its start": ([lead_alone_reports, reported("worker:1", idle_since=START_ENDS + 0.1)], {}),
    "it serves": ([lead_alone_reports, lambda view: view.roster["worker:1"].update({"serves": True})], {}),
    "its start is unknown": ([lead_alone_reports, reported("worker:1", since=None)], {}),
    "it works": ([lead_alone_reports, reported("worker:1", idle_since=None)], {}),
    "the lead has reported no steps": ([lead_alone_reports, reported("chief:0", first_step_s=0.0)], {}),
}


@pytest.mark.parametrize("case", FIRST_STEPS)
def test_first_step_duration_is_sent_to_a_task_that_may_have_hung(case: str) -> None:
    """chief:0 and worker:0 have reported steps, worker:1 has not."""
    changes, expected = FIRST_STEPS[case]
    view = views.running()
    views.reported(view, "chief:0", step=100, first_step_s=9.0)
    views.reported(view, "worker:0", step=100, first_step_s=4.0)
    for change in changes:
        change(view)
    assert orders.first_steps(view) == expected


@pytest.mark.parametrize("strategy", ["sync-ps", "collective"])
def test_where_every_step_needs_every_worker_the_steps_of_others_are_its_own(strategy: str) -> None:
    view = views.running(strategy)
    views.reported(view, "worker:0", step=100, first_step_s=4.0)
    assert orders.first_steps(view) == {}


def test_peers_are_of_the_same_job_and_the_slowest_of_them_teaches() -> None:
    places = {"chief:0": "c", "worker:0": "d", "worker:1": "d", "worker:2": "e", "other:0": "e"}
    view = views.running(places=places)
    views.reported(view, "chief:0", step=1, first_step_s=9.0)
    view.roster["other:0"].update({"role": "worker"})
    views.reported(view, "worker:1", step=1, first_step_s=4.0)
    views.reported(view, "worker:2", step=1, first_step_s=6.0)
    assert orders.first_steps(view) == {"worker:0": 6.0}, "other:0 tells nothing, is of another job, and has no peers"
    views.reported(view, "worker:2", step=None)
    assert orders.first_steps(view) == {}, "not every peer has reported a step"


def test_hundreds_of_silent_tasks_are_not_each_compared_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the lead alone tells steps, for as long as the run continues."""
    workers = 300
    view = views.running(places={"chief:0": "c", **{f"worker:{number}": f"w{number}" for number in range(workers)}})
    views.reported(view, "chief:0", step=1, first_step_s=9.0)
    looks: list[str] = []
    entry = View.entry

    def looked_at(self: View, task: str) -> Entry:
        looks.append(task)
        return entry(self, task)

    monkeypatch.setattr(View, "entry", looked_at)
    book = OrderBook(view)
    for host in view.hosts:
        book.confirm(host, {task: view.intents[task] for task in view.tasks_on(host)})
    assert book.news(recovering=False, done=(), may_start=True, kept=True) == []
    assert len(looks) < 10 * workers


def news(
    book: OrderBook,
    *,
    recovering: bool = False,
    done: tuple[str, ...] = (),
    may_start: bool = True,
    kept: bool = True,
) -> Any:
    return dict(book.news(recovering=recovering, done=done, may_start=may_start, kept=kept))


def known(view: View) -> OrderBook:
    """Every agent follows what is wanted of its tasks."""
    book = OrderBook(view)
    for host in view.hosts:
        book.confirm(host, {task: view.intents[task].copy() for task in view.tasks_on(host)})
    return book


def test_hosts_that_can_be_reached_are_sent_what_is_new_to_them_once() -> None:
    view = views.running()
    view.hosts["b"]["connected"] = False
    book = OrderBook(view)
    assert {host: list(orders["intents"]) for host, orders in news(book).items()} == {
        "a": ["ps:0"],
        "c": ["chief:0"],
        "d": ["worker:0", "worker:1"],
    }
    assert news(book) == {}
    view.wanted(["worker:0"], want="stop")
    ((host, sent),) = news(book).items()
    assert (host, sent["intents"]) == ("d", {"worker:0": view.intents["worker:0"]})
    view.hosts["b"]["connected"] = True
    assert list(news(book)) == ["b"]


def test_what_an_agent_follows_already_is_not_sent_and_is_confirmed_until_it_changes() -> None:
    view = views.running()
    assert not OrderBook(view).is_confirmed("d")
    book = known(view)
    assert book.is_confirmed("d")
    assert news(book) == {}
    view.wanted(["worker:1"], want="stop")
    assert not book.is_confirmed("d")
    assert book.is_confirmed("a")
    book.confirm("d", {"worker:0": view.intents["worker:0"], "worker:1": view.intents["worker:1"]})
    assert book.is_confirmed("d")
    book.confirm("d", {"worker:0": {**view.intents["worker:0"], "version": 1}, "worker:1": view.intents["worker:1"]})
    assert not book.is_confirmed("d"), "the last that it has reported counts"
    assert news(book) == {}, "it was sent the newer one before"


def test_what_holds_beside_the_intents_is_sent_when_it_changes() -> None:
    book = known(views.running())
    changed = news(book, recovering=True)
    assert {host: (orders["recovering"], orders["intents"]) for host, orders in changed.items()} == dict.fromkeys(
        "abcd", (True, {})
    )
    assert news(book, recovering=True) == {}
    assert all(orders["may_start"] is False for orders in news(book, may_start=False).values())
    assert set(news(book)) == set("abcd")


def test_after_another_hello_a_host_may_start_by_the_orders_that_have_all_intents() -> None:
    view = views.running()
    book = known(view)
    book.forget("a", kept=True)
    orders = news(book)["a"]
    assert (list(orders["intents"]), orders["may_start"]) == (["ps:0"], True)
    book.forget("a", kept=True)
    book.confirm("a", {"ps:0": view.intents["ps:0"]})
    assert list(news(book, may_start=False)) == ["b", "c", "d"]
    assert list(news(book)) == ["a", "b", "c", "d"]


def test_an_agent_is_sent_that_the_run_is_kept_unless_its_hello_said_so() -> None:
    view = views.running()
    book = known(view)
    for host in "abcd":
        book.forget(host, kept=host in "cd")
        book.confirm(host, {task: view.intents[task] for task in view.tasks_on(host)})
    sent = news(book, may_start=False)
    assert {host: orders["kept"] for host, orders in sent.items()} == {"a": True, "b": True}
    assert news(book, may_start=False) == {}


def test_an_agent_is_released_once_and_again_after_another_hello() -> None:
    book = known(views.running())
    assert not book.is_over("a")
    assert {host: orders["over"] for host, orders in news(book, done=("a",)).items()} == {"a": True}
    assert (book.is_over("a"), book.is_over("b")) == (True, False)
    assert news(book, done=("a",)) == {}
    book.forget("a", kept=True)
    assert not book.is_over("a")
    assert news(book, done=("a",))["a"]["over"] is True
