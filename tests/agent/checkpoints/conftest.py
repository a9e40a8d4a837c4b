"""File systems of a machine that is busy with other tests: slow, but they answer."""

from __future__ import annotations

import pytest

from dtctl.agent.checkpoints import directories, reading, repair
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a look may take. Who tests the limits sets them."""
    for module, limit in ((reading, "LOOK_S"), (repair, "LIMIT_S"), (directories, "_LIMIT_S")):
        monkeypatch.setattr(module, limit, PATIENCE_S)
