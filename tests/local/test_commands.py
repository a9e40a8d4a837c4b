"""Every command as a user types it, on hosts of this machine: no SSH, no framework."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.desk import CLUSTER, TREE, Desk, cluster_text
from tests.waiting import PATIENCE_S, eventually, read_until


def test_one_run_takes_every_command_that_acts_on_it(home: Desk) -> None:
    def pids() -> dict[str, int]:
        return {task["task"]: task["pid"] for task in home.status()["tasks"]}

    home.write_cluster()
    home.dtctl("up", "--local")
    before = pids()
    assert "has not changed" in home.run("up", "--local").stderr
    assert "nothing to remove" in home.dtctl("gc", "--dry-run")

    script = "import os; print(os.environ['DTCTL_TASK'], os.path.exists('stand_in.py'))"
    assert home.dtctl("exec", "worker:1", "--", "python3", "-c", script) == "worker:1 True\n"
    printed = home.dtctl("exec", "worker", "--", "echo", "a  b", "$HOME;'\"")
    assert sorted(printed.splitlines()) == ["worker:0 | a  b $HOME;'\"", "worker:1 | a  b $HOME;'\""]
    assert home.dtctl("exec", "worker", "-x", "@node-1", "--", "echo", "here") == "here\n"
    assert sorted(home.dtctl("exec", "-x", "worker:1", "--", "echo", "in").splitlines()) == [
        "ps:0     | in",
        "worker:0 | in",
    ]
    home.dtctl("exec", "@node-1", "--home", "--", "sh", "-c", "exit 7", code=7)

    states = [json.loads(path.read_text()) for path in (home.home / ".dtctl").glob("runs/*/*/state.json")]
    assert len(states) == 2
    for state in states:
        os.kill(state["agent"]["pid"], signal.SIGKILL)
    assert pids() == before, "the next agents have adopted the tasks"
    assert set(home.states().values()) == {"running"}

    home.dtctl("stop", "-x", "ps", "--exclude", "worker:0")
    assert home.states() == {"ps:0": "running", "worker:0": "running", "worker:1": "stopped"}
    assert "no longer running: worker:1\n" in home.run("up", "--local").stderr
    home.dtctl("restart", "worker:1")
    task = home.task("worker:1")
    assert (task["state"], task["attempt"], task["restarts"]) == ("running", 2, 1)

    assert home.dtctl("stop") == "3 tasks stopped, 0 left\n"
    assert home.processes() == {}
    assert home.dtctl("stop") == "3 tasks had already ended, 0 left\n"
    assert home.outcome() == "Stopped"
    refused = home.run("restart", "worker:1")
    assert (refused.returncode, "has ended: Stopped" in refused.stderr, "dtctl up" in refused.stderr) == (1, True, True)
    events = json.loads(home.dtctl("events", "-o", "json"))["events"]
    requests = [(event["reason"], "@" in event["by"]) for event in events if event["kind"] == "request"]
    assert requests == [(request, True) for request in ("up", "stop worker:1", "restart worker:1", "stop")]


def test_events_show_a_run_from_its_start_to_its_end(home: Desk) -> None:
    home.write_cluster(CLUSTER + "settle: 1s\n", seconds=1, fail_attempts=1, only="worker:0")
    home.dtctl("up", "--local")
    lines = home.dtctl("events", "-f").splitlines()
    eventually(lambda: not home.processes(), 60, "the last event")
    texts = [line[21:] for line in lines]
    (failed,) = [line for line in texts if line.startswith("worker:0 attempt 1 on node-1 ran ")]
    assert re.search(r"s, exit code 1(; the tasks that it needs were not ready)?, to be restarted$", failed)
    assert any(re.fullmatch(r"worker:0 attempt 2 on node-1 ran \ds, succeeded", line) for line in texts)
    assert "Succeeded: worker:0 finished" in texts
    every = home.dtctl("events").splitlines()
    assert [line[:20] for line in every][: len(lines)] == [line[:20] for line in lines]
    assert home.dtctl("events", "-f", "-n", "2").splitlines() == every[-2:]
    assert "failing on purpose" in home.dtctl("logs", "worker:0", "-p")
    assert "attempt 2" in home.dtctl("logs", "worker:0", "-n", "all")
    states = [line[21:] for line in home.dtctl("events", "-v").splitlines()]
    assert {"ps:0 on node-1 pending -> starting", "worker:0 on node-1 pending -> starting"} <= {*states}


def test_a_stop_is_completed_after_its_command_is_interrupted(home: Desk) -> None:
    home.write_cluster(ignore_sigterm=True)
    home.dtctl("up", "--local")
    intents = [*home.home.glob(".dtctl/runs/*/*/intent.json")]
    with home.start("stop", "--grace", "5s") as stopping:
        eventually(lambda: all('"stop"' in file.read_text() for file in intents), 60, "the request to arrive")
        stopping.send_signal(signal.SIGINT)
        output = stopping.stdout.read() if stopping.stdout else ""
    assert stopping.returncode == 130
    assert "still carried out there" in output
    eventually(lambda: not home.processes(), 60, "every process to end")
    assert home.outcome() == "Stopped"


def test_a_failing_host_is_reported_while_another_still_runs_its_setup(home: Desk) -> None:
    trainer = "command: [python, stand_in.py], dialect: flags, setup: sleep 1000"
    home.write_cluster(cluster_text(trainer=trainer), hosts="hosts:\n  node-[1-2]:\n")
    in_the_way = home.home / ".dtctl" / "clusters" / "demo" / "node-2"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    done = home.run("up", "--local")  # otherwise it would wait for longer than this
    assert "cannot prepare on 1 of 2 hosts" in done.stderr
    assert "node-2: cannot handle the request: not a directory" in done.stderr
    assert "node-1: not waited for" in done.stderr
    assert "silent" not in done.stderr
    assert not home.processes()


def test_ctrl_c_while_following_detaches_and_the_run_continues(home: Desk) -> None:
    home.write_cluster()
    with home.start("up", "--local", "-f") as following:
        read_until(following.stdout, "step 3")
        following.send_signal(signal.SIGINT)
        rest, _ = following.communicate()
    assert following.returncode == 130
    assert "the run continues" in rest
    assert set(home.states().values()) == {"running"}


def test_down_removes_the_run_and_keeps_what_a_trainer_wrote(home: Desk) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    work = next((home.home / ".dtctl" / "work").glob("*/tree"))
    (work / "notes.txt").write_text("precious")
    done = home.run("down", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"that trainers of demo wrote: {work}" in done.stderr
    assert (work / "notes.txt").read_text() == "precious"
    assert not list((home.home / ".dtctl" / "bundles").glob("*"))
    assert not list((home.home / ".dtctl" / "runs").glob("*"))
    assert not list((home.home / ".local" / "state" / "dtctl" / "runs").iterdir())
    after = home.run("status")  # the hosts of the file cannot be reached
    assert (after.returncode, after.stderr) == (1, "no run of demo on node-[1-2]\n  dtctl up    starts one\n")


def test_a_secret_is_in_the_trainers_environment_and_nowhere_else(home: Desk) -> None:
    value = "s3cr3t-value-of-a-key"
    home.env["API_KEY"] = value
    trainer = "command: [python, stand_in.py], dialect: flags, secrets: [API_KEY]"
    home.write_cluster(cluster_text(trainer=trainer), show="API_KEY")
    plan = home.run("up", "--local", "--dry-run")
    done = home.run("up", "--local")
    assert done.returncode == 0, done.stderr
    eventually(lambda: "API_KEY=" in home.dtctl("logs", "-n", "all"))
    logs = home.dtctl("logs", "-n", "all")
    assert "API_KEY='***'" in logs
    for text in (plan.stdout, plan.stderr, done.stdout, done.stderr, logs, home.dtctl("status", "-o", "json")):
        assert value not in text
    for pid in home.processes():
        assert value.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    holders = [
        path for path in (home.home / ".dtctl").rglob("*") if path.is_file() and value.encode() in path.read_bytes()
    ]
    assert {path.name for path in holders} <= {"secrets.json", "log"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in holders)


def test_the_shell_completes_tasks_and_runs_from_local_records(home: Desk) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    run = home.status()["run"]

    def completed(*args: str) -> list[str]:
        home.env |= {
            "_DTCTL_COMPLETE": "complete_bash",
            "COMP_WORDS": "\n".join(("dtctl", *args)),
            "COMP_CWORD": str(len(args)),
        }
        script = (
            "import sys; sys.argv = ['dtctl']\n"
            "from dtctl.cli import main\n"
            "try: main()\n"
            "finally: assert not {'fabric', 'paramiko', 'yaml', 'rich.console'} & set(sys.modules)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], env=home.env, cwd=home.home, capture_output=True, text=True, check=False
        )
        for name in ("_DTCTL_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
            del home.env[name]
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("logs", "wor") == ["worker:0", "worker:1", "worker"]
    assert completed("stop", "@") == ["@node-1", "@node-2"]
    assert completed("status", "--run", "demo") == [run]


@pytest.mark.parametrize(("words", "most"), [(("up", "--local"), 171), (("status",), 105)], ids=["up", "status"])
def test_a_command_reads_no_more_modules_of_dtctl_than_it_needs(home: Desk, words: tuple[str, ...], most: int) -> None:
    home.write_cluster()
    if words == ("status",):
        home.dtctl("up", "--local")
    argv, env = [sys.executable, "-X", "importtime", "-m", "dtctl", *words], {**TREE, **home.env}
    done = subprocess.run(
        argv, cwd=home.project, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    read = set(re.findall(r"^import time:.*\| +(dtctl[\w.]*)$", done.stderr, re.MULTILINE))
    assert "dtctl.cli.table" in read
    assert len(read) <= most, sorted(read)
