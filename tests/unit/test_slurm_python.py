"""`on: slurm` in Python: a run is submitted, asked for and stopped while it waits for nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

import dtctl

PROGRAMS = {
    "sbatch": "echo 12 > $STATE/job; echo 12",
    "squeue": """\
test -e $STATE/job || exit 0
case "$*" in *%i?%Q*) echo "12|1";; *) echo "12|PENDING|Resources|1:00||a|1";; esac""",
    "scontrol": "echo JobId=12 Restarts=0",
    "scancel": "rm $STATE/job",
}
TEXT = """\
name: digits
on: slurm
hosts: {gpu-1: 10.0.0.1}
jobs: {worker: {hosts: [gpu-1]}}
trainer: {command: [python, train.py]}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dtctl.Cluster:
    for name in ("bin", "state", "project"):
        (tmp_path / name).mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("STATE", f"{tmp_path}/state")
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/own")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (tmp_path / "project" / "train.py").touch()
    file = tmp_path / "project" / "cluster.yaml"
    file.write_text(TEXT)
    return dtctl.load(file)


def test_a_run_is_submitted_and_waits_for_its_nodes(cluster: dtctl.Cluster) -> None:
    run = dtctl.up(cluster)
    assert run.status().outcome == "Created"
    assert dtctl.attach(cluster).id == run.id
    with pytest.raises(TimeoutError):
        run.wait(0)


def test_the_wait_reports_the_queue_and_ends_with_the_job(cluster: dtctl.Cluster, tmp_path: Path) -> None:
    run = dtctl.up(cluster)
    seen: list[str] = []

    def report(status: dtctl.Status) -> None:
        seen.append(status.outcome)
        (tmp_path / "state" / "job").unlink()

    with pytest.raises(dtctl.errors.DtctlError, match="has not started"):
        run.wait(progress=report)
    assert seen == ["Created"]
