"""Requests about a whole run, against a cluster.json that a test writes in the coordinator's place."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host.errors import Refused
from dtctl.agent.records.answers import StopResult, Survivor
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import because, fact, said, sentence
from dtctl.agent.records.requests import DrainRequest, RestartRequest, StopRequest, UndrainRequest
from dtctl.agent.records.run_state import Entry, IntentFile, State
from dtctl.agent.records.spec import Spec
from dtctl.agent.records.whole_run import Contact, Incident, PostedRequest, RunView
from dtctl.agent.requests import drain, run_handles, runs, stop
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.survival import reboot
from tests.unit.agent.test_records import LED
from tests.unit.holds import held as held_by

TASKS = {"ps:0": "b", "worker:0": "a", "worker:1": "c"}

View = dict[str, Any]


def condition(type_: str, reason: str) -> dict[str, Any]:
    return {"type": type_, "why": said(reason), "cause": None, "since": 1.0}


def state_of(host: str) -> State:
    own = {task: made(Entry, state="running") for task, place in TASKS.items() if place == host}
    return made(State, run="r-1", host=host, tasks=own)


class Coordinator:
    """cluster.json and the requests that lie before it; `does` is called with each look of a session."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.does: Callable[[Coordinator], None] = lambda _: None
        now = time.time()
        self.view: Any = made(
            RunView,
            serial=1,
            run="r-1",
            time=now,
            elapsed_s=1.0,
            phase="running",
            condition=condition("Running", "3 of 3 tasks run"),
            conditions=[],
            hosts={host: {"connected": True, "heard": now, "state": state_of(host)} for host in TASKS.values()},
            intents={task: {} for task in TASKS},
            incidents=[],
            restarts=0,
            request_serial=0,
            waits_for={"why": []},
        )
        self.save()

    def save(self) -> None:
        self.view["serial"] += 1
        (self.directory / "new").write_text(json.dumps(self.view))
        (self.directory / "new").rename(self.directory / "cluster.json")

    def requests(self) -> list[dict[str, Any]]:
        path = self.directory / "requests.json"
        found: list[dict[str, Any]] = json.loads(path.read_text())["requests"] if path.exists() else []
        return found

    def elect(self, host: str, term: int) -> None:
        """As this host knows the election: a, b and c vote."""
        RunFiles(str(self.directory)).write_ballot({"term": term, "voted": host, "coordinator": host, "last": host})

    def set(self, task: str, **fields: Any) -> None:
        self.view["hosts"][TASKS[task]]["state"]["tasks"][task].update(fields)

    def cut(self, host: str, heard: float) -> None:
        self.view["hosts"][host].update(connected=False, heard=heard)


class Run:
    """As `runs.Run`, with an agent that is always there."""

    def __init__(self, directory: Path, coordinator: Coordinator | None, host: str = "a") -> None:
        self.id = "r-1"
        self.files = RunFiles(str(directory))
        roster = [{"task": task, "host": place} for task, place in TASKS.items()]
        led = {**LED, "run": "r-1", "host": host, "grace_s": 0.1, "roster": roster, "tasks": []}
        voters = [{"host": name, "address": f"{name}:1", "port": 1} for name in ("a", "b", "c")]
        self.spec = made(Spec, **{**led, "voters": voters if (directory / "ballot.json").exists() else []})
        if self.spec["voters"]:
            (directory / "spec.json").write_text(json.dumps(self.spec))
        self._coordinator = coordinator

    def keep_supervised(self) -> None:
        if self._coordinator is not None:
            self._coordinator.does(self._coordinator)
            self._coordinator.save()

    def supervise(self) -> None:
        pass

    def live(self) -> bool:
        return True

    def supervised(self) -> bool:
        return True

    def finished(self) -> bool:
        return False

    def state(self) -> State:
        return made(State, run="r-1", host="a", tasks={})

    def survivors(self, tasks: list[str]) -> list[Survivor]:
        return []

    def intent(self) -> IntentFile:
        return made(IntentFile, serial=0, tasks={})

    def change(self, change: Callable[[IntentFile], None]) -> int:
        change(self.intent())
        return 0

    def until(self, done: Callable[[State], bool], limit_s: float) -> State | None:
        deadline = time.monotonic() + min(limit_s, 10.0)
        while not done(self.state()) and time.monotonic() < deadline:
            self.keep_supervised()
        return self.state() if done(self.state()) else None


