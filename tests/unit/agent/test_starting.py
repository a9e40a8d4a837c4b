"""When a start is over, and what is told of it meanwhile."""

from __future__ import annotations

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import State
from dtctl.agent.requests.starting import has_begun, standing
from tests.unit.agent.supervise import supervised

TASKS = (supervised.task("ps:0", ready="listening"), supervised.task("worker:0"))
COORDINATOR = {"host": "h1", "address": "10.0.0.1:2221", "port": 2221}
STAGES = [{"name": "ps", "tasks": ["ps:0"], "after": []}, {"name": "worker", "tasks": ["worker:0"], "after": [0]}]
SPEC = supervised.spec(*TASKS, coordinator=COORDINATOR)
IN_STAGES = supervised.spec(*TASKS, coordinator=COORDINATOR, stages=STAGES)


def state(ps: str, worker: str, *, ready: bool = False) -> State:
    return made(State, run="r", host="h1", tasks={"ps:0": {"state": ps, "ready": ready}, "worker:0": {"state": worker}})


@pytest.mark.parametrize(
    ("ps", "worker", "begun"),
    [
        ("running", "running", True),
        ("running", "starting", False),
        ("running", "pending", False),
        ("backoff", "succeeded", True),
        ("stopped", "stopped", True),
        ("failed", "pending", True),
        ("failed", "starting", False),
    ],
)
def test_a_start_is_over_when_every_task_has_begun_or_one_has_failed(ps: str, worker: str, begun: bool) -> None:
    assert has_begun(state(ps, worker), SPEC) is begun


@pytest.mark.parametrize(
    ("ps", "worker", "ready", "doing"),
    [
        ("running", "pending", False, {"ps:0": "waits_to_listen", "worker:0": "held"}),
        ("running", "starting", True, {"ps:0": "running", "worker:0": "starting"}),
        ("backoff", "running", False, {"ps:0": "backoff", "worker:0": "running"}),
    ],
)
def test_what_is_told_says_what_each_task_waits_for(ps: str, worker: str, ready: bool, doing: dict[str, str]) -> None:
    assert standing(state(ps, worker, ready=ready), IN_STAGES) == doing
