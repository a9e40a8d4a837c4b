"""What dtctl relies on in Slurm itself, as Slurm does it."""

from __future__ import annotations

import os

import pytest

from tests.hosts.slurm import URGENT, Slurm
from tests.waiting import eventually

ECHO = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); sys.stdout.buffer.flush()"
SLEEPS = "srun --overlap sleep 1000"


def enter(job: str, node: str) -> list[str]:
    return ["srun", f"--jobid={job}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1"]


def test_a_step_runs_on_every_node_of_the_allocation(slurm: Slurm) -> None:
    assert sorted(slurm.typed("srun", "--nodes=3", "hostname").split()) == ["n1", "n2", "n3"]


def test_a_step_in_a_running_job_is_a_clean_binary_pipe(slurm: Slurm) -> None:
    job = slurm.sbatch(SLEEPS, "--nodes=3")
    slurm.wait_for(job, "RUNNING")
    data = bytes(range(256)) * 4096 + os.urandom(1 << 16)
    with slurm.open(*enter(job, "n3"), "--quiet", "python3", "-c", ECHO) as step:
        out, err = step.communicate(data)
    assert (step.returncode, err, out == data[::-1]) == (0, b"", True)


def test_two_steps_talk_on_one_node_at_once(slurm: Slurm) -> None:
    job = slurm.sbatch(SLEEPS, "--nodes=2")
    slurm.wait_for(job, "RUNNING")
    with slurm.open(*enter(job, "n2"), "cat") as first, slurm.open(*enter(job, "n2"), "cat") as second:
        for step in (first, second):
            assert step.stdin is not None
            assert step.stdout is not None
            step.stdin.write(b"line\n")
            step.stdin.flush()
            assert step.stdout.readline() == b"line\n"
        assert first.communicate() == second.communicate() == (b"", b"")


def test_the_exit_code_of_the_script_is_that_of_the_job(slurm: Slurm) -> None:
    job = slurm.sbatch("exit 7")
    assert slurm.wait_for(job, "FAILED")["ExitCode"] == "7:0"
    assert slurm.wait_for(slurm.sbatch("true"), "COMPLETED")["ExitCode"] == "0:0"


@pytest.mark.nightly
def test_the_batch_script_gets_sigterm_before_the_time_limit(slurm: Slurm) -> None:
    script = "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.1; done"
    # Slurm looks every 30 s, and warns if it would be late the next time: 10 to 40 s after the start.
    job = slurm.sbatch(script, "--time=1", "--signal=B:TERM@20", "--output=out", "--error=log")
    assert slurm.wait_for(job, "FAILED")["ExitCode"] == "9:0"
    assert (slurm.train.home / "out").read_text() == "ready\nasked\n"


def test_a_requeued_job_keeps_its_id_and_counts_its_restarts(slurm: Slurm) -> None:
    job = slurm.sbatch(
        "echo $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}; exec sleep 1000",
        "--requeue",
        "--output=out",
        "--open-mode=append",
    )
    out = slurm.train.home / "out"
    eventually(lambda: out.exists() and out.read_text() == f"{job} 0\n", what="the first start")
    slurm.typed("scontrol", "requeue", job)
    eventually(lambda: f"{job} 1\n" in out.read_text(), what="the second start")


def test_a_job_that_waits_has_a_reason_and_can_be_cancelled(slurm: Slurm) -> None:
    first, second = (slurm.sbatch(SLEEPS, "--nodes=4", "--exclusive") for _ in range(2))
    slurm.wait_for(first, "RUNNING")
    eventually(lambda: slurm.job(second)["Reason"] == "Resources", what="the reason")
    slurm.typed("scancel", second)
    assert slurm.wait_for(second, "CANCELLED")["RunTime"] == "00:00:00"


def test_an_urgent_job_preempts_and_the_first_is_requeued(slurm: Slurm) -> None:
    script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done"
    job = slurm.sbatch(script, "--nodes=4", "--exclusive", "--requeue", "--output=out", "--open-mode=append")
    out = slurm.train.home / "out"
    eventually(lambda: out.exists() and "ready" in out.read_text(), what="the start")
    slurm.wait_for(slurm.sbatch("true", "--nodes=4", f"--partition={URGENT}"), "COMPLETED")
    assert "asked" in out.read_text()
    assert slurm.job(job)["Restarts"] == "1"


@pytest.mark.nightly
def test_a_crashed_node_leaves_the_job_that_goes_on(slurm: Slurm) -> None:
    job = slurm.sbatch("sleep 1000", "--nodes=2", "--no-kill")
    assert slurm.wait_for(job, "RUNNING")["NodeList"] == "n[1-2]"
    slurm.crash(slurm["n2"])
    eventually(lambda: slurm.node_states()["n2"].startswith("down"), what="Slurm to notice", every_s=0.2)
    found = slurm.job(job)
    assert (found["JobState"], found["NodeList"]) == ("RUNNING", "n1")


def test_a_step_of_another_user_does_not_enter_the_job(slurm: Slurm) -> None:
    job = slurm.sbatch(SLEEPS)
    slurm.wait_for(job, "RUNNING")
    done = slurm.run(*enter(job, "n1"), "true", user=slurm.other)
    assert (done.returncode, "Access/permission denied" in done.stderr) == (1, True)
