"""The command of a pod that runs dtctl's agent, as a process of this machine with a home of its own."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from dtctl.rooms.kubectl.holder import FAILED, REFUSED
from tests.desk import Desk, cluster_text, desk
from tests.hosts.api_server import ApiServer
from tests.waiting import eventually, read_until

CLUSTER = cluster_text(jobs="{worker: {hosts: gpu-1}}", coordinator="{port: 2221}")
PROGRAM = shutil.which("kubectl")
JOB = "demo-worker-0"
STAND_IN = """\
#!{python}
import os, sys
words = sys.argv[1:]
if words[:4] != ["exec", "--stdin", "--container=trainer", "job/demo-worker-0"]:
    sys.exit('Error from server (NotFound): jobs.batch not found')
os.environ["HOME"] = {home!r}
os.execvp("python3", words[words.index("--") + 1 :])
"""


@pytest.fixture(params=["kubectl", "stand-in"])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A desk with kubectl and a stand-in for its API server, or with a stand-in for both."""
    home = str(tmp_path / "pod")
    with ExitStack() as stack:
        made = stack.enter_context(desk(tmp_path / "home"))
        if request.param == "kubectl":
            if PROGRAM is None:
                pytest.skip("kubectl is not installed")
            server = stack.enter_context(ApiServer({JOB: {"HOME": home, "PATH": os.environ["PATH"]}}))
            made.env["KUBECONFIG"] = str(tmp_path / "kubeconfig")
            server.write_config(tmp_path / "kubeconfig")
        else:
            program = tmp_path / "bin" / "kubectl"
            program.parent.mkdir()
            program.write_text(STAND_IN.format(python=sys.executable, home=home))
            program.chmod(0o755)
            made.env["PATH"] = f"{program.parent}:{made.env['PATH']}"
        yield made


def mounted(user: Desk, place: Path, **args: object) -> list[str]:
    """The exported command, with the plan's files where they are here."""
    user.write_cluster(CLUSTER, hosts="hosts:\n  gpu-1:\n", **args)
    user.dtctl("export", "jobset", "--with-agent", "--to", str(place / "pod.yaml"))
    config, jobset = yaml.safe_load_all((place / "pod.yaml").read_text())
    plan = place / "plan"
    plan.mkdir()
    for name, text in config["data"].items():
        (plan / name).write_text(text)
    for name, text in config["binaryData"].items():
        (plan / name).write_bytes(base64.b64decode(text))
    (row,) = jobset["spec"]["replicatedJobs"]
    (container,) = row["template"]["spec"]["template"]["spec"]["containers"]
    words = [word.replace("$(TASK_INDEX)", "0").replace("/etc/dtctl", str(place)) for word in container["command"]]
    return [word.replace("/workspace", str(user.project)) for word in words]


@contextmanager
def pod(command: list[str], place: Path) -> Iterator[subprocess.Popen[str]]:
    home = place / "pod"
    home.mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        try:
            yield running
        finally:
            running.terminate()  # its agent ends with it
            running.wait()


def states(user: Desk) -> dict[str, str]:
    """Those of the tasks; none while the agent does not answer in time."""
    done = user.run("status", "-o", "json")
    return {one["task"]: one["state"] for one in json.loads(done.stdout)["tasks"]} if done.stdout else {}


def test_a_run_in_a_pod_is_seen_mended_and_stopped_by_kubectl(user: Desk, tmp_path: Path) -> None:
    with pod(mounted(user, tmp_path), tmp_path) as running:
        read_until(running.stdout, "runs its part of run")
        eventually(lambda: states(user) == {"worker:0": "running"}, what="the task to run")
        assert "worker:0 step" in user.dtctl("logs", "worker:0")
        os.kill(user.task("worker:0")["pid"], signal.SIGKILL)
        eventually(lambda: states(user) and user.task("worker:0")["attempt"] == 2)
        assert user.dtctl("stop") == "1 task stopped, 0 left\n"
        assert running.wait(60) == FAILED


def test_a_pod_ends_with_its_run(user: Desk, tmp_path: Path) -> None:
    with pod(mounted(user, tmp_path, seconds=1), tmp_path) as running:
        assert running.wait(60) == 0
        assert running.stdout is not None
        assert "the run has ended: Succeeded" in running.stdout.read()


def test_a_pod_that_is_deleted_ends_its_tasks_first(user: Desk, tmp_path: Path) -> None:
    with pod(mounted(user, tmp_path), tmp_path) as running:
        read_until(running.stdout, "runs its part of run")
        eventually(lambda: states(user) == {"worker:0": "running"}, what="the task to run")
        pid = user.task("worker:0")["pid"]
        running.terminate()
        assert running.wait(60) == 128 + signal.SIGTERM
        assert not Path(f"/proc/{pid}").exists()


def test_an_image_with_other_code_is_refused(user: Desk, tmp_path: Path) -> None:
    command = mounted(user, tmp_path)
    (user.project / "stand_in.py").write_text("print('another program')\n")
    with pod(command, tmp_path) as running:
        assert running.wait(60) == REFUSED
        assert running.stdout is not None
        assert "the image has other code than this plan" in running.stdout.read()


def test_keys_are_never_printed(user: Desk, tmp_path: Path) -> None:
    user.write_cluster(CLUSTER, hosts="hosts:\n  gpu-1:\n")
    assert "into a file" in user.run("export", "jobset", "--with-agent").stderr
    said = json.loads(user.dtctl("export", "jobset", "--with-agent", "--to", str(tmp_path / "x.yaml"), "-o", "json"))
    assert said["text"] == ""
    assert (tmp_path / "x.yaml").stat().st_mode & 0o777 == 0o600
