"""What is wanted of a task: to run, to be held, to finish, to be stopped; in which generation."""

from __future__ import annotations

from tests.agent.host import AgentHost, alive, budget, kill, shell, task
from tests.waiting import eventually

SLEEPS = ("sleep", "1000")


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
