"""`status` and `diagnose` show cause and remedy of real faults."""

from __future__ import annotations

import json
from typing import Any

from tests.desk import Desk, cluster_text
from tests.waiting import eventually

CLUSTER = cluster_text(
    jobs='{worker: {hosts: "node-[1-2]"}}',
    trainer="command: [python, train.py], dialect: none",
    recovery="{max_restarts: 1000, repeat: 0, backoff: 100ms..200ms}",
    grace="100ms",
)

MODULE = "import importlib\nimportlib.import_module('a_module_that_nobody_has')\n"
FROZEN = """\
import os, signal, time
if os.environ["DTCTL_TASK"] == "worker:1":
    os.kill(os.getpid(), signal.SIGSTOP)
print("UNAVAILABLE: /job:worker/replica:0/task:1 does not answer", flush=True)
time.sleep(1000)
"""


def test_status_and_diagnose_show_cause_and_remedy(home: Desk) -> None:
    """tests/unit/operations/test_diagnosis.py has every signature, tests/fleet/test_new_user.py many by night."""
    (home.project / "train.py").write_text(MODULE)
    home.write_cluster(CLUSTER)
    home.run("up", "--local")
    eventually(lambda: _problem(home, "status")["signature"] == "module_missing", what="the signature")
    for shown in (home.dtctl("status"), home.dtctl("diagnose")):
        assert "No module named 'a_module_that_nobody_has'" in shown
        assert "-m pip install a_module_that_nobody_has" in shown
    (home.project / "train.py").write_text(FROZEN)
    home.dtctl("up", "--local", "--replace")
    eventually(lambda: _problem(home, "diagnose")["waiting"], what="who waits")
    problem = _problem(home, "diagnose")
    assert (problem["signature"], problem["tasks"]) == ("frozen", ["worker:1"])
    assert [one["task"] for one in problem["waiting"]] == ["worker:0"]
    assert f"kill -CONT {home.task('worker:1')['pid']}" in home.dtctl("diagnose")


BATON = """\
import os, time

class FileBaton:
    def __init__(self, path):
        self.path = path

    def try_acquire(self):
        try:
            self.held = os.open(self.path, os.O_CREAT | os.O_EXCL)
            return True
        except FileExistsError:
            return False

    def wait(self):
        while os.path.exists(self.path):
            time.sleep(0.1)
"""
BUILDS = """\
import os, signal, sys, time
from torch.utils.file_baton import FileBaton

place = os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "py311_cpu", "utils")
os.makedirs(place, exist_ok=True)
baton = FileBaton(os.path.join(place, "lock"))
if baton.try_acquire():
    print("compiles", flush=True)
    while not os.path.exists("kill"):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
baton.wait()
"""


def test_a_lock_that_a_killed_build_has_left_is_named_and_removed_by_the_command(home: Desk) -> None:
    """A program with the frames of PyTorch; test_left_lock.py has PyTorch itself."""
    builds = home.home / "builds"
    (home.project / "torch/utils").mkdir(parents=True)
    (home.project / "torch/utils/file_baton.py").write_text(BATON)
    (home.project / "train.py").write_text(BUILDS.replace('"kill"', repr(str(home.home / "kill"))))
    env = f"{{{{TORCH_EXTENSIONS_DIR: {builds}}}}}"
    home.write_cluster(CLUSTER.replace("dialect: none", f"dialect: none, env: {env}"))
    home.dtctl("up", "--local", "-q")
    eventually(lambda: "compiles" in home.dtctl("logs"), what="a build")
    assert _problem(home, "diagnose")["signature"] != "lock_left", "a process holds the lock"
    (home.home / "kill").touch()
    eventually(lambda: _problem(home, "diagnose")["signature"] == "lock_left", what="the lock of the killed build")
    shown = home.dtctl("diagnose")
    words = shown[shown.index("dtctl exec") :].split("    ")[0].split()
    assert words[-1] == f"{builds}/py311_cpu/utils/lock"
    home.dtctl("stop")
    home.dtctl(*words[1:])
    (home.home / "kill").unlink()
    home.dtctl("up", "--local", "-q")
    eventually(lambda: "compiles" in home.dtctl("logs"), what="a build")
    assert _problem(home, "diagnose")["signature"] != "lock_left"


def _problem(home: Desk, command: str) -> dict[str, Any]:
    """The first problem."""
    problems = json.loads(home.dtctl(command, "-o", "json"))["problems"]
    return problems[0] if problems else {"signature": "", "waiting": []}
