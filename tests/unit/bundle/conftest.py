"""Tests of bundles do not use the user's own cache, and scan long after the files were written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans happen an hour after the files were written."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
