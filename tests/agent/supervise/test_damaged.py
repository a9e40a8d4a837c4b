"""Trainers that spoil their attempt's directory, and state files that a crash has spoilt."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.agent.host import AgentHost, Fields, budget, kill, shell, task
from tests.hosts.processes import alive
from tests.reasons import reason_of
from tests.waiting import eventually

HERE = "HERE=$DTCTL_RUN_DIR/tasks/worker-0/attempt-$DTCTL_ATTEMPT"
ONCE = "[ $DTCTL_ATTEMPT = 1 ] || exec sleep 1000"


def spoil(host: AgentHost, spec: Fields, name: str, content: bytes) -> int:
    """What the file of an idle agent then holds when its successor reads it; the agent that there was."""
    old = host.supervisor(spec)
    kill(old, signal.SIGSTOP)
    stands_still(old)
    (host.run_directory(spec) / name).write_bytes(content)
    kill(old)
    return old


def stands_still(pid: int) -> None:
    eventually(
        lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", what="it to stand still"
    )


def successor(host: AgentHost, spec: Fields, old: int) -> int:
    def found() -> int:
        try:
            agent = host.state(spec)["agent"]
        except (ValueError, FileNotFoundError):
            return 0
        return int(agent["pid"]) if agent is not None and agent["pid"] != old else 0

    return eventually(found, what="a successor that has written its state")


def test_a_damaged_state_costs_no_attempt_and_is_reported(host: AgentHost) -> None:
    tasks = (task("worker:0", "sleep", "1000"), shell("worker:1", "exit 2"))
    spec = host.spec(*tasks, **host.decided_by("worker:0", *tasks))
    pid = host.up(spec)["tasks"]["worker:0"]["pid"]
    host.wait_state(spec, "worker:1", "failed")
    successor(host, spec, spoil(host, spec, "state.json", b'{"serial": 3, "tasks": []'))
    entry = host.wait_state(spec, "worker:0", "running")
    assert (entry["pid"], entry["attempt"]) == (pid, 1)
    failed = host.state(spec)["tasks"]["worker:1"]
    assert (failed["state"], failed["exit"]["code"]) == ("failed", 2)
    log = (host.run_directory(spec) / "agent.log").read_text()
    assert (log.count("state.json is damaged"), log.count("Traceback")) == (1, 0)
    lines = (host.run_directory(spec) / "events.jsonl").read_text().splitlines()
    names = [event["task"] for event in map(json.loads, lines) if "state.json is damaged" in reason_of(event)]
    assert names == ["worker:0", "worker:1"]


FILES = ("spec.json", "state.json", "intent.json", "secrets.json", "environ.json", "machine", "wake")


@pytest.mark.parametrize("spoilt", ["removed", "emptied"])
@pytest.mark.parametrize("name", FILES)
def test_a_living_agent_writes_each_of_its_files_again(host: AgentHost, name: str, spoilt: str) -> None:
    spec, pid = host.running(task("worker:0", "sleep", "1000"))
    path = host.run_directory(spec) / name
    mode = path.stat().st_mode
    path.unlink()
    if spoilt == "emptied":
        path.touch()
    eventually(lambda: path.exists() and path.stat().st_mode == mode and holds(path), what=f"{name} to be as before")
    answer = host.ask("status")
    assert (answer["run"], answer["state"]["tasks"]["worker:0"]["pid"]) == (spec["run"], pid)
    old = host.supervisor(spec)
    kill(old)
    successor(host, spec, old)
    assert host.ask("stop", tasks=None, grace_s=None, by="")["stopped"] == ["worker:0"]
    assert "Traceback" not in (host.run_directory(spec) / "agent.log").read_text()


def holds(path: Path) -> bool:
    return not path.is_file() or path.stat().st_size > 0


def test_a_trainer_that_forges_its_start_is_ended_with_all_that_it_started(host: AgentHost) -> None:
    """Who it is nobody knows any more: by what it was given it is found all the same."""
    script = f"{ONCE}; {HERE}; sleep 2; setsid sleep 1000 & echo '{{\"pid\": -1}}' > $HERE/start.json; exec sleep 1000"
    spec, pid = host.running(shell("worker:0", script), recovery=budget(1))
    eventually(lambda: (host.attempt(spec, "worker:0") / "start.json").read_text() == '{"pid": -1}\n')
    kill(host.supervisor(spec))
    entry = host.wait_state(spec, "worker:0", "running", attempt=2)
    assert entry["restarts"] == 1
    assert not alive(pid)
    assert sum("sleep 1000" in line for line in host.remains().splitlines() if "sh -c" not in line) == 1
    assert "Traceback" not in (host.run_directory(spec) / "agent.log").read_text()
