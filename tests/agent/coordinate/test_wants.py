"""What is wanted of a task: to run, to be held, to finish, to be stopped; in which generation."""

from __future__ import annotations

import pytest

from tests.agent.host import AgentHost, Fields, alive, kill, shell, task
from tests.waiting import eventually

WAITS_FOR_A_FILE = "until [ -e $HOME/go ]; do sleep 0.05; done; exit 7"
SLEEPS = ("sleep", "1000")


def budget(max_restarts: int, **fields: float) -> Fields:
    return {"max_restarts": max_restarts, "backoff_min_s": 0.05, "backoff_max_s": 0.2, "reset_after_s": 600, **fields}


def test_another_generation_is_held_until_it_is_told_to_run(host: AgentHost) -> None:
    spec = host.led_from_elsewhere(task("ps:0", *SLEEPS))
    pid = host.up_by_order(spec)["tasks"]["ps:0"]["pid"]
    host.want(spec, "ps:0", want="hold", generation=2, restarts=3, reason="worker:1 was lost")
    held = host.wait_state(spec, "ps:0", "pending")
    assert not alive(pid)
    assert (held["generation"], held["restarts"], held["version"]) == (2, 3, 3)
    assert (held["reason"], held["ready"], held["pid"]) == ("worker:1 was lost", False, None)
    assert host.state(spec)["finished"] is False
    host.want(spec, "ps:0", want="run", reason="worker:1 was lost")
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


def test_tasks_that_have_ended_can_be_held_and_begun_again(host: AgentHost) -> None:
    spec = host.led_from_elsewhere(shell("worker:0", "exit 0"), shell("worker:1", "exit 2"), task("ps:0", *SLEEPS))
    host.up_by_order(spec)
    host.wait_state(spec, "worker:0", "succeeded")
    host.wait_state(spec, "worker:1", "failed")
    host.want(spec, "worker:0", "worker:1", want="hold", generation=2)
    host.wait_state(spec, "worker:0", "pending")
    host.wait_state(spec, "worker:1", "pending")
    host.want(spec, "worker:0", "worker:1", want="run")
    host.wait_state(spec, "worker:0", "succeeded", attempt=2)
    host.wait_state(spec, "worker:1", "failed", attempt=2)


def test_a_hold_ends_a_back_off(host: AgentHost) -> None:
    spec = host.led_from_elsewhere(
        shell("worker:0", "exit 3"), recovery=budget(5, backoff_min_s=600, backoff_max_s=600)
    )
    host.up_by_order(spec)
    host.wait_state(spec, "worker:0", "backoff", attempt=2)
    host.want(spec, "worker:0", want="hold", generation=2, restarts=1)
    entry = host.wait_state(spec, "worker:0", "pending")
    assert (entry["next_start"], entry["attempt"], entry["restarts"]) == (None, 2, 1)


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


def test_nothing_is_restarted_once_the_outcome_is_decided(host: AgentHost) -> None:
    scripts = {"worker:0": WAITS_FOR_A_FILE, "worker:1": WAITS_FOR_A_FILE.replace("exit 7", "exit 0")}
    spec = host.led_from_elsewhere(*[shell(name, script) for name, script in scripts.items()], recovery=budget(5))
    host.up_by_order(spec)
    host.want(spec, *scripts, want="finish")
    for name in scripts:
        host.wait_entry(spec, name, lambda entry: entry["version"] == 3)
    assert [host.state(spec)["tasks"][name]["state"] for name in scripts] == ["running", "running"]
    (host.home / "go").touch()
    assert host.wait_state(spec, "worker:0", "failed")["reason"] == "exit code 7"
    assert host.wait_state(spec, "worker:1", "succeeded")["attempt"] == 1


def test_what_waits_to_be_started_stays_as_it_ended_once_the_outcome_is_decided(host: AgentHost) -> None:
    recovery = budget(5, backoff_min_s=600, backoff_max_s=600)
    spec = host.led_from_elsewhere(shell("worker:0", "exit 3"), task("worker:1", *SLEEPS), recovery=recovery)
    host.up_by_order(spec)
    host.wait_state(spec, "worker:0", "backoff", attempt=2)
    host.want(spec, "worker:1", want="hold", generation=2)
    host.wait_state(spec, "worker:1", "pending")
    host.want(spec, "worker:0", "worker:1", want="finish", reason="the run has succeeded")
    assert host.wait_state(spec, "worker:0", "failed")["reason"] == "exit code 3"
    assert host.wait_state(spec, "worker:1", "stopped")["reason"] == "the run has succeeded"


@pytest.mark.parametrize(("by", "state"), [("coordinator", "failed"), ("ada@laptop", "stopped")])
def test_who_has_failed_when_the_run_does_is_not_called_stopped(host: AgentHost, by: str, state: str) -> None:
    spec = host.led_from_elsewhere(shell("ps:0", "exit 137", own=False), recovery=budget(5))
    host.up_by_order(spec)
    host.wait_state(spec, "ps:0", "backoff")
    host.want(spec, "ps:0", want="stop", reason="enough", by=by)
    host.wait_state(spec, "ps:0", state)


def test_a_restart_that_a_person_asks_for_counts_as_a_change(host: AgentHost) -> None:
    spec = host.led_from_elsewhere(task("worker:0", *SLEEPS))
    host.up_by_order(spec)
    entry = host.ask("restart", tasks=["worker:0"], by="ada")["tasks"]["worker:0"]
    assert (entry["generation"], entry["version"], entry["restarts"]) == (2, 3, 0)
