"""A start that fails before anything runs has failed in every command, with its cause and what to type."""

from __future__ import annotations

import json

from tests.desk import Desk, cluster_text

PACKAGE = "no-such-package-anywhere-at-all"
CAUSE = "the environment (requirements: requirements.txt) ended with exit code 1"


def joined(text: str) -> str:
    """Without the line breaks of a narrow terminal."""
    return " ".join(text.split())


def write(home: Desk, more: str = "") -> None:
    trainer = f"command: [python, train.py], dialect: none{more}"
    home.write_cluster(cluster_text(jobs="{worker: {hosts: [node-1]}}", trainer=trainer))
    (home.project / "train.py").write_text("print(1)\n")


def test_a_failed_installation_is_failed_with_its_cause_in_every_command(home: Desk) -> None:
    home.env.update(PIP_NO_INDEX="1", PYTHONWARNINGS="default")
    (home.project / "requirements.txt").write_text(f"{PACKAGE}==1.0\n")
    write(home, ", environment: {requirements: requirements.txt}")
    done = home.run("up", "--local")
    assert CAUSE in joined(done.stderr)
    status = home.dtctl("status")
    assert ": Failed \u00b7 nothing was started: " in status.splitlines()[0]
    diagnosis = home.dtctl("diagnose")
    waited = home.run("wait")
    assert waited.returncode == 1
    assert ": Failed, nothing was started: " in waited.stderr
    for shown in (status, diagnosis, waited.stderr):
        assert CAUSE in joined(shown)
        assert f"No matching distribution found for {PACKAGE}" in joined(shown)
        assert "dtctl logs --setup" in joined(shown)
    [run] = json.loads(home.dtctl("runs", "-o", "json"))["runs"]
    assert run["result"] == "Failed"
    assert CAUSE in run["reason"]
    assert " Failed " in home.dtctl("runs")
    assert home.dtctl("status", "--run", run["run"]) == status
    assert PACKAGE in home.dtctl("logs", "--setup"), "as the remedy says"
    write(home)
    home.dtctl("up", "--local")
    assert home.run("wait").returncode == 0
    assert ": Succeeded" in home.dtctl("status")
    assert [one["result"] for one in json.loads(home.dtctl("runs", "-o", "json"))["runs"]] == ["Succeeded"]


def test_logs_after_a_failed_start_are_those_of_the_run_before_and_say_so(home: Desk) -> None:
    write(home)
    home.dtctl("up", "--local")
    assert home.run("wait").returncode == 0
    home.env.update(PIP_NO_INDEX="1", PYTHONWARNINGS="default")
    (home.project / "requirements.txt").write_text(f"{PACKAGE}==1.0\n")
    write(home, ", environment: {requirements: requirements.txt}")
    home.run("up", "--local")
    [failed] = [one["run"] for one in json.loads(home.dtctl("runs", "-o", "json"))["runs"] if one["result"] == "Failed"]
    for command in ("logs", "events"):
        assert f"{failed} was not started: this is of the run before it" in joined(home.run(command).stderr)
    assert PACKAGE in home.dtctl("logs", "--setup")


def test_a_failed_start_is_forgotten_when_the_cluster_is_taken_down(home: Desk) -> None:
    (home.project / "requirements.txt").write_text(f"{PACKAGE}==1.0\n")
    home.env.update(PIP_NO_INDEX="1", PYTHONWARNINGS="default")
    write(home, ", environment: {requirements: requirements.txt}")
    home.run("up", "--local")
    home.dtctl("down", "--yes", code=None)
    assert "no run of demo" in home.run("status").stderr


def test_a_refused_local_start_leaves_later_commands_on_this_machine(home: Desk) -> None:
    """The hosts of the file do not exist: no name has to resolve for that answer."""
    write(home)
    file = home.project / "cluster.yaml"
    file.write_text(file.read_text().replace("train.py", "trian.py"))
    assert home.run("up", "--local").returncode == 3
    for command in ("status", "diagnose", "wait", "runs"):
        done = home.run(command)
        assert "resolve" not in done.stderr
        assert "no run" in done.stderr
