"""The outcome of a run whose coordinator is unreachable: the coordinator's own answer, from the states."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from dtctl.agent.coordinate.coordinator import Coordinator
from dtctl.agent.coordinate.recovery import Services
from dtctl.agent.coordinate.view import first_view
from dtctl.agent.records.answers import StatusResult
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.messages import PROTOCOL, Hello
from dtctl.agent.records.reasons import read, said, sentence
from dtctl.agent.records.run_state import Entry, Exit, Intent, Past
from dtctl.agent.records.spec import Spec, inventory_of
from dtctl.agent.records.values import FINAL
from dtctl.agent.run.outcome import DECIDED
from dtctl.errors import TransportError
from dtctl.model import TaskId, TaskState
from dtctl.operations.snapshot import Outcome, RunStatus, Verdict, verdict_by_hosts
from dtctl.operations.status import status
from dtctl.rooms.metrics.operation import Metrics, Point, Series
from dtctl.rooms.pages.comparing import Comparison, Metric, compare, compared
from dtctl.rooms.pages.comparing_document import comparison
from tests.fuzz import cases
from tests.unit.agent.coordinate.world import spec_of
from tests.unit.coordinated import Agents, entry, record, state_of, with_states
from tests.unit.fakes import FakeTransport
from tests.unit.tasks import past_attempt, task_status

PLACES = {
    "async-ps": {"ps:0": "a", "chief:0": "b", "worker:0": "c", "worker:1": "a", "evaluator:0": "d"},
    "collective": {"worker:0": "a", "worker:1": "b", "worker:2": "c", "evaluator:0": "b"},
}
ENDLESS = {"max_restarts": 10**6, "max_run_restarts": 10**6}
"""Budgets, of which no controller knows."""

STATES = ("pending", "starting", "running", "backoff", "stalled", *FINAL)
moments = st.integers(1, 5).map(float)
ends = st.builds(
    lambda ended, code, asked: made(Past, attempt=1, started=0.0, ended=ended, code=code, asked=asked),
    moments,
    st.sampled_from([0, 1, None]),
    st.booleans(),
)
entries = st.builds(
    lambda state, generation, since, history, reason, code: made(
        Entry,
        state=state,
        generation=generation,
        since=since,
        history=history,
        why=said(reason),
        exit=None if code is None else made(Exit, code=code),
    ),
    st.sampled_from([*STATES, *FINAL, *FINAL]),
    st.integers(1, 2),
    moments,
    st.lists(ends, max_size=3),
    st.sampled_from(["", "stalled: no step"]),
    st.sampled_from([None, 0, 3]),
)
intents = st.builds(
    lambda want, generation, version, reason: made(
        Intent, want=want, generation=generation, version=version, why=said(reason), by="me"
    ),
    st.sampled_from(["run", "run", "hold", "finish", "stop", "stop"]),
    st.sampled_from([1, 1, 2]),
    st.integers(2, 9),
    st.sampled_from(["", "by me"]),
)

Tasks = Mapping[str, tuple[Entry, Intent]]


@st.composite
def runs(draw: st.DrawFn) -> tuple[Spec, Tasks]:
    strategy = draw(st.sampled_from(sorted(PLACES)))
    places = PLACES[strategy]
    fields = {"fail_fast": draw(st.booleans()), "needs_checkpoint": False, "recovery": ENDLESS}
    everything_stops = draw(st.booleans())
    tasks = {task: (draw(entries), draw(intents)) for task in places}
    for _, intent in tasks.values():
        intent["want"] = "stop" if everything_stops else intent["want"]
    return spec_of(strategy, places, **fields), tasks


def host_files(spec: Spec, tasks: Tasks, host: str) -> tuple[dict[str, Any], dict[str, Intent]]:
    """A host's state.json and what is wanted of its tasks."""
    own = [member["task"] for member in spec["roster"] if member["host"] == host]
    return state_of(host, {task: tasks[task][0] for task in own}, spec["run"]), {task: tasks[task][1] for task in own}


def of_the_coordinator(spec: Spec, tasks: Tasks, hosts: list[str]) -> Verdict:
    """What the coordinator makes of it that hears these hosts for the first time."""
    coordinator = Coordinator(spec, first_view(spec, 1.0), Services(lambda: None, lambda: 0.0), now=1.0)
    for host in hosts:
        state, wanted = host_files(spec, tasks, host)
        agent = {"pid": 1, "start_time": 1, "boot_id": "b"}
        known = {"state": state, "intents": wanted, "kept": True, "lost_session": False, "stop_run": None}
        hello = {"type": "hello", "v": PROTOCOL, "run": spec["run"], "host": host, "agent": agent, "events": 0, **known}
        coordinator.receive(host, checked(Hello, json.loads(json.dumps(hello))), 1.0, 1.0)
    coordinator.step(1.0, 1.0)
    found = coordinator.view.data["condition"]
    return Verdict.of_condition(found)


