"""What `make demo` does: two ps and two workers learn real digits on this machine, without an sshd.

By night, because test_on_fleet.py trains the same program by day, and tests/local/test_hello.py follows a local run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.desk import desk

pytestmark = [pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(600)]


def test_the_first_trainer_learns_to_read_digits(tmp_path: Path) -> None:
    with desk(tmp_path / "home", name="digits") as user:
        user.project = user.home / "digits"
        user.dtctl("init", "digits", cwd=user.home)
        done = user.run("up", "--local", "-f", timeout_s=500)
        assert done.returncode == 0, done.stderr
        accuracy = re.search(r"held-out accuracy (0\.\d+)", done.stdout)
        assert accuracy
        assert float(accuracy[1]) > 0.95
        # Asynchronous updates of both. On a busy machine one may begin long after the other.
        own_steps = [int(count) for count in re.findall(r"worker \d made (\d+) steps", done.stdout)]
        assert len(own_steps) == 2
        assert min(own_steps) > 10
        result = json.loads((user.home / "dtctl" / "digits" / "output" / "result.json").read_text())
        assert result["step"] >= 3000
        assert user.processes() == {}
