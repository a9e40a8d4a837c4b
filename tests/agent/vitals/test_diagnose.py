"""The request `diagnose`, and what the supervisor samples, by a real agent."""

from __future__ import annotations

import os
import signal

from tests.agent.host import AgentHost, shell, task
from tests.waiting import eventually

SAYS = "echo step 1; echo UNAVAILABLE: no way to /job:ps/replica:0/task:0 by hunter2; exec sleep 1000"


def test_an_agent_reports_the_vitals_of_its_host_and_tasks(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"), dirs=["\0HOME/out"])
    pid = host.wait_entry(spec, "worker:0", lambda entry: entry["pid"])["pid"]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: host.ask("diagnose")["tasks"]["worker:0"]["frozen"], what="a frozen task")
    answer = host.ask("diagnose")
    assert answer["run"] == spec["run"]
    assert answer["machine"]["memory_bytes"] >= answer["machine"]["available_bytes"] > 0
    assert answer["disks"][0]["size_bytes"] > 0
    assert answer["unreached"] == []
    only = answer["tasks"]["worker:0"]
    assert only["memory_bytes"] > 0
    assert only["cpu"] is not None
    assert only["python"].endswith("/sleep")
    assert pid not in [one["pid"] for one in answer["busy"]]
    os.kill(pid, signal.SIGCONT)


def test_an_error_line_is_kept_until_a_step_with_secrets_masked(host: AgentHost) -> None:
    spec = host.spec(shell("worker:0", SAYS, secrets=["PASSWORD"]))
    host.up(spec, secrets={"PASSWORD": "hunter2"})
    entry = host.wait_entry(spec, "worker:0", lambda entry: entry["complaint"])
    assert entry["complaint"]["text"] == "UNAVAILABLE: no way to /job:ps/replica:0/task:0 by ***"
    entry = host.wait_entry(spec, "worker:0", lambda entry: entry["cpu"] is not None)
    assert entry["memory_bytes"] > 0
    assert host.state(spec)["machine"]["cpus"] >= 1
    assert "hunter2" not in str(host.ask("diagnose"))


def test_the_log_of_a_lost_attempt_is_reported_while_the_next_one_runs(host: AgentHost) -> None:
    script = "[ $DTCTL_ATTEMPT = 1 ] && { echo odd words of $PASSWORD; exit 3; }; echo well; exec sleep 1000"
    recovery = {"max_restarts": 5, "backoff_min_s": 0.05, "backoff_max_s": 0.2, "reset_after_s": 600}
    spec = host.spec(shell("worker:0", script, secrets=["PASSWORD"]), recovery=recovery)
    host.up(spec, secrets={"PASSWORD": "hunter2"})
    host.wait_entry(spec, "worker:0", lambda entry: entry["attempt"] == 2 and entry["state"] == "running")
    answer = eventually(lambda: host.ask("diagnose")["tasks"]["worker:0"], what="an answer")
    assert answer["lost_log"] == "odd words of ***"
    assert "odd words" not in answer["log"]
