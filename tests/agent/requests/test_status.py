"""status, watch and runs."""

from __future__ import annotations

import pytest

from tests.agent.host import AgentHost, AgentRefused, kill, shell, task
from tests.waiting import eventually


def test_status_shows_a_commands_program_and_no_environment(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000.125", env={"PASSWORD": "hunter2"}))
    eventually(lambda: host.ask("status")["coordination"]["condition"]["type"] == "Running")
    status = host.ask("status")
    assert status["run"] == spec["run"]
    assert status["agent_alive"] is True
    assert status["checkpoints"] == []
    assert [member["task"] for member in status["inventory"]["roster"]] == ["worker:0"]
    assert "1000.125" not in str(status)
    assert "hunter2" not in str(status)


def test_status_finds_the_checkpoint_directories_of_the_host(host: AgentHost) -> None:
    host.started(task("worker:0", "sleep", "1000"), checkpoint_dirs=["\0HOME/out"])
    assert [entry["dir"] for entry in host.ask("status")["checkpoints"]] == [str(host.home / "out")]


def test_status_of_a_finished_run_starts_no_supervisor(host: AgentHost) -> None:
    host.started(shell("worker:0", "true"))
    eventually(lambda: not host.processes())
    status = host.ask("status")
    assert status["agent_alive"] is False
    assert status["state"]["finished"] is True


def test_status_reports_the_intents_that_decide_the_outcome(host: AgentHost) -> None:
    host.up(host.spec(task("worker:0", "sleep", "1000")))
    assert host.ask("status")["intents"]["worker:0"]["want"] == "run"
    host.ask("stop", by="me")
    stopped = host.ask("status")["intents"]["worker:0"]
    assert (stopped["want"], stopped["by"]) == ("stop", "me")


def test_status_of_a_run_with_damaged_intents_reports_the_rest(host: AgentHost) -> None:
    spec = host.started(shell("worker:0", "true"))
    eventually(lambda: not host.processes())
    (host.run_directory(spec) / "intent.json").write_text("{")
    status = host.ask("status")
    assert status["intents"] == {}
    assert status["state"]["tasks"]["worker:0"]["state"] == "succeeded"


def test_watch_reports_every_change_until_the_end(host: AgentHost) -> None:
    host.started(shell("worker:0", "until [ -e $HOME/go ]; do sleep 0.05; done"))
    with host.open() as talk:
        talk.send("watch", **host.about({"since_serial": 0, "until_final": True}))
        messages = [talk.await_type("states")]
        assert messages[0]["state"]["tasks"]["worker:0"]["state"] == "running"
        (host.home / "go").touch()
        while (frame := talk.receive())["type"] == "states":
            messages.append(frame)
        assert frame["type"] == "result"
    assert messages[-1]["state"]["tasks"]["worker:0"]["state"] == "succeeded"
    serials = [(one["state"]["serial"], one["coordination"]["serial"]) for one in messages]
    assert serials == sorted(set(serials))


def test_watch_ends_when_its_time_is_over_and_the_conversation_continues(host: AgentHost) -> None:
    host.started(task("worker:0", "sleep", "1000"))
    with host.open() as talk:
        talk.send("watch", **host.about({"for_s": 0.2}))
        while (frame := talk.receive())["type"] == "states":
            pass
        assert frame["type"] == "result"
        talk.send("status", **host.about({}))
        answer = talk.await_type("result")
        assert answer["state"]["tasks"]["worker:0"]["state"] == "running"


def test_watch_continues_when_the_supervisor_is_killed(host: AgentHost) -> None:
    host.started(task("worker:0", "sleep", "1000"))
    with host.open() as talk:
        talk.send("watch", **host.about({"since_serial": 0}))
        agent = talk.await_type("states")["state"]["agent"]
        kill(agent["pid"])
        while (state := talk.await_type("states")["state"])["agent"]["pid"] == agent["pid"]:
            pass
        assert state["tasks"]["worker:0"]["state"] == "running"


def test_runs_lists_those_of_a_cluster_or_all(host: AgentHost) -> None:
    mine = host.spec(task("worker:0", "sleep", "1000"))
    other = host.spec(shell("worker:0", "true"), cluster="other")
    host.up(mine)
    host.up(other)
    eventually(lambda: host.state(other)["finished"])
    everything = host.ask("runs", cluster=None)
    assert [run["run"] for run in everything["runs"]] == [mine["run"], other["run"]]
    assert (everything["omitted"], everything["damaged"]) == (0, [])
    (run,) = host.ask("runs")["runs"]
    assert run.pop("condition")["type"] == "Running"
    assert run == {
        "run": mine["run"],
        "cluster": "c",
        "host": "h1",
        "created": mine["created"],
        "live": True,
        "by": mine["controller"],
        "commit": "",
        "tasks": {"worker:0": "running"},
    }


def test_a_file_that_names_no_run_as_the_current_one_is_reported_and_not_followed(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    (host.root / "clusters" / "c" / "h1" / "current").write_text("../../../etc\n")
    status = host.ask("status")
    assert status["run"] is None
    assert "does not name a run: '../../../etc'" in status["problem"]
    with pytest.raises(AgentRefused, match="does not name a run") as refused:
        host.ask("stop")
    assert refused.value.code == "no_run"
    assert host.ask("status", run=spec["run"])["run"] == spec["run"]
