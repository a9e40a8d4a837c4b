"""Worlds of these tests have processes in memory."""

from __future__ import annotations

import pytest

from tests.unit.agent.coordinate.simulated import simulate


@pytest.fixture(autouse=True)
def processes_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch)
