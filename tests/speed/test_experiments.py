"""Runs that are slow on purpose, and healthy ones, on separate hosts: each has the verdict that it must have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hosts.fleet import missing
from tests.speed.cases import CASES
from tests.speed.judging import is_right, verdicts
from tests.speed.running import run

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", CASES)
def test_a_run_has_the_verdict_of_its_cause(name: str, tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(f"no fleet: {reason}")
    found = run(name, CASES[name], tmp_path)
    own = verdicts(found, CASES[name])
    assert is_right(own[0] if own else None, CASES[name]), json.dumps(found["verdicts"])
    kinds = [one["kind"] for one in found["verdicts"]]
    assert kinds[:1] == [one.kind for one in own[:1]], found["text"]
