"""The cluster that a command refers to, clusters of one name, starts at the same time, and invalid plans."""

from __future__ import annotations

import json
import shutil
import signal
import socket
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text
from tests.waiting import PATIENCE_S, eventually

CLUSTER = """\
name: demo
hosts: {node-1: {transport: local}}
jobs: {worker: {hosts: node-1PORT}}
trainer: {command: [python, train.py], args: {out: "{output_dir}"}}
dirs: {output: out}
"""
TRAINER = """\
import pathlib, sys, time
out = pathlib.Path(next(word for word in sys.argv if word.startswith("--out=")).removeprefix("--out="))
(out / "model").write_text("1")
time.sleep(1000)
"""


def project(home: Desk, name: str, port: int | None = None) -> Path:
    place = home.home / name
    place.mkdir()
    (place / "cluster.yaml").write_text(CLUSTER.replace("PORT", f", port: {port}" if port else ""))
    (place / "train.py").write_text(TRAINER)
    home.allow(place / "cluster.yaml")
    return place


def test_a_project_stops_before_it_continues_from_anothers_output(home: Desk) -> None:
    first, second = project(home, "first"), project(home, "second")
    home.dtctl("up", "-q", cwd=first)
    home.dtctl("stop", cwd=first)
    refused = home.run("up", "-q", cwd=second)
    assert refused.returncode == 5
    output = home.home / "dtctl" / "demo" / "out"
    assert f"node-1: {output}, by cluster demo of {first} (" in refused.stderr
    assert f"this is cluster demo of {second}" in refused.stderr
    assert "dtctl up --adopt-output" in refused.stderr
    assert home.run("up", "-q", "--replace", cwd=second).returncode == 5  # and not by taking over the run
    home.dtctl("up", "-q", cwd=first)  # its own run
    home.dtctl("stop", cwd=first)
    home.dtctl("up", "-q", "--adopt-output", cwd=second)
    home.dtctl("stop", cwd=second)
    assert home.run("up", "-q", cwd=first).returncode == 5
    assert [path.name for path in output.iterdir()] == ["model"]


