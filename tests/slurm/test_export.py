"""The batch file of `dtctl export slurm`, submitted to a real Slurm."""

from __future__ import annotations

from tests.desk import cluster_text
from tests.hosts.slurm import Slurm
from tests.slurm.conftest import SlurmDesk
from tests.waiting import eventually


def submit(slurm: Slurm, user: SlurmDesk) -> str:
    user.dtctl("export", "slurm", "--to", "run.sbatch")
    return slurm.typed("sbatch", "--parsable", "run.sbatch", cwd=user.inside).strip()


def log(user: SlurmDesk, task: str, job: str) -> str:
    path = user.project / f"{task}-{job}.log"
    return path.read_text() if path.exists() else ""


def test_an_exported_batch_file_trains_to_its_end(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster(seconds=2)
    job = submit(slurm, user)
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0"
    assert all("step" in log(user, task, job) for task in ("ps-0", "worker-0", "worker-1"))
    eventually(lambda: not slurm.busy(), what="nothing to be left")


def test_an_exported_batch_file_fails_with_the_task_that_fails(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster(seconds=1, exit=3)
    job = submit(slurm, user)
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "3:0"
    eventually(lambda: not slurm.busy(), what="nothing to be left")


def test_a_cancelled_batch_file_ends_its_tasks(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster()
    job = submit(slurm, user)
    eventually(lambda: "step" in log(user, "worker-1", job), what="its steps")
    slurm.typed("scancel", job)
    slurm.wait_for(job, "CANCELLED")
    eventually(lambda: not slurm.busy(), what="nothing to be left")


def test_tasks_of_a_cancelled_batch_file_may_save(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_saver()
    job = submit(slurm, user)
    eventually(lambda: "step 3" in log(user, "worker-0", job), what="its steps")
    slurm.typed("scancel", "--batch", "--signal=TERM", job)  # as --signal does before the time limit
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "143:0"
    assert int((user.out / "state").read_text()) >= 3


def test_a_node_with_more_tasks_than_others_has_room_for_them(slurm: Slurm, user: SlurmDesk) -> None:
    user.write_cluster(cluster_text(jobs="{ps: {hosts: [node-1]}, worker: {hosts: [node-2, node-2, node-2]}}"))
    job = submit(slurm, user)
    tasks = ("ps-0", "worker-0", "worker-1", "worker-2")
    eventually(lambda: all("step" in log(user, task, job) for task in tasks), 60, "all to run at once", every_s=0.2)
