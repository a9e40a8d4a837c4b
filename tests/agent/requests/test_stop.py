"""stop, restart and down: stop means stopped."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.agent.host import AgentHost, AgentRefused, Fields, kill, shell, task
from tests.hosts.processes import alive, command
from tests.reasons import reason_of
from tests.waiting import eventually

IGNORES_SIGTERM = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
SAVES_ON_SIGTERM = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def stop(host: AgentHost, *tasks: str, grace_s: float | None = None, **fields: object) -> Fields:
    return host.ask(
        "stop",
        tasks=list(tasks) or None,
        grace_s=grace_s,
        why=[{"kind": "stopped_by", "by": "ada"}],
        by="ada@laptop",
        **fields,
    )


def ready(host: AgentHost, spec: Fields, name: str = "worker:0") -> None:
    eventually(lambda: "ready" in host.log(spec, name), what="the trainer to be ready")


def test_stop_lets_a_trainer_save(host: AgentHost) -> None:
    spec = host.started(shell("worker:0", SAVES_ON_SIGTERM))
    ready(host, spec)
    ended = stop(host)
    assert (ended["run"], ended["stopped"], ended["already"], ended["waiting"]) == (spec["run"], ["worker:0"], [], [])
    assert (ended["survivors"], ended["omitted"], ended["unreached"], ended["away"]) == ([], 0, [], None)
    assert ended["killed"] == {}
    assert ended["coordination"]["condition"]["type"] == "Stopped"
    assert host.log(spec, "worker:0").endswith("saved\n")
    entry = host.state(spec)["tasks"]["worker:0"]
    assert (entry["state"], reason_of(entry), entry["asked"]) == ("stopped", "stopped by ada", True)
    assert entry["why"] == [{"kind": "stopped_by", "by": "ada"}]
    assert entry["exit"]["code"] == 0
    assert entry["history"][0]["asked"] is True


def test_stop_ends_a_trainer_that_is_frozen(host: AgentHost) -> None:
    spec, pid = host.running(shell("worker:0", SAVES_ON_SIGTERM))
    ready(host, spec)
    kill(pid, signal.SIGSTOP)
    assert stop(host)["stopped"] == ["worker:0"]
    assert host.log(spec, "worker:0").endswith("saved\n")


def test_stop_ends_a_task_whose_agent_and_keeper_are_frozen(host: AgentHost) -> None:
    spec, pid = host.running(task("worker:0", "sleep", "1000"))
    kill(host.supervisor(spec), signal.SIGSTOP)
    kill(host.start_record(spec, "worker:0")["keeper"]["pid"], signal.SIGSTOP)
    assert stop(host)["stopped"] == ["worker:0"]
    assert not alive(pid)


def test_a_second_stop_may_shorten_the_grace_period(host: AgentHost) -> None:
    spec = host.started(shell("worker:0", IGNORES_SIGTERM), grace_s=600)
    ready(host, spec)
    with host.open() as first:
        first.send("stop", **host.about({"tasks": None, "grace_s": None, "by": ""}))
        eventually(lambda: host.state(spec)["tasks"]["worker:0"]["asked"])
        assert stop(host, grace_s=0)["survivors"] == []
        assert first.await_type("result")["stopped"] == ["worker:0"]


def test_stop_of_one_task_leaves_the_others(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", "sleep", "1000"), task("worker:1", "sleep", "1000"))
    pids = {name: entry["pid"] for name, entry in host.up(spec)["tasks"].items()}
    assert stop(host, "worker:1")["stopped"] == ["worker:1"]
    assert alive(pids["worker:0"])
    assert not alive(pids["worker:1"])
    with pytest.raises(AgentRefused, match="bad_request: "):
        stop(host, "worker:7")


def test_stop_of_what_has_finished_says_already(host: AgentHost) -> None:
    tasks = (shell("worker:0", "true"), shell("worker:1", "exit 2"), task("ps:0", "sleep", "1000"))
    spec = host.started(*tasks, **host.decided_by("ps:0", *tasks))
    host.wait_state(spec, "worker:0", "succeeded")
    host.wait_state(spec, "worker:1", "failed")
    result = stop(host)
    assert result["already"] == ["worker:0", "worker:1"]
    assert result["stopped"] == ["ps:0"]
    assert stop(host)["already"] == ["worker:0", "worker:1", "ps:0"]
    states = {name: entry["state"] for name, entry in host.state(spec)["tasks"].items()}
    assert states == {"worker:0": "succeeded", "worker:1": "failed", "ps:0": "stopped"}


def test_what_bears_the_key_of_a_stopped_task_is_a_survivor(host: AgentHost) -> None:
    """As a process that not even SIGKILL ends: one that has appeared after the supervisor has looked."""
    import os
    import subprocess

    spec = host.started(task("worker:0", "sleep", "1000"))
    assert stop(host)["survivors"] == []
    key = host.start_record(spec, "worker:0")["key"]
    late = subprocess.Popen(["sleep", "1000"], env={"DTCTL_KEY": key, "PATH": os.environ["PATH"]})
    try:
        assert stop(host)["survivors"] == [{"task": "worker:0", "pid": late.pid, "command": "sleep 1000"}]
        down = host.ask("down", grace_s=None, by="ada")
        assert down["removed"] == []
        assert len(down["survivors"]) == 1
        assert host.run_directory(spec).exists()
    finally:
        late.kill()
        late.wait()


def test_what_a_finished_trainer_left_behind_is_ended_and_reported(host: AgentHost) -> None:
    spec = host.started(shell("worker:0", "setsid sleep 1000 & sleep 1000 & exit 0"))
    entry = host.wait_state(spec, "worker:0", "succeeded")
    assert [one["command"] for one in entry["exit"]["left_behind"]] == ["sleep 1000"] * 2
    first, second = (one["pid"] for one in entry["exit"]["left_behind"])
    named = f"pid {first}, sleep 1000; pid {second}, sleep 1000"
    assert reason_of(entry) == f"exit code 0; left 2 processes behind ({named}), which were ended"
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


ESCAPES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
os.wait()
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""
"""Leaves a process of another session, without its parent and with an empty environment."""


def test_stop_ends_an_orphan_with_an_empty_environment(host: AgentHost) -> None:
    spec = host.started(task("worker:0", sys.executable, "-c", ESCAPES, "1000"))
    ready(host, spec)
    keeper = host.start_record(spec, "worker:0")["keeper"]["pid"]
    (orphan,) = eventually(
        lambda: [pid for pid in children(keeper) if command(pid) == "sleep 1000"], what="the orphan below the keeper"
    )
    assert stop(host)["survivors"] == []
    assert not alive(orphan)


def test_orphan_of_a_trainer_that_exits_is_ended_and_reported(host: AgentHost) -> None:
    spec = host.started(task("worker:0", sys.executable, "-c", ESCAPES, "0"))
    entry = host.wait_state(spec, "worker:0", "succeeded")
    (left,) = entry["exit"]["left_behind"]
    assert left["command"] == "sleep 1000"
    eventually(lambda: not alive(left["pid"]), what="its end")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_restart_begins_a_new_attempt_beyond_the_budget(host: AgentHost) -> None:
    _, pid = host.running(task("worker:0", "sleep", "1000"))
    entry = host.ask("restart", tasks=["worker:0"], by="ada")["tasks"]["worker:0"]
    assert not alive(pid)
    assert alive(entry["pid"])
    assert (entry["attempt"], entry["restarts"], entry["state"]) == (2, 0, "running")
    assert entry["history"][0]["asked"] is True
    assert entry["history"][0]["signal"] == signal.SIGTERM


def test_restart_brings_back_a_task_that_was_stopped(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", "sleep", "1000"), task("worker:1", "sleep", "1000"), success="lead")
    spec["roster"][1]["decides"] = False
    pid = host.up(spec)["tasks"]["worker:1"]["pid"]
    stop(host, "worker:1")
    assert not alive(pid)
    entry = host.ask("restart", tasks=["worker:1"], by="ada")["tasks"]["worker:1"]
    assert (entry["state"], entry["attempt"]) == ("running", 2)
    assert host.state(spec)["finished"] is False
    assert host.state(spec)["tasks"]["worker:0"]["attempt"] == 1
    assert stop(host)["stopped"] == ["worker:0", "worker:1"]


def test_down_removes_the_run(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    down = host.ask("down", grace_s=None, by="ada")
    assert down["removed"] == [spec["run"]]
    assert down["stopped"] == ["worker:0"]
    eventually(lambda: not host.processes())
    assert list((host.root / "runs").iterdir()) == []
    assert host.ask("status")["run"] is None
    assert host.ask("down", grace_s=None, by="ada")["removed"] == []


@pytest.mark.parametrize("earlier_boot", [False, True])
def test_a_process_with_the_number_of_an_earlier_trainer_is_not_signalled(host: AgentHost, earlier_boot: bool) -> None:
    """A pid that the system has given to somebody else since: the start time differs, or the boot id."""
    import json
    import subprocess

    spec, pid = host.running(task("worker:0", "sleep", "1000"))
    innocent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    try:
        kill(host.supervisor(spec))
        path = host.attempt(spec, "worker:0") / "start.json"
        true_record = host.start_record(spec, "worker:0")
        kill(true_record["keeper"]["pid"])
        kill(pid)
        stat = Path(f"/proc/{innocent.pid}/stat").read_text().rpartition(")")[2].split()
        forged: Fields = {"pid": innocent.pid}
        if earlier_boot:
            forged.update(start_time=int(stat[19]), boot_id="an earlier one")
        path.write_text(json.dumps({**true_record, **forged}))
        state = host.state(spec)
        entry = state["tasks"]["worker:0"]
        entry.update(state="running", attempt=1, exit=None, pid=innocent.pid, start_time=int(stat[19]))
        state["finished"] = False
        (host.run_directory(spec) / "state.json").write_text(json.dumps(state))
        host.ask("status")
        entry = host.wait_state(spec, "worker:0", "failed")
        assert "exit status unknown" in reason_of(entry)
        assert stop(host, grace_s=0)["survivors"] == []
        eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
        assert innocent.poll() is None, command(innocent.pid)
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.parametrize("alone", [False, True], ids=["coordinated", "host by host"])
def test_stop_reports_which_tasks_save_and_which_were_killed(host: AgentHost, alone: bool) -> None:
    """Frames before the result: what has changed, and nothing of a task whose news were reported."""
    if alone:
        host.up_by_order(spec := host.led_from_elsewhere(shell("worker:0", IGNORES_SIGTERM)))
    else:
        host.up(spec := host.spec(shell("worker:0", IGNORES_SIGTERM)))
    ready(host, spec)
    ended: list[Fields] = []
    with host.open() as talk:
        order = {"tasks": None, "grace_s": 2.0, "why": [{"kind": "stopped_by", "by": "ada"}], "by": "ada@laptop"}
        talk.send("stop", **host.about(order))
        while (frame := talk.receive())["type"] != "result":
            if frame["type"] == "stopping":
                ended.append(frame)
    assert frame["stopped"] == ["worker:0"]
    assert {one["grace_s"] for one in ended} == {2.0}
    first, last = ended[0]["tasks"]["worker:0"], ended[-1]["tasks"]["worker:0"]
    assert (first["way"], first["signal"]) == ("saving", None)
    assert 0.0 <= first["for_s"] <= 2.5
    assert (last["way"], last["signal"]) == ("ended", int(signal.SIGKILL))
    assert last["for_s"] >= 1.9
    assert len(ended) == len({(one["tasks"]["worker:0"]["way"], one["tasks"]["worker:0"]["signal"]) for one in ended})


def test_a_quick_stop_reports_its_result_only(host: AgentHost) -> None:
    spec = host.started(shell("worker:0", "echo ready; exec sleep 1000"))
    ready(host, spec)
    with host.open() as talk:
        talk.send("stop", **host.about({"tasks": None, "grace_s": 60.0, "why": [], "by": "ada@laptop"}))
        frames = []
        while (frame := talk.receive())["type"] != "result":
            frames.append(frame)
    assert frame["stopped"] == ["worker:0"]
    assert all(one["tasks"]["worker:0"]["way"] != "ended" for one in frames if one["type"] == "stopping")
