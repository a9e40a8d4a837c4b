"""The request `gpus`: the GPUs of a host as the tests' own driver reports them, with and without a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.agent.host import AgentHost, task
from tests.hosts.gpus import GB, Gpus, gpu
from tests.waiting import eventually

SECRET = "s3cret-of-a-command-line"


def test_gpus_are_reported_without_a_run_and_users_by_their_program_alone(host: AgentHost, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", f"--token={SECRET}"], stdin=subprocess.PIPE) as stranger:
        fake = Gpus(tmp_path, gpu(busy=97, users={stranger.pid: 30 * GB}), gpu("T4", busy=0, used=0, total=16 * GB))
        with host.open(**fake.env) as talk:
            answer = talk.ask("gpus", **host.about({}))
        name = Path(f"/proc/{stranger.pid}/comm").read_text().strip()
        stranger.kill()
    used, unused = answer["gpus"]["each"]
    assert (used["name"], used["busy"], used["used_bytes"]) == ("A100", 0.97, 30 * GB)
    assert [(one["name"], one["run"], one["task"]) for one in used["users"]] == [(name, None, None)]
    assert (unused["name"], unused["used_bytes"], unused["users"]) == ("T4", 0, [])
    assert SECRET not in str(answer)


def test_a_trainer_on_a_gpu_is_its_task_of_its_run(host: AgentHost, tmp_path: Path) -> None:
    spec, pid = host.running(task("worker:0", "sleep", "1000"))
    fake = Gpus(tmp_path, gpu(users={pid: GB}))
    with host.open(**fake.env) as talk:
        (one,) = talk.ask("gpus", **host.about({}))["gpus"]["each"]
    assert [(user["run"], user["task"]) for user in one["users"]] == [(spec["run"], "worker:0")]


def test_a_host_without_a_driver_or_with_a_broken_one_says_which(host: AgentHost, tmp_path: Path) -> None:
    for line, problem in (("init 9", "no_driver"), ("init 18", "error")):
        with host.open(**Gpus(tmp_path, line).env) as talk:
            found = talk.ask("gpus", **host.about({}))["gpus"]
        assert (found["problem"], found["each"]) == (problem, [])
    eventually(lambda: not host.processes(), what="the end of the readers")
