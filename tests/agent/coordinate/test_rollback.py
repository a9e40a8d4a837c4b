"""Until `keep`, the end of the controller undoes everything, in whatever phase it comes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.agent.host import AgentHost, AgentRefused, Conversation, Fields, alive, kill, shell, task
from tests.waiting import eventually

STUBBORN = "trap '' TERM; setsid sleep 1000 & while :; do sleep 1; done"


def _greeted(host: AgentHost, talk: Conversation, spec: Fields) -> None:
    pass


def _asked(host: AgentHost, talk: Conversation, spec: Fields) -> None:
    talk.send("up", **host.about({"spec": spec, "bundle": None, "secrets": {}, "replace": False}))


def _prepared(host: AgentHost, talk: Conversation, spec: Fields) -> None:
    host.prepare(talk, spec)


def _start_sent(host: AgentHost, talk: Conversation, spec: Fields) -> None:
    host.prepare(talk, spec)
    talk.send("start")


def _run_directory_made(host: AgentHost, talk: Conversation, spec: Fields) -> None:
    _start_sent(host, talk, spec)
    eventually(host.run_directory(spec).exists)


def _supervised(host: AgentHost, talk: Conversation, spec: Fields) -> None:
    _start_sent(host, talk, spec)
    eventually(lambda: (host.run_directory(spec) / "agent.lock").exists())


def _started(host: AgentHost, talk: Conversation, spec: Fields) -> None:
    _start_sent(host, talk, spec)
    talk.await_type("started")


PHASES = [_greeted, _asked, _prepared, _start_sent, _run_directory_made, _supervised, _started]
Phase = Callable[[AgentHost, Conversation, Fields], None]


def assert_nothing_left(host: AgentHost, spec: Fields) -> None:
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
    assert not (host.root / "runs" / spec["run"]).exists()
    assert list(host.root.glob("clusters/*/*/current")) == []


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__.strip("_"))
def test_the_end_of_the_controller_leaves_nothing(host: AgentHost, phase: Phase) -> None:
    spec = host.spec(shell("worker:0", STUBBORN), task("ps:0", "sleep", "1000"))
    talk = host.open()
    phase(host, talk, spec)
    talk.close()
    assert_nothing_left(host, spec)


@pytest.mark.parametrize("phase", [_prepared, _started], ids=lambda phase: phase.__name__.strip("_"))
def test_abort_leaves_nothing(host: AgentHost, phase: Phase) -> None:
    spec = host.spec(shell("worker:0", STUBBORN))
    with host.open() as talk:
        phase(host, talk, spec)
        talk.send("abort")
        with pytest.raises(AgentRefused, match="rolled_back: "):
            talk.receive()
        assert not (host.root / "runs" / spec["run"]).exists()
    assert_nothing_left(host, spec)


def test_a_roll_back_sets_the_current_run_back(host: AgentHost) -> None:
    old = host.started(task("worker:0", "sleep", "1000"))
    new = host.spec(task("worker:0", "sleep", "2000"))
    with host.open() as talk:
        host.prepare(talk, new, replace=True)
        talk.send("start")
        talk.await_type("started")
        talk.send("abort")
        with pytest.raises(AgentRefused):
            talk.receive()
    status = host.ask("status")
    assert status["run"] == old["run"]
    assert status["state"]["tasks"]["worker:0"]["reason"] == "stopped to make room for another run"


def test_an_abort_before_the_start_leaves_the_old_run_alone(host: AgentHost) -> None:
    old, pid = host.running(task("worker:0", "sleep", "1000"))
    with host.open() as talk:
        host.prepare(talk, host.spec(task("worker:0", "sleep", "2000")), replace=True)
    assert alive(pid)
    assert host.ask("status")["run"] == old["run"]


def test_a_session_that_is_killed_before_keep_takes_its_tasks_with_it(host: AgentHost) -> None:
    spec = host.spec(shell("worker:0", STUBBORN))
    talk = host.open()
    _started(host, talk, spec)
    kill(talk.greeting["pid"], signal.SIGKILL)
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
    entry = host.state(spec)["tasks"]["worker:0"]
    assert entry["state"] == "stopped"
    assert "before the start was complete" in entry["reason"]
    assert host.up(host.spec(task("worker:0", "sleep", "1000")))["tasks"]["worker:0"]["state"] == "running"


def test_after_keep_the_run_outlives_the_session(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", "sleep", "1000"))
    talk = host.open()
    _started(host, talk, spec)
    talk.send("keep")
    talk.await_type("result")
    os.killpg(talk.process.pid, signal.SIGHUP)
    kill(talk.greeting["pid"], signal.SIGKILL)
    eventually(lambda: not alive(talk.greeting["pid"]))
    host.wait_state(spec, "worker:0", "running")
    assert host.ask("status")["agent_alive"]
