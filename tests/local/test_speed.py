"""`dtctl speed`, typed in runs on this machine."""

from __future__ import annotations

import json

import pytest

from tests.desk import Desk
from tests.local.test_report import CLUSTER
from tests.waiting import eventually

TRAINER = """\
import time
step = 0
while True:
    step += 1
    print("step", step, flush=True)
    time.sleep(0.5)
"""


@pytest.fixture
def live(home: Desk) -> Desk:
    """Two workers that do nothing but wait, as for input that is late."""
    (home.project / "train.py").write_text(TRAINER)
    home.write_cluster(CLUSTER)
    home.dtctl("up", "--local")
    return home


def test_a_run_that_was_not_measured_for_a_minute_has_no_verdict(live: Desk) -> None:
    shown = live.dtctl("speed")
    assert "nothing was measured yet" in shown or "no verdict" in shown
    document = json.loads(live.dtctl("speed", "-o", "json"))
    assert (document["kind"], document["verdicts"], document["judgedMinutes"]) == ("Speed", [], 0)
    live.dtctl("down", "--yes")
    gone = live.run("speed")
    assert (gone.returncode, "there is no run" in gone.stderr) == (1, True), gone


@pytest.mark.nightly
def test_workers_that_wait_for_input_are_named_live_and_after_the_end(live: Desk) -> None:
    def found() -> list[dict[str, object]]:
        return list(json.loads(live.dtctl("speed", "-o", "json"))["verdicts"])

    eventually(found, 150, "a verdict")
    assert [(one["kind"], one["tasks"]) for one in found()] == [("input", ["worker:0", "worker:1"])]
    assert live.dtctl("speed").startswith("the workers wait for their input")
    live.dtctl("stop")
    assert "the workers wait for their input" in live.dtctl("speed")
    first = live.status()["run"]
    live.dtctl("up", "--local")
    both = live.dtctl("compare", first, live.status()["run"])
    (other,) = (line.split() for line in both.splitlines() if line.startswith("time of a step: other"))
    assert other[5] in ("99", "100"), both
