"""The report as a browser has it: nothing of what hosts say runs, and the browser has nothing to complain about."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dtctl.render.report.page import page
from tests.unit.report.reports import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_it_without_a_complaint(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(report()), encoding="utf-8")
    told = _shown(file, tmp_path)
    assert "CONSOLE" not in told.stderr
    assert "&lt;script&gt;" in told.stdout
    assert "<script" not in told.stdout
    assert "<h2" in told.stdout
    file.write_text(page(report()).replace("<main>", "<main><script>console.log('ran')</script>"), encoding="utf-8")
    told = _shown(file, tmp_path)
    assert "'ran'" not in told.stderr
    assert "Content Security Policy" in told.stderr, "what would run is held up, and said"


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
