"""Until `keep`, the end of the controller undoes everything, in whatever phase it comes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from dtctl.agent.records.reasons import said
from tests.agent.host import AgentHost, AgentRefused, Conversation, Fields, budget, kill, shell, task
from tests.hosts.processes import alive
from tests.reasons import reason_of
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
    assert reason_of(status["state"]["tasks"]["worker:0"]) == "stopped to make room for another run"


def test_a_session_that_is_killed_before_keep_takes_its_tasks_with_it(host: AgentHost) -> None:
    spec = host.spec(shell("worker:0", STUBBORN))
    talk = host.open()
    _started(host, talk, spec)
    kill(talk.greeting["pid"], signal.SIGKILL)
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
    entry = host.state(spec)["tasks"]["worker:0"]
    assert entry["state"] == "stopped"
    assert "before the start was complete" in reason_of(entry)
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


SLEEPS = ("sleep", "1000")


def test_another_generation_is_held_until_it_is_told_to_run(host: AgentHost) -> None:
    spec = host.led_from_elsewhere(task("ps:0", *SLEEPS))
    pid = host.up_by_order(spec)["tasks"]["ps:0"]["pid"]
    host.want(spec, "ps:0", want="hold", generation=2, restarts=3, why=said("worker:1 was lost"))
    held = host.wait_state(spec, "ps:0", "pending")
    assert not alive(pid)
    assert (held["generation"], held["restarts"], held["version"]) == (2, 3, 3)
    assert (reason_of(held), held["ready"], held["pid"]) == ("worker:1 was lost", False, None)
    assert host.state(spec)["finished"] is False
    host.want(spec, "ps:0", want="run", why=said("worker:1 was lost"))
    entry = host.wait_state(spec, "ps:0", "running", attempt=2)
    assert (entry["generation"], entry["restarts"], entry["version"]) == (2, 3, 4)
    assert entry["history"][0]["asked"] is True
    steps = [("pending", "starting"), ("starting", "running")]
    assert host.events(spec, "ps:0") == [*steps, ("running", "running"), ("running", "pending"), *steps]


def test_a_held_task_has_no_process_of_an_older_generation_left(host: AgentHost) -> None:
    script = "trap '' TERM; (trap '' TERM; setsid sleep 1000) & while :; do sleep 0.1; done"
    spec = host.led_from_elsewhere(shell("worker:0", script))
    host.up_by_order(spec)
    host.want(spec, "worker:0", want="hold", generation=2, grace_s=0.5)
    host.wait_state(spec, "worker:0", "pending")
    assert not any("1000" in line for line in host.remains().splitlines()), host.remains()


def test_a_task_of_the_coordinators_waits_for_it_after_an_exit(host: AgentHost) -> None:
    spec = host.led_from_elsewhere(shell("ps:0", "exit 137", own=False), recovery=budget(5))
    host.up_by_order(spec)
    entry = host.wait_state(spec, "ps:0", "backoff")
    assert (entry["next_start"], entry["attempt"], entry["restarts"]) == (None, 1, 0)
    assert entry["exit"]["retry"] is True
    old = host.supervisor(spec)
    kill(old)
    eventually(lambda: host.ask("status")["state"]["agent"]["pid"] != old)
    host.want(spec, "ps:0", want="run", generation=2, restarts=1)
    entry = host.wait_state(spec, "ps:0", "backoff", attempt=2)
    assert (entry["restarts"], entry["generation"]) == (1, 2)


def test_a_restart_that_a_person_asks_for_counts_as_a_change(host: AgentHost) -> None:
    spec = host.led_from_elsewhere(task("worker:0", *SLEEPS))
    host.up_by_order(spec)
    entry = host.ask("restart", tasks=["worker:0"], by="ada")["tasks"]["worker:0"]
    assert (entry["generation"], entry["version"], entry["restarts"]) == (2, 3, 0)
