"""`dtctl report` and goodput of a real run: a task is killed, comes back, and the run is stopped."""

from __future__ import annotations

import os
import signal
import stat
from typing import Any

import pytest

from tests.desk import Desk
from tests.waiting import eventually


def test_a_run_tells_where_its_time_went_and_becomes_a_page(home: Desk) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    before: Any = eventually(lambda: home.status() if _steps(home.status(), "worker:1") > 3 else None, 60, "steps")
    (task,) = [one for one in before["tasks"] if one["task"] == "worker:1"]
    os.kill(task["pid"], signal.SIGKILL)
    eventually(lambda: _attempt(home.status(), "worker:1") == 2, 60, "another attempt")
    told: Any = eventually(lambda: home.status()["goodput"], 60, "goodput")
    assert sum(told["seconds"].values()) == pytest.approx(told["elapsedSeconds"], abs=0.1)
    assert told["seconds"]["kept"] > 0
    assert "goodput " in home.dtctl("status")
    home.dtctl("stop")
    assert "goodput " in home.dtctl("events")

    run = before["run"]
    assert home.dtctl("report").startswith(f"{run}.html (")
    page = home.project / f"{run}.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text()
    assert "worker:1 on node-2: attempt 1 ended after" in text
    assert "killed by SIGKILL" in text
    assert "Linux" in text
    assert "went into steps that were" in text
    assert home.dtctl("report", "-O", f"{run}.html").startswith(run)
    refused = home.run("report", "-O", "cluster.yaml")
    assert refused.returncode == 2
    assert "no report of dtctl" in refused.stderr
    assert (home.project / "cluster.yaml").read_text().startswith("name: demo")
    assert home.dtctl("report", "--format", "md", "-O", "-").startswith(f"# {run}")


def _steps(status: dict[str, Any], task: str) -> int:
    return next((one["step"] or 0 for one in status["tasks"] if one["task"] == task), 0)


def _attempt(status: dict[str, Any], task: str) -> int:
    return next((one["attempt"] for one in status["tasks"] if one["task"] == task), 0)
