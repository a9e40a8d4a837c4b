"""What `check` tells of this machine, and `up` by the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.desk import Desk

FILE = """\
name: demo
hosts:
  node-1: {{transport: local, python: {one}}}
  node-2: {{transport: local, python: {two}}}
jobs: {{worker: {{hosts: "node-[1-2]"}}}}
ports: auto
trainer: {{command: [python, train.py], dialect: none}}
dirs: {{output: ~/saved}}
"""
DIFFERS = "tensorflow is not the same everywhere: 2.19.0 on node-2, 2.21.0 on node-1"


@pytest.fixture
def two_versions(home: Desk) -> Desk:
    """Each host of the cluster has its Python, with what looks like a TensorFlow of its own."""
    pythons = [make_environment(home.home / version, version) for version in ("2.21.0", "2.19.0")]
    (home.project / "cluster.yaml").write_text(FILE.format(one=pythons[0], two=pythons[1]))
    (home.project / "train.py").write_text("print('trained')\n")
    home.allow()
    return home


def make_environment(place: Path, version: str) -> Path:
    packages = place / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
    (packages / f"tensorflow-{version}.dist-info").mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\n"
    (packages / f"tensorflow-{version}.dist-info" / "METADATA").write_text(metadata)
    (place / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    return place / "bin" / "python"


@pytest.mark.nightly
def test_a_problem_is_told_with_what_to_type_and_code_5(two_versions: Desk) -> None:
    done = two_versions.run("check")
    assert done.returncode == 5, done.stdout + done.stderr
    assert f"problem: {DIFFERS}" in done.stdout
    assert (
        f"dtctl exec @node-2 -- {two_versions.home}/2.19.0/bin/python -m pip install tensorflow==2.21.0" in done.stdout
    )
    assert "checkpoints: ~/saved is one directory for node-[1-2]" in done.stdout
    assert not (two_versions.home / "saved").exists()
    assert not list(two_versions.home.rglob(".dtctl-check-*"))


def test_up_warns_by_the_way_and_starts_all_the_same(two_versions: Desk) -> None:
    done = two_versions.run("up")
    assert done.returncode == 0, done.stderr
    assert f"warning: {DIFFERS}" in done.stderr
    assert "dtctl check    looks closer" in done.stderr
    two_versions.dtctl("down", "--yes")
    done = two_versions.run("up", "--no-check", "-o", "json")
    assert "not the same" not in done.stderr
    assert json.loads(done.stdout)["checked"] is None
