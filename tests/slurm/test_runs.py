"""Runs on Slurm, as they are typed on the login node."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys

import pytest

from tests.desk import cluster_text
from tests.hosts.slurm import URGENT, Slurm
from tests.manifests import unknown_fields
from tests.slurm.conftest import SAVER, SlurmDesk
from tests.waiting import eventually


def test_a_run_succeeds_and_so_does_its_job(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster(seconds=2)
    job = user.up()
    user.dtctl("wait")
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0"
    assert user.outcome() == "Succeeded"
    assert "worker:1 step" in user.dtctl("logs", "worker:1")
    assert "worker:1 attempt 1 on n2" in user.dtctl("events")
    eventually(lambda: not slurm.busy(), what="nothing to be left")


def test_a_job_of_a_run_that_fails_has_its_exit_code(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster(cluster_text(recovery="{max_restarts: 0}", grace="1s"), seconds=1, exit=3)
    job = user.up()
    code = user.run("wait").returncode
    assert slurm.wait_for(job, "FAILED", "COMPLETED")["ExitCode"] == f"{code}:0" != "0:0"
    assert user.outcome() == "Failed"


def test_a_killed_trainer_is_started_again_and_stop_ends_the_job(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster()
    job = user.up()
    user.wait_for_states("running")
    assert (user.task("worker:1")["host"], user.task("ps:0")["host"]) == ("n2", "n1")
    slurm["n2"].box.run(["kill", "-9", str(user.task("worker:1")["pid"])])
    eventually(lambda: user.task("worker:1")["attempt"] == 2, what="the second attempt")
    assert user.dtctl("stop") == "3 tasks stopped, 0 left\n"
    slurm.wait_for(job, "FAILED", "COMPLETED", "CANCELLED")
    eventually(lambda: not slurm.busy(), what="nothing to be left")


@pytest.mark.parametrize("words", [("stop",), ("down", "--yes")])
def test_a_job_that_waits_is_shown_with_its_reason_and_cancelled(
    slurm: Slurm, user: SlurmDesk, words: tuple[str, ...]
) -> None:
    slurm.wait_for(slurm.sbatch("sleep 1000", "--nodes=4", "--exclusive"), "RUNNING")
    user.write_cluster()
    job = user.up()
    eventually(lambda: "pending: Resources, position 1" in user.dtctl("status"), what="the reason")
    user.dtctl(*words)
    assert slurm.wait_for(job, "CANCELLED")["RunTime"] == "00:00:00"


def test_scancel_lets_trainers_save_and_leaves_nothing(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_saver()
    job = user.up()
    user.wait_for_states("running")
    eventually(lambda: "step 3" in user.dtctl("logs", "worker:0"), what="its steps")
    slurm.typed("scancel", job)
    eventually(lambda: (user.out / "state").exists(), what="the trainer to save")
    eventually(lambda: not slurm.busy(), what="nothing to be left")
    assert slurm.wait_for(job, "CANCELLED")


def test_a_warned_job_is_queued_again_and_continues(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_saver(slurm="{requeue: true}")
    job = user.up()
    user.wait_for_states("running")
    eventually(lambda: "step 3" in user.dtctl("logs", "worker:0"), what="its steps")
    slurm.typed("scancel", "--batch", "--signal=TERM", job)  # as --signal does before the time limit
    eventually(lambda: slurm.job(job)["Restarts"] == "1", what="the requeue", every_s=0.5)
    saved = int((user.out / "state").read_text())
    assert saved >= 3
    slurm.wait_for(job, "RUNNING")
    eventually(
        lambda: f"starts at step {saved}" in user.run("logs", "worker:0").stdout, what="the continuation", every_s=1
    )
    (user.out / "enough").touch()
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0"


def test_a_job_runs_what_was_submitted_and_down_removes_it(slurm: Slurm, user: SlurmDesk) -> None:
    blocking = slurm.sbatch("sleep 1000", "--nodes=4", "--exclusive")
    slurm.wait_for(blocking, "RUNNING")
    user.write_saver(slurm="{requeue: true}")
    job = user.up()
    (user.project / "saver.py").write_text("raise SystemExit('edited since')\n")
    file = user.project / "cluster.yaml"
    file.write_text(file.read_text().replace("saver.py", "stand_in.py"))
    slurm.typed("scancel", blocking)
    eventually(lambda: "step 3" in user.run("logs", "worker:0").stdout, what="its steps", every_s=0.5)
    slurm.typed("scancel", "--batch", "--signal=TERM", job)
    eventually(lambda: slurm.job(job)["Restarts"] == "1", what="the requeue", every_s=0.5)
    slurm.wait_for(job, "RUNNING")
    eventually(lambda: "starts at step" in user.run("logs", "worker:0").stdout, what="the second start", every_s=1)
    (user.out / "enough").touch()
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0"
    user.dtctl("down", "--yes")
    assert [*(user.home / ".local/state/dtctl/slurm").iterdir()] == []


PROGRAM = """\
import dtctl
cluster = dtctl.load("cluster.yaml", {"on": "slurm"})
run, seen = dtctl.up(cluster), []
ended = run.wait(progress=lambda status: seen.append(status.outcome))
print(ended.outcome.value, seen[0].value, dtctl.attach(cluster).id == run.id)
"""


def test_python_submits_waits_and_attaches(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster(seconds=2)
    printed = slurm.typed(sys.executable, "-c", PROGRAM, cwd=user.inside)
    assert printed.split() == ["Succeeded", "Created", "True"]


def test_files_of_a_run_are_for_its_user_alone(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster(seconds=1)
    slurm.wait_for(user.up(), "COMPLETED")
    user.home.chmod(0o755)
    wanted = ["find", f"{slurm.train.home_inside}/.dtctl", f"{slurm.train.home_inside}/.local", "-type", "f"]
    assert "stand_in.py" in slurm.typed(*wanted)
    assert slurm.run(*wanted, user=slurm.other).stdout == ""
    logs = (user.home / ".local/state/dtctl/slurm").iterdir()
    assert [path.name for path in logs if stat.S_IMODE(path.stat().st_mode) != 0o600] == []


CONNECT = """\
import array, os, socket, sys
held = socket.socket(socket.AF_UNIX)
held.connect("\\0dtctl/slurm/%s/n1")
held.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]).tobytes())])
sys.exit(len(held.recv(1)))
"""


def test_another_user_is_not_let_in_by_the_holder(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster()
    job = user.up()
    user.wait_for_states("running")
    program = ["python3", "-c", CONNECT % job]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        slurm["n1"].box.run(program, slurm.other)
    assert refused.value.returncode == 1  # a reset
    assert slurm.run("scancel", job, user=slurm.other).returncode != 0
    user.dtctl("stop")


@pytest.mark.nightly
def test_an_urgent_job_preempts_a_run_which_saves_and_continues(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_saver(slurm="{requeue: true, words: [--exclusive]}")
    job = user.up()
    user.wait_for_states("running")
    eventually(lambda: "step 3" in user.dtctl("logs", "worker:0"), what="its steps")
    slurm.wait_for(slurm.sbatch("true", "--nodes=4", f"--partition={URGENT}"), "COMPLETED")
    saved = int((user.out / "state").read_text())
    slurm.wait_for(job, "RUNNING")
    eventually(
        lambda: f"starts at step {saved}" in user.run("logs", "worker:0").stdout, what="the continuation", every_s=1
    )
    user.dtctl("stop")


@pytest.mark.nightly
def test_a_job_whose_first_node_has_crashed_is_queued_again_and_continues(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_saver(slurm="{requeue: true}")
    (user.project / "saver.py").write_text(SAVES_EACH_STEP)
    job = user.up()
    user.wait_for_states("running")
    eventually(lambda: "step 3" in user.dtctl("logs", "worker:0"), what="its steps")
    slurm.crash(slurm[user.task("worker:0")["host"]])
    eventually(lambda: slurm.job(job)["Restarts"] == "1", what="the requeue", every_s=0.5)
    slurm.wait_for(job, "RUNNING")
    eventually(lambda: "starts at step" in user.run("logs", "worker:0").stdout, what="the second start", every_s=1)
    first = user.run("logs", "worker:0", "-n", "all").stdout.partition("starts at step ")[2].split()[0]
    assert int(first) >= 3
    (user.out / "enough").touch()
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0"


@pytest.mark.nightly
def test_a_crashed_node_is_replaced_by_a_spare(slurm: Slurm, user: SlurmDesk) -> None:
    text = cluster_text(
        recovery="{max_restarts: 2, backoff: 100ms..200ms, replace: 45s}", spares="[node-3]", grace="1s"
    )
    user.write_cluster(text, hosts="hosts:\n  node-[1-3]:\n", until_file="/home/train/enough")
    job = user.up()
    user.wait_for_states("running")
    slurm.crash(slurm["n2"])
    eventually(lambda: user.task("worker:1")["host"] == "n3", what="the spare", every_s=1)
    user.wait_for_states("running")
    (slurm.train.home / "enough").touch()
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0"
    assert "is followed again" not in user.log()


@pytest.mark.nightly
def test_the_digits_train_with_tensorflow_as_init_writes_them(slurm: Slurm, user: SlurmDesk) -> None:
    os.chown(user.project, slurm.train.uid, slurm.train.uid)
    user.dtctl("init", "--name", "digits")
    written = (user.project / "cluster.yaml").read_bytes()
    job = user.up()
    user.run("wait", timeout_s=500)
    assert slurm.wait_for(job, "COMPLETED", "FAILED", timeout_s=60)["ExitCode"] == "0:0"
    assert user.outcome() == "Succeeded"
    assert sorted(user.states()) == ["ps:0", "ps:1", "worker:0", "worker:1"]
    found = json.loads(user.dtctl("checkpoints", "ls", "-o", "json"))
    assert max(map(int, re.findall(r'"step": ([0-9]+)', json.dumps(found)))) >= 3000
    for target in ("tfjob", "jobset"):
        user.dtctl("export", target, "--image", "registry.example.com/digits:1", "--to", f"run.{target}")
    assert (user.project / "cluster.yaml").read_bytes() == written
    exported = unknown_fields([user.project / "run.tfjob", user.project / "run.jobset"])
    assert exported
    assert not any(exported.values())


EACH = "    time.sleep(0.2)\n"
SAVES_EACH_STEP = SAVER.replace(EACH, EACH + "    (out / 'state').write_text(str(step))\n")
