"""What `plan` and `up --dry-run` tell of how the run is looked after."""

from __future__ import annotations

from dtctl.plan.run import plan_run
from dtctl.plan.values import RunPlan
from dtctl.render.machine import document
from dtctl.render.plan import order_lines
from tests.unit.clusters import cluster, job

NAMES = {name: name for name in "abcd"}


def plan(strategy: str) -> RunPlan:
    jobs = (job("chief", ["a"], [2222]), job("ps", ["b"], [2222]), job("worker", ["c", "d"], [2222, 2222]))
    value = cluster(*jobs, job("evaluator", ["b"], [2223]), strategy=strategy, dirs={"output": "out"})
    return plan_run(value, NAMES, local_python="python3")


def test_a_plan_tells_the_order_the_coordinator_and_what_a_loss_restarts() -> None:
    assert order_lines(plan("ps-strategy")) == [
        "trains as ps-strategy; coordinator on a, a:2221",
        "starts ps:0, worker:[0-1], chief:0 after ps:0 and worker:[0-1], evaluator:0 after chief:0",
        "a loss of chief:0,evaluator:0,worker:[0-1] restarts it alone; of ps:0 restarts it, then the lead",
    ]


def test_the_machine_form_has_the_same_and_what_follows() -> None:
    told = document.plan(plan("sync-ps"))
    assert (told["strategy"], told["coordinator"]) == ("sync-ps", {"host": "a", "address": "a:2221"})
    assert told["stages"] == [
        {"name": "ps", "tasks": ["ps:0"], "after": []},
        {"name": "chief:0", "tasks": ["chief:0"], "after": [0]},
        {"name": "worker", "tasks": ["worker:0", "worker:1"], "after": [0, 1]},
        {"name": "evaluator", "tasks": ["evaluator:0"], "after": [1]},
    ]
    assert {task["task"]: task["scope"] for task in told["tasks"]} == {
        "chief:0": "gang",
        "ps:0": "gang",
        "worker:0": "task",
        "worker:1": "task",
        "evaluator:0": "task",
    }
    assert (told["needsCheckpoint"], told["settleSeconds"], told["targetStep"]) == (True, 150.0, None)
