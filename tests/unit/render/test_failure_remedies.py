"""What the room `diagnose` knows of an error (dtctl.rooms.diagnose.signatures), below the sentence of the failure."""

from __future__ import annotations

from dtctl.operations.failures import failure_of
from dtctl.render.findings import failure_lines
from tests.unit.diagnosing import ended
from tests.unit.ended_logs import LOGS
from tests.unit.render.test_failure import failed


def test_a_known_error_ends_with_its_remedy_and_not_with_the_log() -> None:
    status = failed(ended("worker:0", LOGS["argparse"], code=2))
    failure = failure_of(status)
    assert failure is not None
    assert not failure_lines(failure, status)[-1].startswith("dtctl logs worker:0 -n all    shows")
