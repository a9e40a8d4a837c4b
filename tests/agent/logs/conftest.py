"""A run whose logs are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.logs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")
