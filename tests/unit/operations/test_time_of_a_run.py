"""Since when a run runs: what is sent and installed before it is no time of the run."""

from __future__ import annotations

import dataclasses

from dtctl.agent.records.whole_run import RunView
from dtctl.agent.run.goodput import begun
from dtctl.render.status import headline
from tests.unit.diagnosing import NOW, facts, running


def test_the_installation_of_an_environment_is_no_time_of_the_run() -> None:
    found = facts(running("worker:0")).status
    assert found.coordination is not None
    typed = dataclasses.replace(found.record, created=NOW - 1800.0)
    view: RunView = {**found.coordination.view, "account": begun(NOW - 60.0)}
    seen = dataclasses.replace(found.coordination, view=view)
    found = dataclasses.replace(found, record=typed, coordination=seen)
    assert found.began == NOW - 60.0
    assert "Running 1m" in "".join(text for text, _ in headline(found))
    older = dataclasses.replace(found, coordination=None)
    assert older.began == NOW - 1800.0, "hosts that report for themselves keep no account"
