"""What `plan_run` makes of the settings of a cluster, and the part that each task of a run has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtctl.config.cluster import Launch, Trainer
from dtctl.errors import PreflightError
from dtctl.model import Host, Local, TaskId
from dtctl.plan.hosts import on_this_machine
from dtctl.plan.roster import TaskPlan, plan_roster, restoring_hosts, shown
from tests.unit.clusters import cluster, job, ssh_host
from tests.unit.plan.test_plan import planned, task


def trained(*words: str, host: dict[str, Any] | None = None, **trainer: Any) -> TaskPlan:
    """One worker whose command is these words."""
    launch = Launch(command=words or ("python",), dialect="none")
    settings = Trainer(code=Path("/p"), **trainer)
    hosts = [ssh_host("a", **(host or {}))]
    return planned(cluster(job("worker", ["a"], [2222], launch=launch), hosts=hosts, trainer=settings)).tasks[0]


@pytest.mark.parametrize(
    ("trainer", "host", "interpreter"),
    [
        ({"python": "python3.11"}, {}, "python3.11"),
        ({"python": "~/py/bin/python"}, {}, "~/py/bin/python"),
        ({}, {"python": "~/own/python"}, "~/own/python"),
        ({}, {"python": "pypy3"}, "pypy3"),
        ({"python": "python3.11", "venv": "~/venv"}, {}, "python3.11"),
        ({"venv": "/opt/venv"}, {"python": "pypy3"}, "pypy3"),
    ],
)
def test_the_interpreter_is_the_hosts_or_the_trainers_or_the_venvs(
    trainer: dict[str, str], host: dict[str, str], interpreter: str
) -> None:
    for word in ("python", "python3"):
        argv = trained(word, "-u", "python", host=host, **trainer).argv
        assert tuple(map(shown, argv)) == (interpreter, "-u", "python")
    assert trained("./python", host=host, **trainer).argv == ("./python",)


def test_a_local_host_beside_others_has_this_machines_interpreter_and_its_own_address() -> None:
    launch = Launch(command=("python",))
    hosts = [ssh_host("a"), Host("b", Local(), address="10.0.0.9")]
    plan = planned(cluster(job("worker", ["a", "b"], [1, 2], launch=launch), hosts=hosts))
    assert [(one.argv[0], one.address) for one in plan.tasks] == [
        ("python3", "a.example:1"),
        ("/here/python", "10.0.0.9:2"),
    ]


def test_a_local_host_without_an_address_is_loopback_only_among_its_like() -> None:
    plan = planned(on_this_machine(cluster(), lambda port: True))
    assert {one.address.partition(":")[0] for one in plan.tasks} == {"127.0.0.1"}
    hosts = [Host("a", Local(), address="10.0.0.1"), Host("b", Local())]
    plan = planned(cluster(job("worker", ["a", "b"], [1, 2]), hosts=hosts))
    assert [one.address for one in plan.tasks] == ["10.0.0.1:1", "127.0.0.1:2"]
    with pytest.raises(PreflightError, match="host b is local"):
        planned(cluster(job("worker", ["a", "b"], [1, 2]), hosts=[ssh_host("a", address="x"), Host("b", Local())]))


SERVERS = {"ps": "listening", "chief": "listening", "worker": "listening", "evaluator": "started"}
CLIENT = {**SERVERS, "chief": "started"}


@pytest.mark.parametrize(
    ("dialect", "strategy", "ready"),
    [
        ("tensorflow", "auto", SERVERS),
        ("tf_config", "sync-ps", SERVERS),
        ("flags", "in-graph", CLIENT),
        ("flags", "ps-strategy", CLIENT),
        ("none", "auto", dict.fromkeys(SERVERS, "started")),
        ("template", "auto", dict.fromkeys(SERVERS, "started")),
        ("flags", "ddp", {"worker": "started"}),
        ("tensorflow", "kvstore", {"ps": "started", "worker": "started"}),
        ("tensorflow", "auto", {"chief": "started", "evaluator": "started"}),
        ("flags", "auto", {"worker": "started"}),
    ],
)
def test_task_with_a_server_is_ready_when_it_listens(dialect: Any, strategy: Any, ready: dict[str, str]) -> None:
    template = ("{task}",) if dialect == "template" else ()
    launch = Launch(command=("./t",), dialect=dialect, template=template)
    jobs = [job(name, ["a"], [port], launch=launch) for port, name in enumerate(ready, 1)]
    plan = planned(cluster(*jobs, strategy=strategy))
    assert {one.id.job: one.ready for one in plan.tasks} == ready


def test_every_field_is_that_of_the_task() -> None:
    words = (
        "{task} {job_name} {task_index}",
        "{host}:{port}",
        "{lead_host}:{lead_port}",
        "{num_tasks} {num_gpus} {cluster}",
    )
    launch = Launch(command=("./t",), args=words, dialect="none")
    jobs = (job("ps", ["a"], [2222]), job("worker", ["b", "c"], [2223, 2224], launch=launch))
    plan = planned(cluster(*jobs, hosts=[ssh_host(name, gpus=2 if name == "c" else 0) for name in "abc"]))
    assert task(plan, "worker:1").argv[1:] == (
        "worker:1 worker 1",
        "c.example:2224",
        "b.example:2223",
        "2 2 digits",
    )
    assert task(plan, "worker:0").argv[4] == "2 0 digits"


def test_an_ipv6_address_is_whole_in_every_field() -> None:
    launch = Launch(command=("./t",), args=("{host} {port}", "{lead_host} {lead_port}"), dialect="none")
    hosts = [ssh_host("a", address="fd00::1")]
    plan = planned(cluster(job("worker", ["a"], [2223], launch=launch), hosts=hosts))
    assert plan.tasks[0].argv[1:] == ("[fd00::1] 2223", "[fd00::1] 2223")


def test_traffic_between_tasks_goes_past_a_proxy_that_is_kept() -> None:
    assert "no_grpc_proxy" not in trained().env
    settings = Trainer(code=Path("/p"), keep_proxy=True)
    plan = planned(cluster(trainer=settings))
    assert {one.env["no_grpc_proxy"] for one in plan.tasks} == {"a.example,b.example,c.example,d.example"}
    assert all(one.keep_proxy for one in plan.tasks)


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


@pytest.mark.parametrize(
    ("strategy", "hosts"),
    [
        ("auto", ("c", "a", "b")),
        ("sync-ps", ("c", "a", "b")),
        ("in-graph", ("c", "a", "b")),
        ("ps-strategy", ("c", "a", "b")),
        ("mirrored", ("c", "d")),
        ("single", ("c",)),
    ],
)
def test_the_lead_and_whoever_restores_a_part_of_its_own(strategy: str, hosts: tuple[str, ...]) -> None:
    """The lead is worker:0 on c, ps tasks are on a and b, worker:1 on d."""
    assert restoring_hosts(plan_roster(cluster(strategy=strategy))) == hosts


def test_a_host_is_named_once_and_an_evaluator_begins_nothing() -> None:
    jobs = (job("ps", ["a", "b"], [2222] * 2), job("worker", ["b", "a"], [2223] * 2), job("evaluator", ["c"], [2224]))
    assert restoring_hosts(plan_roster(cluster(*jobs))) == ("b", "a")
