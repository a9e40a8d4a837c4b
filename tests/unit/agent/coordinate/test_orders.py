"""What hosts are sent: orders that are new to them, and how long peers took for the first step."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordinate import orders
from dtctl.agent.coordinate.orders import OrderBook
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, Past
from tests.unit.agent.coordinate import views

LOST = made(Past, attempt=1, started=1000.0, ended=1001.0, asked=False, signal=9)


def silent(strategy: str = "async-ps", **of_worker_1: Any) -> View:
    """chief:0 and worker:0 have told steps, worker:1 has not."""
    view = views.running(strategy)
    views.told(view, "chief:0", step=100, first_step_s=9.0)
    views.told(view, "worker:0", step=100, first_step_s=4.0)
    views.told(view, "worker:1", **of_worker_1)
    return view


def test_silent_task_gets_the_first_step_duration_of_its_peers() -> None:
    assert orders.first_steps(silent()) == {"worker:1": 4.0}
    assert orders.first_steps(silent(ready=False)) == {"worker:1": 4.0}
    assert orders.first_steps(silent(history=[LOST])) == {"worker:1": 4.0}


@pytest.mark.parametrize(
    "entry",
    [{"step": 1}, {"state": "backoff"}, {"state": "starting"}, {"history": [{**LOST, "hung": True}]}],
    ids=["tells steps", "does not run", "starts", "was ended for that before"],
)
def test_of_one_that_need_not_have_hung_nothing_is_told(entry: dict[str, Any]) -> None:
    assert orders.first_steps(silent(**entry)) == {}


@pytest.mark.parametrize("strategy", ["sync-ps", "collective"])
def test_where_every_step_needs_every_worker_the_steps_of_others_are_its_own(strategy: str) -> None:
    assert orders.first_steps(silent(strategy)) == {}


def test_lead_has_no_peers() -> None:
    view = silent()
    views.told(view, "worker:0", step=None)
    assert orders.first_steps(view) == {}
    views.told(view, "chief:0", step=None)
    views.told(view, "worker:0", step=5)
    views.told(view, "worker:1", step=5, first_step_s=3.0)
    assert orders.first_steps(view) == {}


def test_a_single_line_with_a_step_is_no_proof_that_peers_tell_steps() -> None:
    view = silent()
    views.told(view, "worker:0", first_step_s=0.0)
    assert orders.first_steps(view) == {}


def test_peers_that_were_stopped_or_have_ended_are_none() -> None:
    view = silent()
    view.wanted(["worker:0"], want="stop")
    assert orders.first_steps(view) == {}
    view = silent()
    views.told(view, "worker:0", state="succeeded")
    assert orders.first_steps(view) == {}


def test_the_lead_teaches_one_that_has_done_nothing_since_about_its_start() -> None:
    view = silent(since=1000.0, idle_since=1010.0)
    assert orders.first_steps(view) == {"worker:1": 9.0}, "its peers teach 4.0"
    views.told(view, "worker:0", step=None)
    assert orders.first_steps(view) == {"worker:1": 9.0}
    views.told(view, "worker:1", idle_since=1000.0 + orders.START_S + 9.0 * orders.STARTS)
    assert orders.first_steps(view) == {"worker:1": 9.0}
    views.told(view, "worker:1", idle_since=1000.1 + orders.START_S + 9.0 * orders.STARTS)
    assert orders.first_steps(view) == {}
    view.roster["worker:1"]["serves"] = True
    views.told(view, "worker:1", idle_since=1010.0)
    assert orders.first_steps(view) == {}


@pytest.mark.parametrize(
    ("task", "entry"),
    [("worker:1", {"since": None}), ("worker:1", {"idle_since": None}), ("chief:0", {"first_step_s": 0.0})],
    ids=["nobody knows since when it runs", "it works", "the lead has reported no steps"],
)
def test_the_lead_teaches_nothing_that_was_not_seen(task: str, entry: dict[str, Any]) -> None:
    view = silent(since=1000.0, idle_since=1010.0)
    views.told(view, "worker:0", step=None)
    views.told(view, task, **entry)
    assert orders.first_steps(view) == {}


def test_peers_are_of_the_same_job_and_the_slowest_of_them_teaches() -> None:
    places = {"chief:0": "c", "worker:0": "d", "worker:1": "d", "worker:2": "e", "other:0": "e"}
    view = views.running(places=places)
    views.told(view, "chief:0", step=1, first_step_s=9.0)
    view.roster["other:0"].update({"role": "worker"})
    views.told(view, "worker:1", step=1, first_step_s=4.0)
    views.told(view, "worker:2", step=1, first_step_s=6.0)
    assert orders.first_steps(view) == {"worker:0": 6.0}, "other:0 tells nothing, is of another job, and has no peers"
    views.told(view, "worker:2", step=None)
    assert orders.first_steps(view) == {}, "not every peer has reported a step"


def test_hundreds_of_silent_tasks_are_not_each_compared_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the lead alone tells steps, for as long as the run continues."""
    workers = 300
    view = views.running(places={"chief:0": "c", **{f"worker:{number}": f"w{number}" for number in range(workers)}})
    views.told(view, "chief:0", step=1, first_step_s=9.0)
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
    assert {host: (orders["mending"], orders["intents"]) for host, orders in changed.items()} == dict.fromkeys(
        "abcd", (True, {})
    )
    assert news(book, recovering=True) == {}
    assert all(orders["may_start"] is False for orders in news(book, may_start=False).values())
    assert set(news(book)) == set("abcd")


def test_after_another_hello_all_intents_are_sent_and_the_welcome_counts_as_sent() -> None:
    view = views.running()
    book = known(view)
    book.forget("a", may_start=True, kept=True)
    assert list(news(book)["a"]["intents"]) == ["ps:0"]
    book.forget("a", may_start=False, kept=True)
    book.confirm("a", {"ps:0": view.intents["ps:0"]})
    assert list(news(book, may_start=False)) == ["b", "c", "d"]
    assert list(news(book)) == ["a", "b", "c", "d"]


def test_an_agent_is_sent_that_the_run_is_kept_unless_its_hello_said_so() -> None:
    view = views.running()
    book = known(view)
    for host in "ab":
        book.forget(host, may_start=True, kept=False)
        book.confirm(host, {task: view.intents[task] for task in view.tasks_on(host)})
    book.forget("c", may_start=True, kept=True)
    book.confirm("c", {"chief:0": view.intents["chief:0"]})
    assert {host: orders["kept"] for host, orders in news(book).items()} == {"a": True, "b": True}
    assert news(book) == {}


def test_an_agent_is_released_once_and_again_after_another_hello() -> None:
    book = known(views.running())
    assert not book.is_over("a")
    assert {host: orders["over"] for host, orders in news(book, done=("a",)).items()} == {"a": True}
    assert (book.is_over("a"), book.is_over("b")) == (True, False)
    assert news(book, done=("a",)) == {}
    book.forget("a", may_start=True, kept=True)
    assert not book.is_over("a")
    assert news(book, done=("a",))["a"]["over"] is True