class Talk:
    """A conversation that nobody breaks off."""

    root = "/nonexistent"

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, kind: str, frame: dict[str, Any]) -> None:
        self.sent.append(dict(frame, type=kind))

    def wait(self, done: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True


@pytest.fixture
def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator(tmp_path)
    monkeypatch.setattr(runs, "need", lambda talk, request: Run(tmp_path, made))
    monkeypatch.setattr(reboot, "offer", lambda root: None)
    monkeypatch.setattr(stop, "REACH_S", 0.2)
    monkeypatch.setattr(stop, "END_LIMIT_S", 2.0)
    monkeypatch.setattr(run_handles.WholeRun, "answer_s", 0.5)
    return made


REQUESTS: dict[Any, tuple[str, Any]] = {
    stop.stop: ("stop", StopRequest),
    stop.restart: ("restart", RestartRequest),
    drain.drain: ("drain", DrainRequest),
    drain.undrain: ("undrain", UndrainRequest),
}


def ask(function: Callable[..., Any], talk: Talk | None = None, **fields: Any) -> Any:
    name, record = REQUESTS[function]
    return function(talk or Talk(), made(record, type=name, cluster="c", host="a", **fields))


def obeys(coordinator: Coordinator) -> None:
    """Ends what it is asked to end, on hosts that it reaches."""
    for request in coordinator.requests():
        for task, host in TASKS.items():
            reached = coordinator.view["hosts"][host]["connected"]
            if reached and (request["tasks"] is None or task in request["tasks"]):
                coordinator.set(task, state="stopped")
        coordinator.view["request_serial"] = request["serial"]


def test_stop_of_what_has_ended_asks_for_nothing(coordinator: Coordinator) -> None:
    for task in TASKS:
        coordinator.set(task, state="stopped")
    answer = ask(stop.stop, tasks=None)
    assert (answer["stopped"], answer["already"]) == ([], list(TASKS))
    assert coordinator.requests() == []


def test_stop_names_hosts_that_are_away(coordinator: Coordinator) -> None:
    coordinator.does = obeys
    coordinator.cut("c", heard=time.time())
    answer = ask(stop.stop, tasks=None)
    assert (answer["stopped"], answer["unreached"]) == (["ps:0", "worker:0"], ["c"])


def test_stop_does_not_wait_for_a_host_that_has_long_been_away(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "REACH_S", 30.0)
    monkeypatch.setattr(stop, "END_LIMIT_S", 60.0)
    coordinator.does = obeys
    coordinator.cut("c", heard=time.time() - 3600.0)
    begun = time.monotonic()
    answer = ask(stop.stop, tasks=None)
    assert (answer["stopped"], answer["unreached"]) == (["ps:0", "worker:0"], ["c"])
    assert time.monotonic() - begun < 20.0


def takes(coordinator: Coordinator) -> None:
    """Knows of its requests, and nothing comes of it."""
    coordinator.view["request_serial"] = len(coordinator.requests())


def test_stop_reports_survivors(coordinator: Coordinator) -> None:
    coordinator.does = takes
    coordinator.set("ps:0", left=[{"pid": 7, "command": "stuck"}])
    answer = ask(stop.stop, tasks=["ps:0"], grace_s=0)
    assert answer["survivors"] == [{"task": "ps:0", "pid": 7, "command": "stuck"}]


def test_stop_does_not_wait_for_room_for_how_a_task_has_ended(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is gone, and its keeper cannot write that; the agent has the order not to start it again."""
    monkeypatch.setattr(stop, "END_LIMIT_S", 60.0)

    def obeys_without_room(one: Coordinator) -> None:
        obeys(one)
        one.set("ps:0", state="running", unwritten=True, pid=None)

    coordinator.does = obeys_without_room
    begun = time.monotonic()
    answer = ask(stop.stop, tasks=None)
    assert (answer["stopped"], answer["survivors"]) == (["ps:0", "worker:0", "worker:1"], [])
    assert coordinator.requests(), "it is asked to stop, or it would start again when there is room"
    assert time.monotonic() - begun < 20.0


def test_restart_does_not_wait_for_hosts_that_are_away(coordinator: Coordinator) -> None:
    def takes(one: Coordinator) -> None:
        for request in one.requests():
            one.view["intents"]["worker:1"]["generation"] = 2
            one.view["request_serial"] = request["serial"]

    coordinator.does = takes
    coordinator.cut("c", heard=time.time())
    answer = ask(stop.restart, tasks=["worker:1"], by="me")
    assert (answer["tasks"], answer["unreached"]) == ({}, ["c"])


def test_restart_does_not_wait_for_a_recovery_that_waits_for_a_host_that_is_away(coordinator: Coordinator) -> None:
    """Its tasks start together, and nobody knows when."""
    together = list(TASKS)
    lost = {"task": "worker:1", "host": "c", "attempt": 1, "tasks": together, "scope": "gang"}
    coordinator.view["incidents"] = [made(Incident, **lost, **NOTHING_YET)]
    for task in together:
        coordinator.view["intents"][task].update({"want": "hold", "generation": 2})
        coordinator.set(task, state="pending", generation=2)
    coordinator.does = takes
    coordinator.cut("c", heard=time.time() - 60.0)
    begun = time.monotonic()
    answer = ask(stop.restart, tasks=["ps:0"], by="me")
    assert time.monotonic() - begun < 10.0
    assert (list(answer["tasks"]), answer["unreached"]) == (["ps:0"], ["c"])


NOTHING_YET: dict[str, Any] = {
    "id": 1,
    "ended": 1.0,
    "noticed": 1.0,
    "own": False,
    "collateral": [],
    "step": None,
    "steps_at_restart": {},
    "back_to": None,
    "begun": None,
    "recovered": None,
    "given_up": None,
}


def test_a_run_that_is_decided_restarts_nothing(coordinator: Coordinator) -> None:
    coordinator.view["condition"] = condition("Succeeded", "worker:0 finished")
    coordinator.save()
    with pytest.raises(Refused, match="has ended: Succeeded") as refused:
        ask(stop.restart, tasks=["worker:1"])
    assert refused.value.code == "run_ended"


@pytest.mark.parametrize(
    ("why", "held", "hint"),
    [
        (
            fact("drained", host="c", by="anna@desk"),
            "c is drained by anna@desk",
            "dtctl undrain c    starts it again",
        ),
        (fact("cut_off", host="c"), "c was cut off from the coordinator", sentence([fact("lacks_voters")])),
    ],
)
def test_what_is_held_is_not_restarted(coordinator: Coordinator, why: Any, held: str, hint: str) -> None:
    coordinator.view["intents"]["worker:1"].update(held_by(why))
    coordinator.view["waits_for"] = because([fact("lacks_voters")])
    coordinator.save()
    with pytest.raises(Refused, match=f"worker:1 is held: {held}") as refused:
        ask(stop.restart, tasks=["worker:0", "worker:1"])
    assert refused.value.hint == hint


@pytest.mark.parametrize(("host", "what"), [("x", "x has no task in run r-1"), ("c", "c has no part in run r-1")])
def test_a_host_that_has_nothing_of_the_run_is_not_drained(coordinator: Coordinator, host: str, what: str) -> None:
    coordinator.view["hosts"]["c"]["absent"] = True
    coordinator.save()
    with pytest.raises(Refused, match=what):
        ask(drain.drain, drained=host, by="me")
    with pytest.raises(Refused, match=what):
        ask(drain.undrain, drained=host, by="me")


@pytest.mark.parametrize("function", [drain.drain, drain.undrain])
def test_of_a_host_without_a_task_the_coordinator_is_asked(coordinator: Coordinator, function: Any) -> None:
    coordinator.view["hosts"]["s"] = made(Contact)
    coordinator.save()
    coordinator.does = takes
    ask(function, drained="s", by="me")
    assert [(one["kind"], one["host"]) for one in coordinator.requests()] == [(REQUESTS[function][0], "s")]


def test_an_undrain_waits_for_no_host_that_is_away_and_that_all_need(coordinator: Coordinator) -> None:
    for task in TASKS:
        coordinator.view["intents"][task].update(held_by(fact("drained", host="c", by="anna@desk")))
        coordinator.set(task, state="pending")

    def takes(one: Coordinator) -> None:
        for request in one.requests():
            for task in TASKS:
                one.view["intents"][task].update(holds=[], released={"host": "c", "together": True})
            one.view["request_serial"] = request["serial"]

    coordinator.does = takes
    coordinator.cut("c", heard=time.time())
    answer = ask(drain.undrain, drained="c", by="me")
    assert answer["unreached"] == ["c"]
    assert {entry["state"] for entry in answer["tasks"].values()} == {"pending"}


@pytest.mark.parametrize(("silent_s", "over"), [(1.0, False), (60.0, True)])
def test_a_host_that_is_away_for_long_does_not_hold_up_the_end(
    coordinator: Coordinator, silent_s: float, over: bool
) -> None:
    coordinator.view["condition"]["type"] = "Succeeded"
    for task in ("ps:0", "worker:0"):
        coordinator.set(task, state="stopped")
    now = time.time()
    coordinator.cut("c", heard=now - silent_s)
    assert run_handles.is_over(coordinator.view, now) is over


def posted(kind: str, tasks: list[str] | None) -> PostedRequest:
    return made(PostedRequest, serial=0, kind=kind, tasks=tasks)


def test_a_cluster_json_that_does_not_hold_is_awaited_and_then_named(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_handles, "BIRTH_LIMIT_S", 0.2)
    whole = run_handles.WholeRun(Talk(), Run(coordinator.directory, None))  # type: ignore[arg-type]
    (coordinator.directory / "cluster.json").write_text(json.dumps({**coordinator.view, "restarts": "many"}))
    with pytest.raises(Refused, match="is damaged on this host") as refused:
        whole.refresh()
    assert refused.value.code == "damaged"
    assert "cluster.json is damaged: restarts: expected a whole number, 0 or more, found 'many'" in refused.value.detail
    coordinator.save()
    whole.refresh()
    assert whole.view is not None
    assert whole.view["restarts"] == 0


def test_hosts_and_tasks_that_cluster_json_does_not_tell_of_have_not_been_heard(coordinator: Coordinator) -> None:
    coordinator.does = takes
    del coordinator.view["hosts"]["c"], coordinator.view["intents"]["worker:1"]
    answer = ask(stop.stop, tasks=["worker:1"], grace_s=0)
    assert checked(StopResult, answer)["unreached"] == ["c"]


def test_cluster_json_is_read_again_only_when_it_has_changed(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_handles.WholeRun(Talk(), Run(coordinator.directory, None))  # type: ignore[arg-type]
    assert whole.peek() is whole.peek()
    coordinator.save()
    second = whole.peek()
    assert second is not None
    assert second["serial"] == coordinator.view["serial"]


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"serial": -1, "requests": []}', '{"serial": 1, "requests": [7]}'])
def test_requests_json_that_does_not_hold_is_put_aside_by_who_writes_next(
    coordinator: Coordinator, damaged: str
) -> None:
    (coordinator.directory / "requests.json").write_text(damaged)
    whole = run_handles.WholeRun(Talk(), Run(coordinator.directory, coordinator))  # type: ignore[arg-type]
    serial = whole._post(posted("stop", None))
    assert [one["serial"] for one in coordinator.requests()] == [serial]
    (aside,) = coordinator.directory.glob("requests.json.damaged-*")
    assert aside.read_text() == damaged


def test_a_coordinator_that_takes_nothing_is_not_asked_without_end(coordinator: Coordinator) -> None:
    requests = [posted("stop", None) | {"serial": number} for number in range(1, 1001)]
    (coordinator.directory / "requests.json").write_text(json.dumps({"serial": 1000, "requests": requests}))
    whole = run_handles.WholeRun(Talk(), Run(coordinator.directory, coordinator))  # type: ignore[arg-type]
    with pytest.raises(Refused, match="has not taken the last 1000 requests"):
        whole._post(posted("stop", None))


def test_requests_that_were_not_taken_yet_are_kept(coordinator: Coordinator) -> None:
    whole = run_handles.WholeRun(Talk(), Run(coordinator.directory, coordinator))  # type: ignore[arg-type]
    first = whole._post(posted("stop", ["ps:0"]))
    second = whole._post(posted("restart", ["ps:0"]))
    assert [one["serial"] for one in coordinator.requests()] == [first, second]
    coordinator.view["request_serial"] = second
    coordinator.save()
    third = whole._post(posted("stop", None))
    assert [one["serial"] for one in coordinator.requests()] == [third]


def test_where_the_coordinator_takes_no_requests_the_host_ends_its_own_and_says_why(coordinator: Coordinator) -> None:
    answer = ask(stop.stop, tasks=None, grace_s=0.1)
    assert answer["coordination"] is None
    assert answer["away"]["code"] == "not_answering"
    assert "has not taken the request" in answer["away"]["summary"]


@pytest.mark.parametrize("function", [stop.restart, drain.undrain])
def test_a_start_that_the_coordinator_does_not_take_is_left_to_the_hosts(
    coordinator: Coordinator, function: Callable[..., Any]
) -> None:
    coordinator.view["intents"]["worker:1"].update(held_by(fact("drained", host="c", by="anna@desk")))
    coordinator.save()
    fields: dict[str, Any] = {"tasks": ["ps:0"]} if function is stop.restart else {"drained": "c"}
    begun = time.monotonic()
    answer = ask(function, by="me", **fields)
    assert time.monotonic() - begun < 5.0
    assert answer["coordination"] is None
    assert answer["away"]["code"] == "not_answering"
    assert "has not taken the request" in answer["away"]["summary"]


@pytest.mark.parametrize("function", [stop.restart, drain.undrain])
def test_a_start_that_no_file_of_the_coordinator_can_hold_is_left_to_the_hosts(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
) -> None:
    coordinator.view["intents"]["worker:1"].update(held_by(fact("drained", host="c", by="anna@desk")))
    coordinator.save()

    def write_urgent(files: RunFiles, path: str, value: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunFiles, "write_urgent", write_urgent)
    fields: dict[str, Any] = {"tasks": ["ps:0"]} if function is stop.restart else {"drained": "c"}
    answer = ask(function, by="me", **fields)
    assert answer["coordination"] is None
    assert answer["away"]["summary"] == run_handles.FULL_DISK


@pytest.mark.parametrize(
    ("function", "fields"),
    [(stop.restart, {"tasks": ["ps:0"]}), (stop.stop, {"tasks": ["ps:0"], "grace_s": 30.0})],
)
def test_a_session_does_not_wait_for_a_coordinator_that_another_host_has_replaced(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], fields: dict[str, Any]
) -> None:
    """It has taken the request, and its view of the run does not change any more."""
    monkeypatch.setattr(run_handles, "COORDINATOR_LOOK_S", 0.1)
    coordinator.view["intents"]["ps:0"]["generation"] = 2
    coordinator.elect("a", term=1)

    def loses_its_term(one: Coordinator) -> None:
        if requests := one.requests():
            one.view["request_serial"] = len(requests)
            one.elect("b", term=2)

    coordinator.does = loses_its_term
    begun = time.monotonic()
    answer = ask(function, by="me", **fields)
    assert time.monotonic() - begun < 10.0
    assert (answer["coordination"], answer["away"]["summary"]) == (None, "b coordinates the run now")


def test_a_coordinator_without_a_sign_of_life_does_not_answer(coordinator: Coordinator) -> None:
    coordinator.view["time"] -= 60
    answer = ask(stop.stop, tasks=None, grace_s=0.1)
    assert (answer["coordination"], answer["away"]["code"]) == (None, "not_answering")
    assert "has been silent for 6" in answer["away"]["summary"]


def test_another_host_answers_for_itself(tmp_path: Path) -> None:
    own = run_handles.reached(Talk(), Run(tmp_path, None, host="b"))  # type: ignore[arg-type]
    assert (own.view, own.away) == (None, None)


def test_stop_never_passes_over_a_task_that_has_not_ended_in_time(coordinator: Coordinator) -> None:
    coordinator.does = takes
    coordinator.set("worker:1", pid=77)
    answer = ask(stop.stop, tasks=["worker:1"], grace_s=0.1)
    assert answer["survivors"] == [{"task": "worker:1", "pid": 77, "command": "(not ended in time)"}]
    assert answer["stopped"] == answer["already"] == []
