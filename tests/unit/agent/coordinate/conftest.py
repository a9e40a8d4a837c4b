"""Worlds of these tests have processes in memory."""

from __future__ import annotations

import pytest

from tests.unit.agent.coordinate.simulated import simulate
from tests.unit.agent.coordinate.training import simulate_training


@pytest.fixture(autouse=True)
def processes_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch)


@pytest.fixture
def processes_that_train(processes_in_memory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_training(monkeypatch)