def of_the_controller(spec: Spec, tasks: Tasks, hosts: list[str]) -> Verdict:
    answers = {}
    for host in hosts:
        state, wanted = host_files(spec, tasks, host)
        answer = {"run": spec["run"], "time": 1.0, "inventory": inventory_of(spec), "state": state, "intents": wanted}
        answers[host] = checked(StatusResult, json.loads(json.dumps(answer)))
    return verdict_by_hosts(inventory_of(spec), answers)


@cases
@given(run=runs(), lost=st.sets(st.sampled_from("abcd"), max_size=2))
def test_agent_and_controller_judge_the_same_facts_alike(run: tuple[Spec, Tasks], lost: set[str]) -> None:
    spec, tasks = run
    hosts = [host for host in dict.fromkeys(member["host"] for member in spec["roster"]) if host not in lost]
    coordinator, controller = (of(spec, tasks, hosts) for of in (of_the_coordinator, of_the_controller))
    event(controller.outcome.value)
    if is_of_reachable_hosts(controller):
        assert coordinator.outcome is controller.outcome or not coordinator.outcome.decided
    elif controller.outcome.decided or coordinator.outcome.decided:
        assert controller == coordinator


def is_of_reachable_hosts(verdict: Verdict) -> bool:
    """It says itself that it may be another one once all hosts can be asked."""
    return any(read(one)["kind"] == "hosts_unreachable" for one in verdict.why)


@cases
@given(run=runs(), lost=st.sets(st.sampled_from("abcd"), min_size=1, max_size=3))
def test_an_outcome_with_unreachable_hosts_holds_when_all_answer(run: tuple[Spec, Tasks], lost: set[str]) -> None:
    spec, tasks = run
    every = list(dict.fromkeys(member["host"] for member in spec["roster"]))
    here = of_the_controller(spec, tasks, [host for host in every if host not in lost])
    known = of_the_controller(spec, tasks, every)
    deciders = {member["host"] for member in spec["roster"] if member["decides"]}
    event(here.outcome.value)
    if is_of_reachable_hosts(here):
        own = [member["task"] for member in spec["roster"] if member["host"] not in lost]
        assert all(tasks[task][1]["want"] == "stop" and tasks[task][0]["state"] in FINAL for task in own)
    elif here.outcome is Outcome.SUCCEEDED:
        assert known == here
    elif here.outcome is Outcome.STOPPED:
        assert known.outcome in (Outcome.STOPPED, Outcome.FAILED)  # a lost task is not guessed to have failed
    elif here.outcome is Outcome.FAILED:
        assert {member["task"]: member["host"] for member in spec["roster"]}[str(here.cause)] not in lost
        assert known.outcome is Outcome.FAILED or lost & deciders


def asked(tasks: Mapping[str, dict[str, Any]], *unreachable: str, beside: str = "") -> RunStatus:
    """Of a run without a coordinator, with these tasks for running ones; `beside`: one that nobody trains with."""

    def reported(host: str, answer: dict[str, Any]) -> dict[str, Any]:
        for member in answer["inventory"]["roster"]:
            member["vital"] = member["task"] != beside
        return with_states(answer, {task: tasks[task] for task in answer["state"]["tasks"] if task in tasks})

    transport = FakeTransport(Agents(reported=reported), dict.fromkeys(unreachable, TransportError("no route")))
    return status(record(), transport)


def verdict_of(found: RunStatus) -> tuple[Outcome, str, TaskId | None]:
    return found.verdict.outcome, sentence(found.verdict.why), found.verdict.cause


def test_an_evaluator_that_has_failed_is_no_failure_of_the_run() -> None:
    failed = {"worker:1": entry("failed", why=said("exit code 1"))}
    assert verdict_of(asked(failed)) == (Outcome.FAILED, "worker:1 failed: exit code 1", TaskId("worker", 1))
    found = asked(failed, beside="worker:1")
    assert verdict_of(found) == (Outcome.RUNNING, "3 of 4 tasks run", None)
    assert found.tasks[TaskId("worker", 1)].state is TaskState.FAILED


@pytest.mark.parametrize(
    ("states", "unreachable", "verdict"),
    [
        ("running running succeeded running", "", (Outcome.SUCCEEDED, "worker:0 finished", None)),
        ("running running running succeeded", "", (Outcome.RUNNING, "3 of 4 tasks run", None)),
        ("pending pending pending starting", "", (Outcome.CREATED, "no task runs yet", None)),
        ("pending pending pending starting", "d", (Outcome.RUNNING, "0 of 4 tasks run", None)),
        ("running backoff running running", "", (Outcome.RESTARTING, "ps:1: exit code 3", None)),
        ("running running running running", "c", (Outcome.RUNNING, "3 of 4 tasks run", None)),
        ("running failed running running", "b", (Outcome.RUNNING, "3 of 4 tasks run", None)),
    ],
)
def test_a_run_is_described_by_its_outcome(
    states: str, unreachable: str, verdict: tuple[Outcome, str, TaskId | None]
) -> None:
    how = {"backoff": {"exit": made(Exit, code=3)}}
    tasks = {
        task: entry(state, **how.get(state, {}))
        for task, state in zip(("ps:0", "ps:1", "worker:0", "worker:1"), states.split(), strict=True)
    }
    assert verdict_of(asked(tasks, *unreachable)) == verdict


