"""`status` and `diagnose` name cause and remedy of faults that really happen."""

from __future__ import annotations

import json
from typing import Any

from tests.desk import Desk
from tests.waiting import eventually

CLUSTER = """\
name: {name}
{hosts}
jobs: {{worker: {{hosts: "node-[1-2]"}}}}
trainer:
  command: [python, train.py]
  dialect: none
  args: {{step_s: 0.2}}
recovery: {{max_restarts: 1000, repeat: 0, backoff: 100ms..200ms}}
grace: 100ms
"""

FLAG = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--steps')\nparser.parse_args()\n"
MODULE = "import importlib\nimportlib.import_module('a_module_that_nobody_has')\n"
PORT = """\
import socket
first = socket.create_server(("127.0.0.1", 0))
socket.create_server(first.getsockname())
"""
FROZEN = """\
import os, signal, time
if os.environ["DTCTL_TASK"] == "worker:1":
    os.kill(os.getpid(), signal.SIGSTOP)
print("UNAVAILABLE: /job:worker/replica:0/task:1 does not answer", flush=True)
time.sleep(1000)
"""

FAULTS = (
    (FLAG, "flag_wrong", "unrecognized arguments: --step_s=0.2", "dtctl plan worker:"),
    (MODULE, "module_missing", "No module named 'a_module_that_nobody_has'", "-m pip install a_module_that_nobody_has"),
    (PORT, "port_taken", "Address already in use", "dtctl gc"),
)


def test_cause_and_remedy_stand_in_status_and_diagnose(home: Desk) -> None:
    for program, name, cause, remedy in FAULTS:
        (home.project / "train.py").write_text(program)
        home.write_cluster(CLUSTER)
        home.run("up", "--local", "--replace")
        eventually(lambda name=name: _problem(home, "status")["signature"] == name, 60, name)  # type: ignore[misc]
        for shown in (home.dtctl("status"), home.dtctl("diagnose")):
            assert cause in shown
            assert remedy in shown
    (home.project / "train.py").write_text(FROZEN)
    home.dtctl("up", "--local", "--replace")
    eventually(lambda: _problem(home, "diagnose")["waiting"], 60, "who waits")
    problem = _problem(home, "diagnose")
    assert (problem["signature"], problem["tasks"]) == ("frozen", ["worker:1"])
    assert [one["task"] for one in problem["waiting"]] == ["worker:0"]
    assert f"kill -CONT {home.task('worker:1')['pid']}" in home.dtctl("diagnose")


LOOP = """\
import time
time.sleep(2)
print("step 5", flush=True)
time.sleep(1)
raise %s
"""


def test_a_restart_loop_is_shown_while_the_task_runs(home: Desk) -> None:
    for error, name in (("MemoryError", "host_memory"), ("LookupError('odd words')", "ended")):
        (home.project / "train.py").write_text(LOOP % error)
        home.write_cluster(CLUSTER)
        home.run("up", "--local", "--replace")
        eventually(lambda: home.task("worker:0")["restarts"] >= 2, 60, "two losses")
        eventually(lambda: home.task("worker:0")["state"] == "running", 60, "a task that runs")
        for command in ("diagnose", "status"):
            problem = _problem(home, command)
            assert problem["signature"] == name
            assert "worker:0" in problem["tasks"]
            assert problem["end"]["timesInARow"] >= 2
    shown = home.dtctl("diagnose")
    assert "unrecognised error; last lines of worker:" in shown
    assert "  LookupError: odd words" in shown


def _problem(home: Desk, command: str) -> dict[str, Any]:
    """The first."""
    problems = json.loads(home.dtctl(command, "-o", "json"))["problems"]
    return problems[0] if problems else {"signature": "", "waiting": []}
