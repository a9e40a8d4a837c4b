"""Tasks that hang are found, asked for their stacks, killed, and started again."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.agent.host import AgentHost, Fields, python_task, shell, task
from tests.hosts.processes import alive
from tests.reasons import reason_of
from tests.waiting import eventually

HANGS = "for i in 1 2 3 4; do echo step $i; sleep 0.7; done; sleep 1000"
HANGS_IN_PYTHON = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def train():
    for step in range(1, 5):
        print("step", step)
        time.sleep(0.7)
    wait_for_the_parameter_server()
def wait_for_the_parameter_server():
    time.sleep(1000)
train()
"""


def watched(stall_s: float | None, max_restarts: int = 1) -> Fields:
    recovery = {"max_restarts": max_restarts, "backoff_min_s": 0.05, "backoff_max_s": 0.2, "reset_after_s": 600}
    return {**recovery, "stall_s": stall_s}


def test_a_trainer_whose_step_stands_still_is_started_again(host: AgentHost) -> None:
    spec, pid = host.running(shell("worker:0", HANGS), recovery=watched(3))
    entry = host.wait_state(spec, "worker:0", "running", attempt=2)
    assert not alive(pid)
    past = entry["history"][0]
    assert (past["signal"], past["asked"]) == (signal.SIGKILL, False)
    assert entry["restarts"] == 1
    assert ("running", "stalled") in host.events(spec, "worker:0")
    assert ("stalled", "backoff") in host.events(spec, "worker:0")
    stack = host.attempt(spec, "worker:0") / "stack"
    assert stack.stat().st_mode & 0o777 == 0o600
    assert f"process {pid}: Name:\tsh" in stack.read_text()
    assert f"thread {pid} (sh) waits in" in stack.read_text()


def test_python_is_asked_where_it_hangs(host: AgentHost) -> None:
    env = {"PYTHONFAULTHANDLER": "1"}
    program = python_task("worker:0", HANGS_IN_PYTHON, env=env)
    program["argv"] = [word.replace("-uISc", "-uSc") for word in program["argv"]]  # -I would not read the variable
    spec = host.started(program, recovery=watched(3, max_restarts=0))
    entry = host.wait_state(spec, "worker:0", "failed")
    assert entry["exit"]["signal"] == signal.SIGABRT
    assert [one["kind"] for one in entry["why"]] == ["stalled", "hung_in"]
    assert reason_of(entry).endswith("; it was in wait_for_the_parameter_server (<string>:10)")
    assert entry["history"][0]["why"] == entry["why"]
    assert "wait_for_the_parameter_server" in entry["exit"]["tail"]
    assert list(Path(host.home).glob("core*")) == []


def test_py_spy_is_asked_when_it_is_there(host: AgentHost) -> None:
    spy = host.directory / "bin" / "py-spy"
    spy.write_text('#!/bin/sh\necho "py-spy was asked: $*"\n')
    spy.chmod(0o755)
    spec, pid = host.running(shell("worker:0", HANGS), recovery=watched(3, max_restarts=0))
    host.wait_state(spec, "worker:0", "failed")
    assert (
        f"py-spy was asked: dump --nonblocking --full-filenames --pid {pid}"
        in (host.attempt(spec, "worker:0") / "stack").read_text()
    )


def test_a_py_spy_that_hangs_is_waited_for_a_while_only(host: AgentHost) -> None:
    spy = host.directory / "bin" / "py-spy"
    spy.write_text("#!/bin/sh\nexec sleep 1000\n")
    spy.chmod(0o755)
    spec = host.started(shell("worker:0", HANGS), task("ps:0", "sleep", "1000"), recovery=watched(3, max_restarts=0))
    host.wait_state(spec, "worker:0", "stalled")
    assert host.ask("stop", tasks=["ps:0"], grace_s=None, by="")["stopped"] == ["ps:0"]
    host.wait_state(spec, "worker:0", "failed")
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_a_stop_goes_before_the_question_for_a_stack(host: AgentHost) -> None:
    spy = host.directory / "bin" / "py-spy"
    spy.write_text("#!/bin/sh\nexec sleep 1000\n")
    spy.chmod(0o755)
    spec = host.started(shell("worker:0", HANGS), recovery=watched(3))
    host.wait_state(spec, "worker:0", "stalled")
    assert host.ask("stop", tasks=None, grace_s=0, why=[{"kind": "stopped_by", "by": "ada"}], by="")["stopped"] == [
        "worker:0"
    ]
    assert reason_of(host.state(spec)["tasks"]["worker:0"]) == "stopped by ada"
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_the_leads_saves_are_no_progress_of_a_worker_that_trains_alone(host: AgentHost) -> None:
    shared = host.directory / "shared"
    shared.mkdir()
    saves = f"i=0; while :; do i=$((i+1)); echo step $i; touch {shared}/model.ckpt-$i.index; sleep 0.5; done"
    roster: list[Fields] = [
        {"task": "worker:0", "host": host.name, "role": "lead", "decides": True, "scope": "task"},
        {"task": "worker:1", "host": host.name, "role": "worker", "scope": "task"},
    ]
    tasks = [shell("worker:0", saves), shell("worker:1", HANGS)]
    fields = {"roster": roster, "strategy": "async-ps", "checkpoint_dirs": [str(shared)], "lead": "worker:0"}
    spec = host.started(*tasks, recovery=watched(8), **fields)
    assert host.wait_state(spec, "worker:1", "running", attempt=2)["history"][0]["hung"]
    assert host.state(spec)["tasks"]["worker:0"]["attempt"] == 1