def test_a_final_outcome_is_reported_once() -> None:
    assert {state.value for state in TaskState if state.final} == set(FINAL)
    assert {state.value for state in TaskState} == {*STATES, "lost"}
    assert {outcome.value for outcome in Outcome if outcome.decided} == set(DECIDED)


def run(name: str, *tasks: Any, time: float = 1100.0, **settings: str) -> RunStatus:
    known = dataclasses.replace(record(name), settings={key.replace("_", "."): text for key, text in settings.items()})
    return RunStatus(known, {one.id: one for one in tasks}, Verdict(Outcome.RUNNING, ()), (), time)


def series(tag: str, *values: float, name: str = ".", every_s: float = 2.0) -> Series:
    points = tuple(Point(10 * index, 1000.0 + every_s * index, value) for index, value in enumerate(values))
    finite = [value for value in values if value == value]
    return Series(tag, name, "c", "/out", points, len(points), min(finite, default=None), max(finite, default=None))


def scalars(*found: Series) -> Metrics:
    return Metrics("digits-1", found)


def test_only_differences_are_shown_and_an_unset_key_differs_from_a_set_one() -> None:
    runs = [run("r-1", rate="0.1", grace="30s"), run("r-2", rate="0.5", grace="30s", steps="9")]
    found = Comparison({str(one.record.run): compared(one, scalars()) for one in runs}, {})
    assert found.differences == {"rate": ("0.1", "0.5"), "steps": (None, "9")}
    assert comparison(found)["differences"][1] == {"key": "steps", "values": {"r-1": None, "r-2": "9"}}


def test_other_hosts_differ_by_what_the_hosts_report() -> None:
    moved = run("r-2", jobs_ps_hosts="as it is written")
    moved = dataclasses.replace(
        moved, record=dataclasses.replace(moved.record, roster=dict.fromkeys(moved.record.roster, "e"))
    )
    found = Comparison({"r-1": compared(run("r-1"), scalars()), "r-2": compared(moved, scalars())}, {})
    assert found.differences["jobs.ps.hosts"] == ("a b", "e e")


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (series("loss", 3, 1, 2), {"loss": Metric(2, 1)}),
        (series("val_error", 3, 1, 2), {"val_error": Metric(2, 1)}),
        (series("accuracy", 0.1, 0.9, 0.8), {"accuracy": Metric(0.8, 0.9)}),
        (series("mae", 3, 1, 2, name="eval"), {"mae (eval)": Metric(2, 1)}),
        (series("loss", 2, name="train"), {"loss": Metric(2, 2)}),
        (series("global_step/sec", 3, 1), {}),
        (series("loss"), {}),
    ],
)
def test_the_best_of_a_loss_is_its_least_and_of_anything_else_its_most(one: Series, expected: Any) -> None:
    assert compared(run("r-1"), scalars(one)).metrics == expected


def test_of_two_directories_of_one_name_the_coordinators_counts() -> None:
    assert compared(run("r-1"), scalars(series("loss", 1), series("loss", 9))).metrics == {"loss": Metric(1, 1)}


def test_the_pace_is_that_of_the_scalars_or_else_the_last_one_in_the_leads_log() -> None:
    tasks = [task_status("ps:0", rate=7.0), task_status("worker:0", rate=5.0, restarts=2)]
    assert compared(run("r-1", *tasks), scalars(series("loss", 3, 2, 1))).steps_per_s == 5.0
    assert compared(run("r-1", *tasks), scalars(series("loss", 3))).steps_per_s == 5.0
    assert compared(run("r-1", task_status("ps:0", rate=7.0)), scalars()).steps_per_s == 7.0
    assert compared(run("r-1"), scalars()).steps_per_s is None


def test_the_duration_ends_with_the_last_task_or_is_still_counted() -> None:
    ended = task_status("worker:0", state="failed", history=[past_attempt(1, 1001.0, 1042.0, 1)])
    over = dataclasses.replace(run("r-1", ended), verdict=Verdict(Outcome.FAILED, ()))
    assert compared(over, scalars()).duration_s == 42.0
    assert compared(run("r-1"), scalars()).duration_s == 100.0
    assert compared(run("r-1", time=0.0), scalars()).duration_s is None


def test_a_run_whose_hosts_do_not_answer_leaves_the_others() -> None:
    agents = Agents(None)

    def answer(session: Any, fields: Any) -> Any:
        if fields["run"] == "digits-2":
            raise TransportError("c is down")
        if fields["type"] == "metrics":
            reported = {"time": 1.0, "dirs": [], "problems": [], "unread_bytes": 0, "omitted": 0, "folders": []}
            return [{"type": "result", "run": "digits-1", **reported}]
        if fields["type"] in ("logs", "speed"):  # curves of a log, and the parts of a step
            return [TransportError("a is down")]
        return agents(session, fields)

    found = compare([record("digits-1"), record("digits-2")], FakeTransport(answer))
    assert list(found.runs) == ["digits-1"]
    assert [error.summary for error in found.errors.values()] == ["c is down"]
