"""The plan of a run that would be submitted to Slurm."""

from __future__ import annotations

import json

import pytest

from tests.unit.conftest import Typed


@pytest.mark.parametrize("words", ["plan --set on=slurm", "up --on slurm --dry-run"])
def test_the_plan_of_a_batch_job_shows_what_would_be_submitted(words: str, typed: Typed) -> None:
    code, out, _ = typed(f"{words} --set slurm.partition=gpu")
    assert code == 0
    assert "--partition=gpu" in out
    assert "node-1" in out
    document = json.loads(typed(f"{words} --set slurm.partition=gpu -o json")[1])
    assert "--partition=gpu" in document["job"]["words"]
    assert document["tasks"][0]["host"].startswith("node-")
