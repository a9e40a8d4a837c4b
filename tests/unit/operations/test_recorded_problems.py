"""The problems that `status -o json` shows of recorded runs come from dtctl/rooms/diagnose."""

from __future__ import annotations

import pytest

from tests.unit.agent.coordinate.simulated import simulate
from tests.unit.operations.recorded import SCENES, status_of
from tests.unit.operations.test_recorded_status import KNOWN, facts_of


@pytest.mark.parametrize("name", SCENES)
def test_the_same_run_has_the_same_problems_as_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch)
    world = SCENES[name]()
    shown = status_of(world.data, world.wall)
    assert facts_of(shown["problems"]) == facts_of(KNOWN[name]["status"]["problems"])
