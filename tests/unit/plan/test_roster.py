"""What part each task of a run has."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.model import TaskId
from dtctl.plan.roster import plan_roster
from tests.unit.clusters import cluster, job


def parts(strategy: str = "auto", **settings: Any) -> dict[str, Any]:
    jobs = (job("ps", ["a"], [1]), job("chief", ["b"], [2]), job("worker", ["c"], [3]), job("evaluator", ["d"], [4]))
    roster = plan_roster(cluster(*jobs, strategy=strategy, **settings))
    assert (roster.lead, roster.success) == (TaskId("chief", 0), settings.get("success", "lead"))
    return {str(part.id): part for part in roster.tasks}


def test_every_task_has_its_host_and_role_and_all_but_the_evaluator_are_vital() -> None:
    found = {name: (part.host, part.role, part.vital) for name, part in parts().items()}
    assert found == {
        "ps:0": ("a", "ps", True),
        "chief:0": ("b", "lead", True),
        "worker:0": ("c", "worker", True),
        "evaluator:0": ("d", "evaluator", False),
    }


@pytest.mark.parametrize(("success", "deciding"), [("lead", {"chief:0"}), ("all-workers", {"chief:0", "worker:0"})])
def test_those_decide_whose_end_the_rule_asks_for(success: str, deciding: set[str]) -> None:
    assert {name for name, part in parts(success=success).items() if part.decides} == deciding


@pytest.mark.parametrize(("strategy", "serving"), [("auto", {"ps:0"}), ("ps-strategy", {"ps:0", "worker:0"})])
def test_those_serve_whom_others_need_to_their_end(strategy: str, serving: set[str]) -> None:
    assert {name for name, part in parts(strategy).items() if part.serves} == serving
