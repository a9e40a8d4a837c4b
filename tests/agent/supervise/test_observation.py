"""What an agent reports about a running task: ready, its step and progress, and the last lines of what has ended."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.agent.host import AgentHost, kill, python_task, shell, task
from tests.waiting import eventually

LISTENS = """
import os, socket, subprocess, sys, time
while not os.path.exists(os.environ["HOME"] + "/go"):
    time.sleep(0.02)
if "child" in sys.argv:
    sys.exit(subprocess.call([sys.executable, "-ISc", sys.argv[1], sys.argv[1]]))
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("", int(os.environ["PORT"])))
server.listen()
time.sleep(1000)
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        found: int = probe.getsockname()[1]
        return found


@pytest.fixture
def stranger(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another's process, which listens on the port of a task."""
    script = f"import socket, time; s = socket.create_server(('', {port})); print(flush=True); time.sleep(1000)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_task_is_ready_when_its_port_listens(host: AgentHost, port: int) -> None:
    spec = host.started(python_task("ps:0", LISTENS, port=port, ready="listening", env={"PORT": str(port)}))
    assert host.state(spec)["tasks"]["ps:0"]["ready"] is False
    (host.home / "go").touch()
    ready = host.wait_entry(spec, "ps:0", lambda entry: entry["ready"])
    assert ready["state"] == "running"
    kill(ready["pid"])
    assert host.wait_state(spec, "ps:0", "failed")["ready"] is False


def test_task_is_ready_when_a_child_of_its_program_listens(host: AgentHost, port: int) -> None:
    program = task("ps:0", sys.executable, "-uISc", LISTENS, LISTENS, "child", ready="listening", port=port)
    spec = host.spec({**program, "env": {"PORT": str(port)}})
    (host.home / "go").touch()
    host.up(spec)
    host.wait_entry(spec, "ps:0", lambda entry: entry["ready"])


def test_a_task_without_a_port_is_ready_when_it_runs(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    host.wait_entry(spec, "worker:0", lambda entry: entry["ready"])


def test_a_port_at_which_another_process_listens_makes_no_task_ready(
    host: AgentHost, port: int, request: pytest.FixtureRequest
) -> None:
    counts = "for i in 1 2 3 4 5 6 7 8; do echo look $i; sleep 0.5; done; sleep 1000"
    spec = host.started(shell("ps:0", counts, port=port, ready="listening"))
    request.getfixturevalue("stranger")
    eventually(lambda: "look 8" in host.log(spec, "ps:0"))
    assert host.state(spec)["tasks"]["ps:0"]["ready"] is False


def test_a_task_that_reports_a_step_is_ready_though_it_listens_nowhere(host: AgentHost, port: int) -> None:
    spec = host.started(shell("ps:0", "echo step 1; sleep 1000", port=port, ready="listening"))
    assert host.wait_entry(spec, "ps:0", lambda entry: entry["ready"])["step"] == 1


def test_the_step_and_the_growth_of_the_log_are_reported(host: AgentHost) -> None:
    waits = "until [ -e $HOME/go ]; do sleep 0.05; done"
    script = f"echo 'INFO:tensorflow:loss = 0.1, step = 200 (0.3 sec)'; {waits}; echo step 300; sleep 1000"
    spec = host.spec(shell("worker:0", script))
    began = time.time()
    host.up(spec)
    first = host.wait_entry(spec, "worker:0", lambda entry: entry["step"] == 200)
    assert began - 1 < first["step_time"] < time.time() + 1
    (host.home / "go").touch()
    second = host.wait_entry(spec, "worker:0", lambda entry: entry["step"] == 300)
    assert second["progress"] > first["progress"]
    assert second["step_time"] > first["step_time"]


def test_the_line_of_a_step_is_reported_without_secrets(host: AgentHost) -> None:
    script = 'echo "step 7, eval at step 10,  key $TOKEN"; exec sleep 1000'
    spec = host.spec(shell("worker:0", script, secrets=["TOKEN"]))
    host.up(spec, secrets={"TOKEN": "hunter2hunter2"})
    entry = host.wait_entry(spec, "worker:0", lambda entry: entry["step"] == 7)
    assert entry["step_line"] == "step 7, eval at step 10, key ***"


def test_the_last_step_of_a_short_life_is_reported_too(host: AgentHost) -> None:
    spec = host.started(shell("worker:0", "echo step 7; exit 3"))
    assert host.wait_state(spec, "worker:0", "failed")["step"] == 7


def test_another_attempt_begins_without_a_step(host: AgentHost) -> None:
    spec = host.started(shell("worker:0", "[ $DTCTL_ATTEMPT = 1 ] && echo step 7; exec sleep 1000"))
    host.wait_entry(spec, "worker:0", lambda entry: entry["step"] == 7)
    entry = host.ask("restart", tasks=["worker:0"], by="ada")["tasks"]["worker:0"]
    assert (entry["step"], entry["progress"]) == (None, None)


def test_progress_alone_is_reported_no_more_than_every_two_seconds(host: AgentHost) -> None:
    script = "i=0; while :; do i=$((i+1)); echo step $i; sleep 0.05; done"
    spec = host.started(shell("worker:0", script))
    first = host.wait_entry(spec, "worker:0", lambda entry: entry["step"])
    before, began = host.state(spec)["serial"], time.monotonic()
    subprocess.run(["sleep", "6"], check=True)
    state = host.state(spec)
    assert 1 <= state["serial"] - before <= (time.monotonic() - began) / 2 + 1
    assert state["tasks"]["worker:0"]["step"] > first["step"]


def test_the_last_lines_of_a_log_are_kept_with_the_exit_without_secrets(host: AgentHost) -> None:
    script = """
i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo "line $i of many"; done
printf 'loading 10%%\\rloading 100%%\\n'
echo "the key is $TOKEN"
exit 3
"""
    spec = host.spec(shell("worker:0", script, secrets=["TOKEN"]))
    host.up(spec, secrets={"TOKEN": "hunter2hunter2"})
    tail = host.wait_state(spec, "worker:0", "failed")["exit"]["tail"]
    assert tail.endswith("line 300 of many\nloading 100%\nthe key is ***")
    assert tail.startswith("line ")
    assert 1800 < len(tail) <= 2048
    assert "hunter2" not in json.dumps(host.state(spec))
