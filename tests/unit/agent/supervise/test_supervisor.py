"""A supervisor that takes part in a run of several hosts: orders, and when it may go. No process is started."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dtctl.agent.host import paths, processes, wake
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import said
from dtctl.agent.records.run_state import Entry, Intent, Intents, Process, Start, State
from dtctl.agent.run import intents
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise import keeper, supervisor
from dtctl.agent.supervise.context import TaskContext
from dtctl.agent.supervise.supervisor import Supervisor
from dtctl.agent.supervise.task import Task
from tests.reasons import reason_of
from tests.unit.agent.coordinate.slots import moved, on, with_spares
from tests.unit.agent.supervise import supervised
from tests.unit.agent.supervise.supervised import QuietRole, ScriptedRole
from tests.waiting import PATIENCE_S, eventually

TASKS = ("ps:0", "worker:0")
COORDINATES = {"host": "h1", "address": "10.0.0.1:2221", "port": 2221}
MANY_LOOKS = 50


class TooManyLooks(Exception):
    """The supervisor does not go."""


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(str(tmp_path / "runs" / "r" / "h1"))
    coordinator = {"host": "h2", "address": "10.0.0.2:2221", "port": 2221}
    spec = supervised.spec(*[supervised.task(task) for task in TASKS], coordinator=coordinator)
    files.begin(files.stage(spec, {}, {"PATH": "/bin"}, processes.myself()), spec)
    keep(files)
    return files


def keep(files: RunFiles, session: Process | None = None) -> None:
    paths.write_json(files.intent_path, {**files.intent(), "session": session})


def supervise(files: RunFiles, role: ScriptedRole, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True when the supervisor has gone by itself."""
    looks = iter(range(MANY_LOOKS))

    def update() -> None:
        if next(looks, None) is None:
            raise TooManyLooks

    monkeypatch.setattr(supervisor, "take_role", lambda *_, **__: role)
    try:
        Supervisor(files).run(update)
    except TooManyLooks:
        role.close()
        return False
    assert role.closed
    return True


def stop(version: int) -> Intents:
    return {task: supervised.intent("stop", version, why=said("enough")) for task in TASKS}


