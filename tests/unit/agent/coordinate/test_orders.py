"""What a task's peers tell of how long it may be silent before its first step."""

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


def test_one_whose_peers_have_all_told_steps_is_known_to_be_silent() -> None:
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


def test_the_lead_is_nobodys_peer_and_has_none() -> None:
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
    ids=["nobody knows since when it runs", "it works", "the lead has told no steps"],
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
    assert orders.first_steps(view) == {}, "not every peer has told a step"


def test_hundreds_of_silent_tasks_are_not_each_compared_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the lead alone tells steps, for as long as the run goes on."""
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
    assert book.news(recovering=False, done=(), may_start=True) == []
    assert len(looks) < 10 * workers
