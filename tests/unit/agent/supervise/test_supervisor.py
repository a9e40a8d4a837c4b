"""A supervisor that takes part in a run of several hosts: orders, and when it may go. No process is started."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dtctl.agent.host import fifo, paths, processes
from dtctl.agent.records.run_state import Intents, Process, State
from dtctl.agent.run import intents
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise import supervisor
from dtctl.agent.supervise.supervisor import Supervisor
from dtctl.agent.supervise.task import Task
from tests.unit.agent.supervise import supervised
from tests.unit.agent.supervise.scripted import QuietRole, ScriptedRole
from tests.waiting import PATIENCE_S, eventually

TASKS = ("ps:0", "worker:0")
MANY_LOOKS = 50


class TooManyLooks(Exception):
    """The supervisor does not go."""


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(str(tmp_path / "runs" / "r" / "h1"))
    coordinator = {"host": "h2", "address": "10.0.0.2:2221", "port": 2221}
    spec = supervised.spec(*[supervised.task(task) for task in TASKS], coordinator=coordinator)
    files.stage(spec, {}, {"PATH": "/bin"}, processes.myself())
    files.begin(spec)
    keep(files)
    return files


def keep(files: RunFiles, session: Process | None = None) -> None:
    paths.write_json(files.intent_path, {**files.intent(), "session": session})


def supervise(files: RunFiles, role: ScriptedRole, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True when the supervisor has gone by itself."""
    looks = iter(range(MANY_LOOKS))

    def look() -> None:
        if next(looks, None) is None:
            raise TooManyLooks

    monkeypatch.setattr(supervisor, "take_role", lambda *_: role)
    try:
        Supervisor(files).run(look)
    except TooManyLooks:
        role.close()
        return False
    assert role.closed
    return True


def stop(version: int) -> Intents:
    return {task: supervised.intent("stop", version, reason="enough") for task in TASKS}


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


def test_an_agent_stays_until_it_is_told_that_the_run_is_over(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    role = ScriptedRole(lambda *_: stop(2))
    assert not supervise(files, role, monkeypatch)
    assert files.state()["finished"] is False


def test_over_is_not_enough_while_tasks_are_not_final(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def coordinator(role: ScriptedRole, state: State) -> None:
        role.over = True

    assert not supervise(files, ScriptedRole(coordinator), monkeypatch)


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


def test_an_agent_whose_controller_was_lost_during_the_start_goes(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cable_cut(role: ScriptedRole, state: State) -> None:
        role.connected = False

    keep(files, {**processes.myself(), "start_time": 1})
    assert supervise(files, ScriptedRole(cable_cut), monkeypatch)
    reasons = {entry["reason"] for entry in files.state()["tasks"].values()}
    assert reasons == {"the controller was lost before the start was complete"}


def test_an_agent_that_is_only_out_of_reach_stays(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def cable_cut(role: ScriptedRole, state: State) -> Intents | None:
        role.connected = False
        return {"ps:0": stop(2)["ps:0"], "worker:0": {**stop(2)["worker:0"], "want": "finish"}}

    assert not supervise(files, ScriptedRole(cable_cut), monkeypatch)


def test_a_state_without_news_keeps_its_serial(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    serials: list[int] = []
    supervise(files, ScriptedRole(lambda _, state: serials.append(state["serial"])), monkeypatch)
    assert len(serials) == MANY_LOOKS
    assert len(set(serials)) == 1


def test_a_ring_ends_the_wait_for_the_next_look(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """By it the end of a trainer is noticed at once, and not only at the next look."""
    monkeypatch.setattr(supervisor, "LONGEST_WAIT_S", 1000.0)
    monkeypatch.setattr(Task, "due", lambda _, now: now + 1000.0)
    role = QuietRole()
    role.over = True
    monkeypatch.setattr(supervisor, "take_role", lambda *_: role)
    thread = threading.Thread(target=lambda: Supervisor(files).run(lambda: None), daemon=True)
    thread.start()
    eventually(lambda: files.state()["agent"])  # written right before it waits
    paths.write_json(files.intent_path, {**files.intent(), "serial": 2, "tasks": stop(2)})
    fifo.ring(files.wake_path)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert files.state()["finished"] is True
