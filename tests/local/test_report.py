"""`dtctl report` and goodput of a real run: a task is killed, restarted, and the run is stopped; in a browser, too."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dtctl.render.report import page
from tests.desk import Desk
from tests.unit.report.reports import report
from tests.waiting import eventually


def test_goodput_and_report_of_a_run_with_a_restart(home: Desk) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    before: Any = eventually(lambda: home.status() if _steps(home.status(), "worker:1") > 3 else None, 60, "steps")
    (task,) = [one for one in before["tasks"] if one["task"] == "worker:1"]
    os.kill(task["pid"], signal.SIGKILL)
    eventually(lambda: _attempt(home.status(), "worker:1") == 2, 60, "another attempt")
    goodput: Any = eventually(lambda: _goodput_with_progress(home), 60, "progress that was kept")
    assert sum(goodput["seconds"].values()) == pytest.approx(goodput["elapsedSeconds"], abs=0.1)
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


def _goodput_with_progress(home: Desk) -> dict[str, Any] | None:
    goodput: dict[str, Any] | None = home.status()["goodput"]
    return goodput if goodput and goodput["seconds"]["kept"] > 0 else None


def _steps(status: dict[str, Any], task: str) -> int:
    return next((one["step"] or 0 for one in status["tasks"] if one["task"] == task), 0)


def _attempt(status: dict[str, Any], task: str) -> int:
    return next((one["attempt"] for one in status["tasks"] if one["task"] == task), 0)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_it_without_a_complaint(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(report()), encoding="utf-8")
    shown_page = _shown(file, tmp_path)
    assert "CONSOLE" not in shown_page.stderr
    assert "&lt;script&gt;" in shown_page.stdout
    assert "<script" not in shown_page.stdout
    assert "<h2" in shown_page.stdout
    file.write_text(page(report()).replace("<main>", "<main><script>console.log('ran')</script>"), encoding="utf-8")
    shown_page = _shown(file, tmp_path)
    assert "'ran'" not in shown_page.stderr
    assert "Content Security Policy" in shown_page.stderr, "what would run is held up, and said"


def _shown(file: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *(f"--user-data-dir={home / 'browser'}", "--dump-dom", file.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