def test_tasks_of_a_new_run_are_held(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not supervise(files, ScriptedRole(lambda *_: None), monkeypatch)
    state = files.state()["tasks"]
    assert [(state[task]["state"], state[task]["attempt"], state[task]["version"]) for task in TASKS] == [
        ("pending", 0, 1)
    ] * 2
    assert files.events.count == 0


def test_an_order_is_written_and_carried_out_at_once(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def coordinator(role: ScriptedRole, state: State) -> Intents | None:
        seen.append({task: entry["state"] for task, entry in state["tasks"].items()})
        role.over = role.steps == 2
        return stop(2)

    assert supervise(files, ScriptedRole(coordinator), monkeypatch)
    assert seen == [dict.fromkeys(TASKS, "pending"), dict.fromkeys(TASKS, "stopped")]
    assert [intent["want"] for intent in files.intent()["tasks"].values()] == ["stop", "stop"]
    assert files.state()["finished"] is True
    assert [event["to"] for event in files.events.since(0)] == ["stopped", "stopped"]


@pytest.mark.parametrize(
    ("orders", "over", "connected"),
    [
        (stop(2), False, True),
        (None, True, True),
        ({**stop(2), "worker:0": supervised.intent("finish", 2, why=said("enough"))}, False, False),
    ],
    ids=["the run is not over", "tasks are not final", "one is to finish"],
)
def test_an_agent_stays(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch, orders: Intents | None, over: bool, connected: bool
) -> None:
    def coordinator(role: ScriptedRole, state: State) -> Intents | None:
        role.over, role.connected = over, connected
        return orders

    assert not supervise(files, ScriptedRole(coordinator), monkeypatch)
    assert files.state()["finished"] is False


@pytest.mark.parametrize(("await_s", "goes"), [(86400.0, False), (0.0, True)])
def test_an_agent_that_was_stopped_waits_for_the_coordinator_but_not_for_ever(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch, await_s: float, goes: bool
) -> None:
    def cable_cut(role: ScriptedRole, state: State) -> Intents | None:
        role.connected = False
        return stop(2) if role.steps == 1 else None

    monkeypatch.setattr(intents, "AWAIT_S", await_s)
    assert supervise(files, ScriptedRole(cable_cut), monkeypatch) is goes


def test_an_agent_that_is_revived_after_its_end_goes_again(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def coordinator(role: ScriptedRole, state: State) -> Intents | None:
        role.over = role.steps == 2
        return stop(2)

    def nobody(role: ScriptedRole, state: State) -> None:
        role.connected = False

    assert supervise(files, ScriptedRole(coordinator), monkeypatch)
    assert supervise(files, ScriptedRole(nobody), monkeypatch)


@pytest.mark.parametrize(("jump_s", "since"), [(3600.0, 8600.0), (-3600.0, 1400.0), (5.0, 5000.0), (-8000.0, 0.0)])
def test_times_move_with_a_wall_clock_that_is_set(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch, jump_s: float, since: float
) -> None:
    entries = {task: made(Entry, state="stopped", since=5000.0) for task in TASKS}
    paths.write_json(files.state_path, made(State, run="r", host="h1", tasks=entries))
    right = time.time

    def set_clock(role: ScriptedRole, state: State) -> None:
        monkeypatch.setattr(time, "time", lambda: right() + jump_s)

    assert not supervise(files, ScriptedRole(set_clock), monkeypatch)
    assert [entry["since"] for entry in files.state()["tasks"].values()] == pytest.approx([since] * len(TASKS))


LOST = "the controller was lost before the start was complete"


@pytest.mark.parametrize(
    ("part", "over", "reason", "goes"),
    [
        ({}, False, "", False),
        ({"absent": ["h1"]}, False, LOST, True),
        ({"coordinator": COORDINATES}, False, LOST, False),
        ({"coordinator": COORDINATES}, True, LOST, True),
    ],
    ids=["the coordinator decides", "it joins", "it has to inform others", "it has informed others"],
)
def test_agent_cancels_the_start_after_controller_loss_unless_a_coordinator_decides(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch, part: dict[str, Any], over: bool, reason: str, goes: bool
) -> None:
    def cable_cut(role: ScriptedRole, state: State) -> None:
        role.connected, role.over = bool(part), over

    paths.write_json(files.path("spec.json"), {**files.spec(), **part})
    keep(files, {**processes.myself(), "start_time": 1})
    assert supervise(files, ScriptedRole(cable_cut), monkeypatch) is goes
    assert {reason_of(entry) for entry in files.state()["tasks"].values()} == {reason}


@pytest.mark.parametrize(
    ("lost", "silent_s", "over", "asked", "goes"),
    [
        (False, 0.0, False, None, False),
        (False, 0.0, True, None, True),
        (False, 9e4, False, None, True),
        (True, 700.0, False, None, True),
        (False, 0.0, False, {"by": "ada"}, True),
    ],
    ids=["waits", "the run is over", "nobody calls for a day", "the start was given up", "a person ends the run"],
)
def test_a_host_without_tasks_stays_until_its_run_is_over(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch, lost: bool, silent_s: float, over: bool, asked: Any, goes: bool
) -> None:
    def script(role: ScriptedRole, state: State) -> None:
        role.connected, role.silence_s, role.over = not silent_s, silent_s, over

    roster: Any = [{**member, "host": "h2"} for member in files.spec()["roster"]]
    paths.write_json(files.path("spec.json"), {**files.spec(), "tasks": [], "roster": roster})
    paths.write_json(files.state_path, {**files.state(), "tasks": {}})
    paths.write_json(files.intent_path, {**files.intent(), "ends_run": asked})
    keep(files, {**processes.myself(), "start_time": 1} if lost else None)
    assert supervise(files, ScriptedRole(script), monkeypatch) is goes


def spread(tmp_path: Path, host: str) -> RunFiles:
    """A run of a spare, s, and two hosts with a task each."""
    files = RunFiles(str(tmp_path / "runs" / "demo-1" / host))
    spec = on(with_spares("async-ps", {"chief:0": "a", "worker:0": "b"}, "s"), host)
    files.begin(files.stage(spec, {}, {"PATH": "/bin"}, processes.myself()), spec)
    keep(files)
    return files


def moves(role: ScriptedRole, state: State) -> None:
    """Another host has the place of b."""
    role.moved = moved(b="s")


def test_agent_of_a_spare_restarts_with_the_tasks_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = spread(tmp_path, "s")
    assert supervise(files, ScriptedRole(moves), monkeypatch)
    assert not files.state()["finished"], "its guard starts another"
    assert not supervise(files, ScriptedRole(lambda *_: None), monkeypatch)
    assert list(files.state()["tasks"]) == ["worker:0"]
    assert files.events.count == 0, "nothing was damaged"


def test_replaced_host_ends_its_tasks_before_its_agent_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = spread(tmp_path, "b")
    assert supervise(files, ScriptedRole(moves), monkeypatch)
    [event] = files.events.since(0)
    assert (event["task"], event["to"], reason_of(event)) == ("worker:0", "stopped", "another host has the place of b")
    assert not supervise(files, ScriptedRole(lambda *_: None), monkeypatch)
    assert (files.state()["tasks"], files.intent()["tasks"]) == ({}, {})


def test_a_host_that_is_cut_off_holds_its_tasks_with_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(role: ScriptedRole, state: State) -> None:
        role.connected, role.grace_s = False, 3.0

    files = spread(tmp_path, "b")
    assert not supervise(files, ScriptedRole(silent), monkeypatch)
    [intent] = files.intent()["tasks"].values()
    assert (intent["want"], intent["grace_s"], reason_of(intent)) == (
        "hold",
        3.0,
        "b was cut off from the coordinator",
    )
    assert intent["version"] == 2, "once"


@pytest.mark.parametrize("why", ["full disk", "moves of another run"])
def test_agent_that_cannot_restart_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def orders(role: ScriptedRole, state: State) -> None:
        role.moved = moved(b="s") if why == "full disk" else moved(x="s")

    files = spread(tmp_path, "s")
    if why == "full disk":
        monkeypatch.setattr(RunFiles, "write_moved", Mock(side_effect=OSError(28, "no space")))
    assert not supervise(files, ScriptedRole(orders), monkeypatch)
    assert files.spec()["moved"]["number"] == 0


def test_an_unchanged_state_keeps_its_serial(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    serials: list[int] = []
    supervise(files, ScriptedRole(lambda _, state: serials.append(state["serial"])), monkeypatch)
    assert len(serials) == MANY_LOOKS
    assert len(set(serials)) == 1


def test_a_wake_up_ends_the_wait(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """By it the end of a trainer is noticed at once, and not only at the next look."""
    monkeypatch.setattr(supervisor, "LONGEST_WAIT_S", 1000.0)
    monkeypatch.setattr(Task, "due", lambda _, now: now + 1000.0)
    role = QuietRole()
    role.over = True
    monkeypatch.setattr(supervisor, "take_role", lambda *_, **__: role)
    thread = threading.Thread(target=lambda: Supervisor(files).run(lambda: None), daemon=True)
    thread.start()
    eventually(lambda: files.state()["agent"])  # written right before it waits
    paths.write_json(files.intent_path, {**files.intent(), "serial": 2, "tasks": stop(2)})
    wake.ring(files.wake_path)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert files.state()["finished"] is True


RUN = supervised.intent("run")
HOLD = supervised.intent("hold")


class Failing:
    """A task whose attempts end with exit code 3 as soon as they are begun."""

    def __init__(self, directory: Path, **recovery: float) -> None:
        given = supervised.recovery(**{"max_restarts": 9, "backoff_min_s": 0.0, **recovery})
        spec = supervised.spec(supervised.task("worker:0"), recovery=given)
        around = TaskContext(
            RunFiles(str(directory)), spec, {"PATH": "/bin"}, {}, lambda *_, **__: None, lambda _: None
        )
        self.task = Task(spec["tasks"][0], made(Entry), around, 100.0, 0.0)

    def step(self, intent: Intent, now: float) -> tuple[str, int]:
        self.task.step(intent, now, now)
        return self.task.entry["state"], self.task.entry["attempt"]


@pytest.fixture(autouse=True)
def attempts_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(launch: keeper.AttemptSpec) -> None:
        paths.write_json(f"{launch.directory}/start.json", made(Start, started=1.0))
        paths.write_json(f"{launch.directory}/exit.json", supervised.code(3))

    monkeypatch.setattr(keeper, "launch", fail)


def test_without_a_back_off_the_next_attempt_is_due_at_once(tmp_path: Path) -> None:
    failing = Failing(tmp_path)
    assert failing.step(RUN, 100.0) == ("starting", 1)
    assert failing.step(RUN, 100.1) == ("backoff", 1)
    assert failing.task.due(100.1) <= 100.1
    assert failing.step(RUN, 100.1) == ("starting", 2)


def test_the_next_attempt_is_due_when_the_back_off_ends(tmp_path: Path) -> None:
    failing = Failing(tmp_path, backoff_min_s=30.0)
    failing.task.entry["restarts"] = 1
    failing.step(RUN, 100.0)
    failing.step(RUN, 100.0)
    due = failing.task.due(100.0)
    assert 130.0 <= due <= 133.0
    assert failing.step(RUN, due - 0.1) == ("backoff", 1)
    assert failing.step(RUN, due) == ("starting", 2)


def test_task_held_in_backoff_is_not_due(tmp_path: Path) -> None:
    failing = Failing(tmp_path)
    failing.step(RUN, 100.0)
    failing.step(RUN, 100.0)
    assert failing.step(HOLD, 200.0) == ("backoff", 1)
    assert failing.task.due(200.0) == 201.0
    assert failing.step(RUN, 201.0) == ("starting", 2)


@pytest.mark.parametrize(("role", "held"), [("worker", True), ("lead", True), ("evaluator", True), ("ps", False)])
def test_whatever_acts_by_itself_is_held_and_a_ps_is_not(tmp_path: Path, role: str, held: bool) -> None:
    task = Failing(tmp_path).task
    task._context.holds = True
    task._context.members[task.id]["role"] = role  # type: ignore[typeddict-item]
    assert task._holds is held
