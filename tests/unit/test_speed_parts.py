"""The parts of a step, as runs show them side by side."""

from __future__ import annotations

import pytest

from dtctl.rooms.metrics.operation import Metrics
from dtctl.rooms.pages.comparing import Comparison, compared
from dtctl.rooms.pages.comparing_document import comparison
from dtctl.rooms.pages.comparing_screen import comparison_rows
from dtctl.rooms.pages.speed_parts import Parts, divided
from dtctl.rooms.speed.facts import Facts
from tests.unit.diagnosing import facts, running
from tests.unit.test_speed_verdicts import gpus, of_two

PARTS = Parts(0.29, 0.71, 0.0, 0.0, 0.21)


def test_what_overlaps_counts_once_and_the_rest_is_other() -> None:
    found = divided(Facts(of_two((110.0, 2.0), 0.4, (0.7, 0.02))))
    assert found is not None
    assert (found.computes, found.network, found.saves) == pytest.approx((0.4, 0.6, 0.0))
    assert found.other == pytest.approx(0.0)
    assert found.step_s == pytest.approx(0.1)
    assert divided(Facts(gpus())) is None
    quiet = divided(Facts(gpus(0.5, 0.3, saving_s=12.0)))
    assert quiet is not None
    assert (quiet.computes, quiet.saves, quiet.other) == pytest.approx((0.4, 0.2, 0.36), abs=0.05)


def test_runs_side_by_side_have_the_parts_of_a_step() -> None:
    status = facts(running("worker:0", "gpu-1")).status
    nothing = Metrics("demo-1", ())
    runs = {"demo-1": compared(status, nothing, measured=(PARTS, {})), "demo-2": compared(status, nothing)}
    rows = dict(comparison_rows(Comparison(runs, {})))
    assert rows["time of a step: network"] == ["71 % (149 ms)", "-"]
    first, second = comparison(Comparison(runs, {}))["runs"]
    assert first["stepParts"] == {"compute": 0.29, "network": 0.71, "save": 0.0, "other": 0.0, "seconds": 0.21}
    assert second["stepParts"] is None
