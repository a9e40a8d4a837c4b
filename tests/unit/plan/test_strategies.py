"""What follows from the way of training: who needs whom, and what a loss restarts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.spec import comes_back_alone
from dtctl.config.cluster import Cluster, Launch, Recovery
from dtctl.config.strategies import circle, strategy_of
from dtctl.errors import PreflightError
from dtctl.plan import RunPlan, TaskPlan
from dtctl.plan.run import plan_run, stages
from tests.unit.clusters import cluster, job

WITH_PS = ("ps", "chief", "worker", "evaluator")
WITHOUT_PS = ("worker", "evaluator", "board")


def of(*names: str, strategy: str = "auto", **settings: Any) -> Cluster:
    """Two tasks of each of these jobs, but one lead where there is a chief, and one evaluator."""
    counts = {"chief": 1, "evaluator": 1}
    jobs = [
        job(name, ["a", "b"][: counts.get(name, 2)], [2300 + 10 * place] * counts.get(name, 2))
        for place, name in enumerate(names)
    ]
    return cluster(*jobs, strategy=strategy, **settings)


def planned(value: Cluster) -> RunPlan:
    return plan_run(value, {"a": "a", "b": "b"}, local_python="python3")


def places(plan: RunPlan) -> dict[str, TaskPlan]:
    return {str(task.id): task for task in plan.tasks}


def order(value: Cluster) -> dict[str, list[str]]:
    """Each stage by the names of its tasks, and the names of the stages that it needs."""
    found = stages(value)
    assert all(index < place for place, stage in enumerate(found) for index in stage["after"])
    return {" ".join(stage["tasks"]): [found[index]["name"] for index in stage["after"]] for stage in found}


@pytest.mark.parametrize(
    ("value", "way"),
    [
        (of("ps", "worker"), "async-ps"),
        (of("worker"), "collective"),
        (of("chief", "worker"), "collective"),
        (of("chief", "evaluator"), "single"),
        (of("chief", "actor"), "single"),
        (of("node"), "collective"),
        (of("ps", "worker", strategy="sync-ps"), "sync-ps"),
        (of("chief", "evaluator", strategy="mirrored"), "collective"),
        (of("worker", strategy="ddp"), "collective"),
        (of("scheduler", "server", "worker", strategy="kvstore"), "kvstore"),
    ],
)
def test_the_strategy_is_declared_or_follows_from_the_jobs(value: Cluster, way: str) -> None:
    assert strategy_of(value).value == planned(value).strategy.value == way


def with_waits(value: Cluster, **depends_on: tuple[str, ...]) -> Cluster:
    jobs = {
        name: dataclasses.replace(one, depends_on=depends_on.get(name, one.depends_on))
        for name, one in value.jobs.items()
    }
    return dataclasses.replace(value, jobs=jobs)


SERVED_FROM_PS = {
    "ps:0 ps:1": [],
    "chief:0": ["ps"],
    "worker:0 worker:1": ["ps", "chief:0"],
    "evaluator:0": ["chief:0"],
}
LED_BY_WORKER = {"ps:0 ps:1": [], "worker:0": ["ps"], "worker:1": ["ps", "worker:0"], "evaluator:0": ["worker:0"]}
CONNECTED = {
    "ps:0 ps:1": [],
    "worker:0 worker:1": [],
    "chief:0": ["ps", "worker"],
    "evaluator:0": ["chief:0"],
}
GANG: dict[str, list[str]] = {"worker:0": [], "worker:1": [], "board:0 board:1": [], "evaluator:0": ["worker:0"]}
WAITING = with_waits(of("ps", "worker", "evaluator", "board"), worker=(), evaluator=("worker",), board=("ps",))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(pytest.param(of(*WITH_PS, strategy=way), SERVED_FROM_PS, id=way) for way in ("async-ps", "sync-ps")),
        *(
            pytest.param(of("worker", "ps", "evaluator", strategy=way), LED_BY_WORKER, id=f"{way} led by a worker")
            for way in ("async-ps", "sync-ps")
        ),
        *(pytest.param(of(*WITH_PS, strategy=way), CONNECTED, id=way) for way in ("ps-strategy", "in-graph")),
        pytest.param(
            of("ps", "worker", strategy="in-graph"),
            {"ps:0 ps:1": [], "worker:1": [], "worker:0": ["ps", "worker"]},
            id="in-graph led by a worker",
        ),
        *(pytest.param(of(*WITHOUT_PS, strategy=way), GANG, id=way) for way in ("auto", "mirrored", "kvstore")),
        pytest.param(
            WAITING,
            {
                "ps:0 ps:1": [],
                "worker:0": [],
                "worker:1": [],
                "board:0 board:1": ["ps"],
                "evaluator:0": ["worker:0", "worker"],
            },
            id="depends_on replaces the defaults, and waits for all tasks of the lead's job",
        ),
    ],
)
def test_start_order_follows_strategy_and_depends_on(value: Cluster, expected: dict[str, list[str]]) -> None:
    assert order(value) == expected


@pytest.mark.parametrize(
    ("strategy", "servers"),
    [("async-ps", "ps"), ("sync-ps", "ps"), ("ps-strategy", "ps worker"), ("in-graph", "ps worker")],
)
def test_servers_are_those_that_the_others_need_to_the_last_step(strategy: str, servers: str) -> None:
    tasks = planned(of(*WITH_PS, strategy=strategy)).tasks
    assert " ".join(dict.fromkeys(task.id.job for task in tasks if task.serves)) == servers


def test_only_jobs_with_depends_on_are_held() -> None:
    assert not any(stage["held"] for stage in stages(of(*WITH_PS)))
    waits = stages(with_waits(of(*WITH_PS), worker=("ps",), chief=()))
    assert [stage["name"] for stage in waits if stage["held"]] == ["worker"]


def test_jobs_that_wait_for_each_other_are_refused() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == ("b", "c")
    assert circle({"a": ["b", "c"], "b": ["c"], "c": []}) == ()
    with pytest.raises(PreflightError, match="worker:0 and ps wait for each other"):
        stages(with_waits(of("ps", "worker"), ps=("worker",)))


LOSSES = {
    "async-ps": {"worker:0": "task", "ps:0": "task", "chief:0": "task"},
    "in-graph": {"worker:0": "task", "ps:0": "task", "chief:0": "task"},
    "sync-ps": {"worker:0": "task", "ps:0": "gang", "chief:0": "gang"},
    "ps-strategy": {"worker:0": "task", "ps:0": "with-lead", "chief:0": "task"},
    "kvstore": {"worker:0": "gang", "ps:0": "gang", "chief:0": "gang"},
}


@pytest.mark.parametrize("strategy", LOSSES)
def test_a_loss_restarts_what_the_way_of_training_needs(strategy: str) -> None:
    found = places(planned(of(*WITH_PS, strategy=strategy)))
    assert {task: found[task].scope for task in LOSSES[strategy]} == LOSSES[strategy]
    assert found["evaluator:0"].scope == "task"


def test_a_collective_restarts_as_a_whole_and_a_lead_without_companions_alone() -> None:
    assert {task.scope for task in planned(of("worker", "board")).tasks} == {"gang"}
    assert {task.scope for task in planned(of("chief", "actor")).tasks} == {"task"}


def test_the_mode_of_recovery_stands_over_the_way_of_training() -> None:
    gang = planned(of(*WITH_PS, recovery=Recovery(mode="gang")))
    assert {str(task.id) for task in gang.tasks if task.scope != "gang"} == {"evaluator:0"}
    alone = planned(of("worker", recovery=Recovery(mode="task")))
    assert {task.scope for task in alone.tasks} == {"task"}
    never = planned(of("ps", "worker", strategy="sync-ps", recovery=Recovery(mode="never")))
    assert places(never)["ps:0"].scope == "gang"


def test_roles_decide_success_and_failure() -> None:
    found = places(planned(of(*WITH_PS, "board")))
    assert {task: (place.role, place.vital, place.decides) for task, place in found.items() if task.endswith(":0")} == {
        "ps:0": ("ps", True, False),
        "chief:0": ("lead", True, True),
        "worker:0": ("worker", True, False),
        "evaluator:0": ("evaluator", False, False),
        "board:0": ("other", True, False),
    }
    collective = places(planned(of(*WITHOUT_PS)))
    assert {task for task, place in collective.items() if place.decides} == {"worker:0", "worker:1"}
    declared = places(planned(of(*WITH_PS, success="all-workers")))
    assert {task for task, place in declared.items() if place.decides} == {"chief:0", "worker:0", "worker:1"}


def test_an_agent_restarts_by_itself_only_what_comes_back_alone_and_holds_no_state() -> None:
    def alone(plan: RunPlan) -> set[str]:
        return {str(task.id) for task in plan.tasks if comes_back_alone(task.role, task.scope)}

    assert alone(planned(of(*WITH_PS))) == {"worker:0", "worker:1", "evaluator:0"}
    assert alone(planned(of("worker"))) == set()


@pytest.mark.parametrize(
    ("value", "needed"),
    [
        (of("ps", "worker", dirs={"output": "out"}), True),
        (of("ps", "worker", checkpoint_dir="/c", strategy="sync-ps"), True),
        (of("ps", "worker"), False),
        (of("ps", "worker", checkpoint_dir="gs://b/c"), False),
        (of("ps", "worker", checkpoint_dir="/c", recovery=Recovery(allow_scratch=True)), False),
        (of("worker", checkpoint_dir="/c"), False),
        (of("ps", "worker", checkpoint_dir="/c", strategy="kvstore"), False),
        (of("chief", "worker", checkpoint_dir="/c", strategy="in-graph"), False),
    ],
)
def test_parameters_on_ps_need_a_checkpoint_to_survive_it(value: Cluster, needed: bool) -> None:
    assert planned(value).needs_checkpoint is needed


def test_a_synchronous_chief_is_given_the_time_that_it_takes_to_close() -> None:
    assert planned(of("ps", "worker")).settle_s == 30.0
    assert planned(of("ps", "worker", strategy="sync-ps")).settle_s == 150.0
    assert planned(of("ps", "worker", strategy="sync-ps", settle_s=5.0)).settle_s == 5.0


@pytest.mark.parametrize(
    ("args", "step"),
    [
        (("--batch_size=8", "--train_steps=300"), 300),
        (("--max_steps", "200"), 200),
        (("-target_step=7",), 7),
        (("--train_steps=all",), None),
        (("--train_steps",), None),
        (("--my_train_steps=3",), None),
        (("--max-steps", "410"), 410),
        (("--num_train_steps=510",), 510),
        (("--max_train_steps", "610"), 610),
        (("--train-iters", "710"), 710),
        (("--max_iters=810",), 810),
        (("--total-timesteps", "90000"), 90000),
        (("--trainer.max_steps=910",), 910),
        (("trainer.max_steps=1010",), 1010),
        (("max_steps", "7"), None),
        (("--max_steps=-1",), None),
        (("--warmup_steps=3", "--eval-steps", "5", "--save_steps=7"), None),
        ((), None),
    ],
)
def test_the_target_step_stands_in_the_leads_words(args: tuple[str, ...], step: int | None) -> None:
    for launch in (Launch(command=("./t",), args=args), Launch(command=("python", "t.py", *args))):
        jobs = [job("ps", ["a"], [1]), job("worker", ["b"], [2], launch=launch)]
        assert planned(cluster(*jobs)).target_step == step
        assert planned(cluster(*jobs, target_step=9)).target_step == 9
