"""Rare commands and options, and rare exit codes; one run serves the tests that only read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.waiting import eventually, read_until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A run that continues; its tests do not change it."""
    with desk(tmp_path_factory.mktemp("seldom") / "home") as made:
        made.write_cluster()
        made.dtctl("up", "--local")
        yield made


def test_ssh_to_a_host_that_is_this_machine_is_a_command_here(running: Desk) -> None:
    assert running.dtctl("ssh", "worker:1", "echo", "a  b", "-x") == "a  b -x\n"
    assert running.dtctl("ssh", "node-1", "--", "sh", "-c", "echo $0", "it") == "it\n"
    running.dtctl("ssh", "@node-2", "sh", "-c", "exit 9", code=9)
    several = running.run("ssh", "worker", "true")
    assert (several.returncode, "worker is on 2 hosts" in several.stderr) == (2, True)
    missing = running.run("ssh", "node-1", "no-such-program")
    assert (missing.returncode, "there is no 'no-such-program'" in missing.stderr) == (2, True)


def test_the_whole_schema_is_printed(running: Desk) -> None:
    schema = json.loads(running.dtctl("schema"))
    assert {"name", "hosts", "jobs", "trainer"} <= set(schema["properties"])


@pytest.mark.nightly
def test_status_watch_repeats_until_ctrl_c(running: Desk) -> None:
    with running.start("status", "--watch") as watching:
        read_until(watching.stdout, r"^worker:1 .*running", times=2)
        watching.send_signal(signal.SIGINT)
        watching.communicate()
    assert watching.returncode == 130


def test_wait_with_a_timeout_exits_with_124(running: Desk) -> None:
    done = running.run("wait", "--timeout", "500ms")
    assert done.returncode == 124
    assert "the run continues" in done.stderr
    assert set(running.states().values()) == {"running"}


def test_workers_are_scaled_while_the_others_go_on(home: Desk) -> None:
    home.write_cluster(cluster_text(jobs="{ps: {hosts: node-1}, worker: {hosts: 'node-[1-2]', replicas: 1}}"))
    assert "worker: 1 of 2 tasks run" in home.dtctl("plan")
    home.dtctl("up", "--local")
    assert home.states() == {"ps:0": "running", "worker:0": "running", "worker:1": "pending"}
    assert home.dtctl("scale", "worker=2", "--dry-run").strip() == (
        "worker: 1 -> 2: worker:1 would start; no other task restarts"
    )
    assert home.dtctl("scale", "worker=2").startswith("worker: 2 of 2\n")
    assert set(home.states().values()) == {"running"}
    home.dtctl("scale", "worker=1")
    assert home.states() == {"ps:0": "running", "worker:0": "running", "worker:1": "pending"}
    refused = home.run("restart", "worker:1")
    assert (refused.returncode != 0, "dtctl scale worker=N" in refused.stderr) == (True, True), refused.stderr
    more, needed = home.run("scale", "worker=3"), home.run("scale", "ps=0")
    assert (more.returncode, "has places for 2 tasks of worker" in more.stderr) == (2, True)
    assert (needed.returncode, "it cannot continue without ps:0" in needed.stderr) == (2, True)
    assert home.task("worker:0")["attempt"] == home.task("ps:0")["attempt"] == 1
    home.dtctl("stop")


def test_collectives_are_scaled_with_a_restart_of_all(home: Desk) -> None:
    home.write_cluster(cluster_text(jobs="{worker: {hosts: 'node-[1-2]', tasks_per_host: 2}}"))
    home.dtctl("up", "--local")
    assert home.dtctl("scale", "worker=3", "--dry-run").strip() == (
        "worker: 4 -> 3: worker:3 would stop; worker:[0-2] would restart"
    )
    assert "worker:[0-2] restart with 3 of worker" in home.dtctl("scale", "worker=3")
    few = {**dict.fromkeys(("worker:0", "worker:1", "worker:2"), "running"), "worker:3": "pending"}
    eventually(lambda: home.states() == few and home.task("worker:0")["attempt"] == 2)
    [start] = (home.home / ".dtctl").glob("runs/*/*/tasks/worker-0/attempt-2/start.json")
    [workers] = [word for word in json.loads(start.read_text())["argv"] if word.startswith("--worker_hosts=")]
    assert workers.count(":") == 3
    home.dtctl("scale", "worker=4")
    eventually(lambda: set(home.states().values()) == {"running"} and home.task("worker:0")["attempt"] == 3)
    needed = home.run("scale", "worker=0")
    assert (needed.returncode, "it cannot continue without worker:0" in needed.stderr) == (2, True), needed.stderr
    home.dtctl("stop")


def test_a_terminated_command_exits_with_143(running: Desk) -> None:
    with running.start("logs", "worker:1", "-f", "-n", "1") as following:
        read_until(following.stdout, "worker:1 step")
        following.send_signal(signal.SIGTERM)
        rest, _ = following.communicate()
    assert following.returncode == 143
    assert "the run continues" in rest
    assert set(running.states().values()) == {"running"}


def test_a_remaining_process_is_reported_by_exit_code_8(home: Desk) -> None:
    """A process that survives SIGKILL: it has the key of its task, and appears after the supervisor's inspection."""
    home.write_cluster()
    home.dtctl("up", "--local")
    home.dtctl("stop")
    [start] = (home.home / ".dtctl").glob("runs/*/*/tasks/worker-1/attempt-1/start.json")
    key = json.loads(start.read_text())["key"]
    late = subprocess.Popen(["sleep", "1000"], env={"DTCTL_KEY": key, "PATH": os.environ["PATH"]})
    try:
        down = home.run("down", "--yes")
        assert down.returncode == 8, down.stderr
        assert str(late.pid) in down.stdout + down.stderr
        assert list((home.home / ".dtctl" / "runs").iterdir())
    finally:
        late.kill()
        late.wait()