def test_a_port_in_use_is_reported_with_a_command_that_starts_the_run(home: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        place = project(home, "first", port)
        refused = home.run("up", "-q", cwd=place)
        assert refused.returncode == 5
        assert f"node-1: port {port} of worker:0 is held by pid " in refused.stderr
        line = next(line for line in refused.stderr.splitlines() if "dtctl up --set" in line)
        home.dtctl(*line.split("hint: dtctl ")[1].split("    ")[0].split(), "-q", cwd=place)
        home.dtctl("down", "-y", cwd=place)


def test_runs_share_hosts_without_configured_ports(home: Desk) -> None:
    """stand_in.py listens on its address."""
    second = home.home / "second"
    text = cluster_text(jobs="{worker: {hosts: [node-1]}}")
    home.write_cluster(text, hosts="hosts: {node-1: {transport: local}}")
    shutil.copytree(home.project, second)
    (second / "cluster.yaml").write_text((second / "cluster.yaml").read_text().replace("name: demo", "name: other"))
    home.allow(second / "cluster.yaml")
    home.dtctl("up", "-q")
    moved = home.run("up", "-q", cwd=second)
    assert moved.returncode == 0, moved.stderr
    assert "port 2222 is in use on node-1; the hosts choose other ports" in moved.stderr
    assert "node-1: port 2222 of worker:0 is held by pid " in moved.stderr
    assert "problem:" not in moved.stderr
    status = [json.loads(home.dtctl("status", "-o", "json", cwd=place)) for place in (home.project, second)]
    ports = [int(one["tasks"][0]["address"].rpartition(":")[2]) for one in status]
    assert ports[0] == 2222
    assert ports[1] > 10000
    assert "has not changed" in home.run("up", cwd=second).stderr
    assert [one["cluster"] for one in json.loads(home.dtctl("runs", "-o", "json"))["runs"]] == ["demo"]
    every = json.loads(home.dtctl("runs", "--all", "-o", "json"))["runs"]
    assert [one["cluster"] for one in every] == ["other", "demo"]
    assert "@" in every[0]["startedBy"]
    home.dtctl("stop", cwd=second)
    refused = home.run("up", "--set", "ports=2221", cwd=second)
    assert refused.returncode == 5
    assert "port 2222 is in use on node-1" in refused.stderr
    for place in (home.project, second):
        home.dtctl("down", "--yes", "--grace", "1s", cwd=place)


def test_plan_takes_a_task_or_a_file(home: Desk) -> None:
    place = project(home, "first")
    assert home.dtctl("plan", "worker:0", cwd=place).startswith("worker:0 on node-1, 127.0.0.1:2222\n")
    assert home.dtctl("plan", "cluster.yaml", "worker", cwd=place) == home.dtctl("plan", "worker:0", cwd=place)
    (place / "worker").write_text((place / "cluster.yaml").read_text().replace("demo", "named"))
    assert home.dtctl("plan", "worker", cwd=place).startswith("named: 1 task ")
    assert "there is no job 'wroker' in this cluster" in home.run("plan", "wroker:0", cwd=place).stderr


def test_plan_warns_of_a_program_that_is_not_there(home: Desk) -> None:
    place = project(home, "first")
    (place / "train.py").rename(place / "trian.py")
    done = home.run("plan", cwd=place)
    assert done.returncode == 0
    assert "there is no train.py in the code" in done.stderr
    assert "did you mean 'trian.py'?" in done.stderr


@pytest.fixture
def elsewhere(home: Desk) -> Path:
    directory = home.home / "elsewhere"
    directory.mkdir()
    return directory


def other_project(home: Desk, name: str, cluster: str) -> Path:
    directory = home.home / name
    directory.mkdir()
    text = (home.project / "cluster.yaml").read_text().replace("name: demo", f"name: {cluster}")
    (directory / "cluster.yaml").write_text(text)
    (directory / "stand_in.py").write_bytes((home.project / "stand_in.py").read_bytes())
    return directory


def test_from_another_directory_a_run_is_stopped_only_by_name(home: Desk, elsewhere: Path) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: "worker:1 step" in home.dtctl("logs", "worker:1", cwd=elsewhere))
    assert f"this is demo in {home.project}" in home.run("status", cwd=elsewhere).stderr
    for command in (["stop"], ["down", "--yes"], ["restart", "worker:1"], ["gc", "--yes"], ["exec", "--", "true"]):
        refused = home.run(*command, cwd=elsewhere)
        assert (refused.returncode, refused.stdout) == (2, "")
        for hint in ("demo-2", str(home.project), f"dtctl {command[0]} --cluster demo"):
            assert hint in refused.stderr
    assert set(home.states().values()) == {"running"}
    done = home.run("stop", "--cluster", "demo", cwd=elsewhere)
    assert (done.returncode, done.stdout) == (0, "3 tasks stopped, 0 left\n")
    assert done.stderr.startswith("stopping demo-")
    assert done.stderr.endswith(": 3 tasks on 2 hosts\n")
    assert "Stopped" in home.run("stop", cwd=elsewhere).stderr, "how it ended is remembered"


def test_several_starts_at_the_same_time_take_ports_of_their_own(home: Desk) -> None:
    home.write_cluster()
    places = [other_project(home, name, name) for name in ("one", "two", "three")]
    starts = [home.start("up", "--local", "-q", cwd=place) for place in places]
    outputs = [start.communicate(timeout=PATIENCE_S)[0] for start in starts]
    assert [start.returncode for start in starts] == [0, 0, 0], outputs
    for place in places:
        home.dtctl("down", "--yes", cwd=place)


def test_an_interrupt_before_the_start_reports_it_and_leaves_no_trace(home: Desk) -> None:
    begun = home.home / "begun"
    trainer = f"command: [python, stand_in.py], dialect: flags, setup: touch {begun}; sleep 100"
    file = home.write_cluster(cluster_text(trainer=trainer))
    with home.start("up", "--local") as starting:
        eventually(begun.exists)
        starting.send_signal(signal.SIGINT)
        output = starting.communicate(timeout=PATIENCE_S)[0]
    assert starting.returncode == 130
    assert "interrupted: nothing was started" in output
    assert not list((home.home / ".local" / "state" / "dtctl" / "runs").glob("*.json"))
    file.unlink()
    refused = home.run("stop")
    assert (refused.returncode, "dtctl init" in refused.stderr) == (2, True)
