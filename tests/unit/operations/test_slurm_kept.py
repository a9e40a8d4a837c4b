"""What a run that waits for its job is made of stays as it was when the run was submitted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dtctl.config.cluster import Cluster
from dtctl.config.load import load_cluster
from dtctl.errors import DtctlError
from dtctl.operations.engines import Lent
from dtctl.operations.up.launch import Start, prepare_launch
from dtctl.rooms.slurm.engine import SlurmEngine
from dtctl.rooms.slurm.kept import Kept, keep
from dtctl.rooms.slurm.kept import lent as lent_of
from dtctl.rooms.slurm.submission import Submission, code_of, directory, file_of, log_of, submit

TEXT = """\
name: digits
on: slurm
hosts: {gpu-1: 10.0.0.1}
jobs: {worker: {hosts: [gpu-1]}}
trainer: {command: [python, train.py]}
"""
RUN = "digits-20260101-000000-0a0b"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/state")
    place = tmp_path / "project"
    (place / "lib").mkdir(parents=True)
    (place / "train.py").write_text("print(1)\n")
    (place / "lib" / "run.sh").write_text("exit 0\n")
    (place / "lib" / "run.sh").chmod(0o755)
    (place / "link").symlink_to("lib/run.sh")
    (place / "cluster.yaml").write_text(TEXT)
    return load_cluster(place / "cluster.yaml")


@pytest.fixture
def launch(cluster: Cluster) -> Start:
    return prepare_launch(SlurmEngine().place(cluster), lambda settings: settings.target, os.environ)


@pytest.fixture
def parts(launch: Start, cluster: Cluster) -> Lent:
    return Lent(RUN, cluster.file, TEXT.encode(), launch.bundle, launch.wheels, launch.content, launch.inspected)


def again(parts: Lent, place: Path) -> Lent:
    return lent_of(Kept.of(parts), RUN, parts.file, place)


def test_the_job_starts_the_code_and_the_file_that_were_submitted(
    cluster: Cluster, parts: Lent, launch: Start, tmp_path: Path
) -> None:
    keep(parts, tmp_path / "kept")
    (cluster.file.parent / "train.py").write_text("print(2)\n")
    cluster.file.write_text(TEXT.replace("digits", "others"))
    found = again(parts, tmp_path / "kept")
    assert (found.content.decode(), found.bundle.manifest) == (TEXT, launch.bundle.manifest)
    assert (found.bundle.root / "train.py").read_text() == "print(1)\n"


def test_a_lent_start_scans_nothing(cluster: Cluster, parts: Lent, tmp_path: Path) -> None:
    keep(parts, tmp_path / "kept")
    found = again(parts, tmp_path / "kept")
    (cluster.file.parent / "train.py").unlink()
    started = prepare_launch(SlurmEngine().place(cluster), lambda settings: settings.target, {}, lent=found)
    assert (started.bundle, started.record.run, started.lent) == (found.bundle, RUN, True)


def test_what_is_kept_is_for_its_user_alone(parts: Lent, tmp_path: Path) -> None:
    keep(parts, tmp_path / "kept")
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kept").rglob("*")}
    assert modes == {True: 0o700, False: 0o600}


@pytest.mark.parametrize("name", ["code/tree/train.py", "code/manifest.json", "cluster.yaml"])
def test_what_has_changed_since_is_refused(name: str, parts: Lent, tmp_path: Path) -> None:
    keep(parts, tmp_path / "kept")
    path = tmp_path / "kept" / name
    path.write_bytes(path.read_bytes().replace(b"train", b"drain").replace(b"1", b"2"))
    with pytest.raises(DtctlError, match="not as it was submitted"):
        again(parts, tmp_path / "kept")


def test_what_was_removed_is_refused(parts: Lent, tmp_path: Path) -> None:
    with pytest.raises(DtctlError, match=r"not in .*/kept any more"):
        again(parts, tmp_path / "kept")


def sbatch(place: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    place.mkdir()
    (place / "sbatch").write_text(f"#!/bin/sh\necho 12\nexit {code}\n")
    (place / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")


def test_a_job_that_is_refused_leaves_nothing(
    cluster: Cluster, parts: Lent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch(tmp_path / "bin", monkeypatch, 1)
    with pytest.raises(DtctlError, match="sbatch has failed"):
        submit(Submission.of(cluster, parts), cluster, parts, os.environ)
    assert [*directory().iterdir()] == []


def test_down_removes_what_was_kept_for_all_starts_of_the_job(
    cluster: Cluster, launch: Start, parts: Lent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch(tmp_path / "bin", monkeypatch, 0)
    SlurmEngine().submit(cluster, launch.record, parts, os.environ)
    run = parts.run
    assert all(path.exists() for path in (file_of(run), code_of(run), log_of(run)))
    SlurmEngine().forget([f"{run}-r1"])
    assert [*directory().iterdir()] == []
