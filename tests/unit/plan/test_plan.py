"""What would run where: pure values, compared as a whole where they are short."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked, fields_of
from dtctl.agent.records.spec import RecoverySpec, Spec
from dtctl.config.cluster import Cluster, Job, Launch, Recovery, TfConfig, Trainer
from dtctl.errors import PreflightError
from dtctl.model import CHOSEN_PORT, TaskId
from dtctl.plan import RunPlan, TaskPlan, shown
from dtctl.plan.hosts import on_this_machine, output_places, task_ports
from dtctl.plan.run import plan_run
from dtctl.plan.spec import digest, host_spec, run_spec
from tests.unit.clusters import cluster, job, ssh_host

NAMES = {name: f"{name}.example" for name in "abcd"}


def planned(value: Cluster) -> RunPlan:
    return plan_run(value, NAMES, local_python="/here/python")


def task(plan: RunPlan, name: str) -> TaskPlan:
    return next(one for one in plan.tasks if str(one.id) == name)


def test_flags_hold_every_job_in_the_order_of_the_file() -> None:
    assert task(planned(cluster()), "worker:1").argv == (
        "python3",
        "train.py",
        "--ps_hosts=a.example:2222,b.example:2222",
        "--worker_hosts=c.example:2222,d.example:2222",
        "--job_name=worker",
        "--task_index=1",
    )


def sparse_or_not(**fields: Any) -> dict[str, Any]:
    """TF_CONFIG of all tasks of a cluster with every job."""
    jobs = (
        job("ps", ["a"], [2222]),
        job("chief", ["b"], [2222]),
        job("worker", ["c", "d"], [2222, 2222]),
        job("evaluator", ["a"], [2223]),
    )
    plan = planned(cluster(*jobs, tf_config=TfConfig(**fields)))
    return {str(one.id): json.loads(one.env["TF_CONFIG"]) for one in plan.tasks}


def test_tf_config_holds_environment_and_rpc_layer_where_the_file_does() -> None:
    config = sparse_or_not(environment="cloud", rpc_layer="grpc")["worker:1"]
    assert (config["environment"], config["rpc_layer"]) == ("cloud", "grpc")
    assert set(sparse_or_not()["worker:1"]) == {"cluster", "task"}


def test_an_evaluator_is_in_the_cluster_of_tf_config_by_choice() -> None:
    assert "evaluator" not in sparse_or_not()["evaluator:0"]["cluster"]
    plan = planned(cluster(job("worker", ["a"], [2222]), job("evaluator", ["b"], [2222])))
    assert not any("evaluator_hosts" in word for word in task(plan, "worker:0").argv)
    spec = sparse_or_not(evaluator_in_cluster=True)
    assert spec["worker:0"]["cluster"]["evaluator"] == ["a.example:2223"]
    assert spec["evaluator:0"]["task"] == {"type": "evaluator", "index": 0}


def test_in_a_sparse_cluster_workers_do_not_see_each_other() -> None:
    spec = sparse_or_not(sparse=True)
    assert spec["worker:1"]["cluster"] == {
        "ps": ["a.example:2222"],
        "chief": {"0": "b.example:2222"},
        "worker": {"1": "d.example:2222"},
    }
    assert spec["worker:1"]["task"] == {"type": "worker", "index": 1}
    whole = {"ps": ["a.example:2222"], "chief": ["b.example:2222"], "worker": ["c.example:2222", "d.example:2222"]}
    assert spec["ps:0"]["cluster"] == spec["chief:0"]["cluster"] == whole


@pytest.mark.parametrize(
    ("dialect", "flags", "config"),
    [("tensorflow", True, True), ("flags", True, False), ("tf_config", False, True), ("none", False, False)],
)
def test_a_dialect_gives_flags_or_tf_config_or_both(dialect: str, flags: bool, config: bool) -> None:
    launch = Launch(command=("./train",), dialect=dialect)  # type: ignore[arg-type]
    first = planned(cluster(job("worker", ["a"], [2222], launch=launch))).tasks[0]
    assert any(word.startswith("--job_name") for word in first.argv) is flags
    assert ("TF_CONFIG" in first.env) is config


@pytest.mark.parametrize(
    ("word", "args"),
    [
        ("--ps-host={ps_hosts}", ("--ps-host=a.example:2222,b.example:2222",)),
        ("{ps_hosts|space}", ("a.example:2222", "b.example:2222")),
        ("{ps_hosts | space}", ("a.example:2222", "b.example:2222")),
        ("--ps={ps_hosts|space}", ("--ps=a.example:2222 b.example:2222",)),
    ],
)
def test_a_template_gives_a_trainer_exactly_its_words(word: str, args: tuple[str, ...]) -> None:
    launch = Launch(command=("./train",), dialect="template", template=("--ps-host", word))
    jobs = (job("ps", ["a", "b"], [2222, 2222]), job("worker", ["b", "c"], [2223, 2223], launch=launch))
    assert task(planned(cluster(*jobs)), "worker:1").argv == ("./train", "--ps-host", *args)


def test_a_template_field_without_a_value_is_an_error_with_the_missing_key() -> None:
    launch = Launch(command=("./train",), dialect="template", template=("--out={output_dir}",))
    with pytest.raises(PreflightError) as error:
        planned(cluster(job("worker", ["a"], [2222], launch=launch)))
    assert "dirs.output" in error.value.hint


def test_fields_in_arguments_are_filled_and_other_braces_are_the_users_own() -> None:
    launch = Launch(command=("./train",), args=("--out={output_dir}", '--json={"a": {b}}'), dialect="none")
    plan = planned(cluster(job("worker", ["a"], [2222], launch=launch), dirs={"output": "out"}))
    assert [shown(word) for word in plan.tasks[0].argv] == ["./train", "--out=~/dtctl/digits/out", '--json={"a": {b}}']


def test_storage_urls_reach_the_trainer_as_they_are_and_the_agent_not_at_all() -> None:
    launch = Launch(
        command=("./train",),
        args=("--in={data_dir}", "--model_dir=s3://b/m"),
        dialect="none",
        platform=("output_dir", "OUTPUT_DIR"),
    )
    dirs = {"output": "gs://b/run/", "data": "https://h/digits", "log": "logs"}
    plan = planned(cluster(job("worker", ["a"], [2222], launch=launch), dirs=dirs))
    (only,) = plan.tasks
    assert only.argv[1:] == ("--in=https://h/digits", "--model_dir=s3://b/m", "--output_dir=gs://b/run/")
    assert only.env["OUTPUT_DIR"] == "gs://b/run/"
    made = {"run": "digits-1", "digest": "d", "bundle": None, "created": 1.0}
    spec = host_spec(plan, "a", run_spec(plan, **made, controller="me@here", replaced={}))  # type: ignore[arg-type]
    assert (spec["dirs"], spec["brought_along"], spec["checkpoint_dirs"]) == (["\0HOME/dtctl/digits/logs"], [], [])
    assert output_places(plan.cluster, plan.dirs["a"]) == ("gs://b/run/",)


def test_the_gpus_of_a_host_are_shared_and_ps_sees_none() -> None:
    hosts = [ssh_host("a", gpus=4)]
    plan = planned(cluster(job("ps", ["a"], [2222]), job("worker", ["a", "a"], [2223, 2224]), hosts=hosts))
    seen = {str(one.id): (one.gpus, one.env["CUDA_VISIBLE_DEVICES"]) for one in plan.tasks}
    assert seen == {"ps:0": ((), "-1"), "worker:0": ((0, 1), "0,1"), "worker:1": ((2, 3), "2,3")}
    assert [one.env.get("CUDA_DEVICE_ORDER") for one in plan.tasks] == [None, "PCI_BUS_ID", "PCI_BUS_ID"]


@pytest.mark.parametrize(
    ("gpus", "jobs", "shares"),
    [
        (3, [job("chief", ["a"], [1], gpus_per_task=2), job("worker", ["a"], [2])], [(0, 1), (2,)]),
        (4, [job("chief", ["a"], [1], gpus_per_task=1), job("worker", ["a"], [2])], [(0,), (1, 2, 3)]),
        (5, [job("worker", ["a", "a", "a"], [1, 2, 3])], [(0, 1), (2, 3), (4,)]),
    ],
    ids=["own number first", "fewer than an even share", "uneven"],
)
def test_gpus_are_shared(gpus: int, jobs: list[Job], shares: list[tuple[int, ...]]) -> None:
    plan = planned(cluster(*jobs, hosts=[ssh_host("a", gpus=gpus)]))
    assert [one.gpus for one in plan.tasks] == shares


def test_gpus_stay_as_they_are_where_none_are_declared_but_ps_sees_none() -> None:
    plan = planned(cluster())
    assert "CUDA_VISIBLE_DEVICES" not in task(plan, "worker:0").env
    assert task(plan, "ps:0").env["CUDA_VISIBLE_DEVICES"] == "-1"


def test_more_tasks_than_gpus_are_refused_with_a_way_out() -> None:
    with pytest.raises(PreflightError, match="host a has 1 GPU, too few for worker:0, worker:1") as error:
        planned(cluster(job("worker", ["a", "a"], [1, 2]), hosts=[ssh_host("a", gpus=1)]))
    assert "gpus_per_task" in error.value.hint


def test_the_environment_of_the_file_takes_precedence() -> None:
    launch = Launch(command=("t",), env={"PYTHONUNBUFFERED": "0", "A": "job", "B": "job"})
    host = ssh_host("a", env={"B": "host"})
    env = planned(cluster(job("worker", ["a"], [1], launch=launch), hosts=[host])).tasks[0].env
    assert (env["PYTHONUNBUFFERED"], env["A"], env["B"]) == ("0", "job", "host")


def test_a_venv_comes_first_in_the_path() -> None:
    plan = planned(cluster(job("worker", ["a"], [1]), trainer=Trainer(code=Path("/p"), venv="/opt/v")))
    assert shown(plan.tasks[0].env["PATH"]) == "/opt/v/bin:$PATH"


def test_an_address_of_its_own_is_what_the_others_are_given() -> None:
    hosts = [ssh_host("a", address="192.168.7.21"), ssh_host("b", address="fd00::2")]
    plan = planned(cluster(job("worker", ["a", "b"], [2222, 2222]), hosts=hosts))
    assert [one.address for one in plan.tasks] == ["192.168.7.21:2222", "[fd00::2]:2222"]


def test_on_this_machine_every_task_has_a_port_of_its_own_that_is_free() -> None:
    value = on_this_machine(cluster(), lambda port: port != 2223)
    assert {name: one.ports for name, one in value.jobs.items()} == {"ps": (2222, 2224), "worker": (2225, 2226)}
    plan = planned(value)
    assert task(plan, "worker:0").address == "127.0.0.1:2225"
    assert plan.coordinator == {"host": "c", "address": "127.0.0.1:2221", "port": 2221}


def test_on_this_machine_the_coordinator_moves_where_its_port_is_taken_or_a_tasks() -> None:
    value = on_this_machine(cluster(), lambda port: port not in (2221, 2226))
    assert value.coordinator_port == 2227
    jobs = (job("ps", ["a"], [2221]), job("worker", ["b"], [2222]))
    value = on_this_machine(cluster(*jobs), lambda port: True)
    assert (value.jobs["ps"].ports, value.coordinator_port) == ((2221,), 2223)


def test_the_coordinator_is_reached_where_the_lead_is() -> None:
    hosts = [ssh_host("a"), ssh_host("b", address="fd00::2")]
    jobs = (job("worker", ["a"], [2222]), job("chief", ["b"], [2222]))
    plan = planned(cluster(*jobs, hosts=hosts, coordinator_port=3000))
    assert plan.coordinator == {"host": "b", "address": "[fd00::2]:3000", "port": 3000}


@pytest.mark.parametrize(("host", "ports"), [("a", (2224,)), ("b", (2222, 2223)), ("c", (2222, 2223, 2224))])
def test_a_host_without_tasks_may_be_reached_on_the_ports_of_all(host: str, ports: tuple[int, ...]) -> None:
    value = cluster(job("ps", ["a", "a"], [2224, CHOSEN_PORT]), job("worker", ["b", "b"], [2223, 2222]))
    assert task_ports(value, host) == ports


def test_the_lead_decides_with_ps_and_all_workers_decide_without() -> None:
    assert planned(cluster()).success == "lead"
    assert planned(cluster(job("worker", ["a", "b"], [1, 1]))).success == "all-workers"
    assert planned(cluster(job("worker", ["a", "b"], [1, 1]), success="lead")).success == "lead"


@pytest.mark.parametrize(
    ("jobs", "lead"), [(("ps", "worker"), "worker:0"), (("worker", "chief"), "chief:0"), (("x",), "x:0")]
)
def test_the_lead_is_the_chief_or_else_the_first_worker(jobs: tuple[str, ...], lead: str) -> None:
    value = cluster(*(job(name, ["a"], [index]) for index, name in enumerate(jobs, 1)))
    assert value.lead == TaskId.parse(lead)


def test_the_spec_of_a_host_holds_its_tasks_and_the_roster_of_all() -> None:
    plan = planned(cluster(dirs={"output": "out"}))
    made = {"run": "digits-1", "digest": "d", "bundle": "b" * 64, "created": 1.0}
    spec = host_spec(plan, "c", run_spec(plan, **made, controller="me@here", replaced={"e": "c"}))  # type: ignore[arg-type]
    assert [one["id"] for one in spec["tasks"]] == ["worker:0"]
    assert [one["task"] for one in spec["roster"]] == ["ps:0", "ps:1", "worker:0", "worker:1"]
    assert spec["checkpoint_dirs"] == spec["dirs"] == ["\0HOME/dtctl/digits/out"]
    assert checked(Spec, json.loads(json.dumps(spec))) == spec
    assert (spec["version"], spec["replaced"]) == (5, {"e": "c"})


def test_the_spec_of_every_host_holds_the_policies_of_the_run() -> None:
    recovery = Recovery(mode="gang", max_restarts=3, retry=(75,), stall_s=0.0, host_timeout_s=60.0)
    value = cluster(recovery=recovery, ttl_s=5.0, keep=2, target_step=300, fail_fast=False, active_deadline_s=9.0)
    plan = planned(value)
    common = run_spec(plan, run="r", digest="d", bundle=None, created=1.0, controller="me", replaced={})
    specs = [host_spec(plan, host, common) for host in "abcd"]
    own = ("host", "tasks")
    assert all({**spec, **dict.fromkeys(own)} == {**specs[0], **dict.fromkeys(own)} for spec in specs)
    spec = specs[0]
    assert spec["coordinator"] == {"host": "c", "address": "c.example:2221", "port": 2221}
    assert spec["stages"] == [
        {"name": "ps", "tasks": ["ps:0", "ps:1"], "after": [], "held": False},
        {"name": "worker:0", "tasks": ["worker:0"], "after": [0], "held": False},
        {"name": "worker", "tasks": ["worker:1"], "after": [0, 1], "held": False},
    ]
    assert spec["roster"][2] == {
        "task": "worker:0",
        "host": "c",
        "address": "c.example:2222",
        "role": "lead",
        "scope": "gang",
        "vital": True,
        "decides": True,
        "serves": False,
        "slot": None,
        "addressed": True,
        "listens": True,
    }
    assert (spec["tasks"][0]["ready"], spec["tasks"][0]["own"]) == ("listening", False)
    same = {name: getattr(recovery, name) for name in fields_of(RecoverySpec)}
    assert spec["recovery"] == {**same, "retry": [75], "permanent": [2]}
    assert {**spec["recovery"], "max_restarts": 3, "stall_s": 0.0, "host_timeout_s": 60.0} == spec["recovery"]
    assert (spec["recovery"]["backoff_min_s"], spec["recovery"]["backoff_max_s"]) == (1.0, 60.0)
    policies = {name: spec[name] for name in ("strategy", "ttl_s", "keep", "target_step", "fail_fast", "settle_s")}
    assert policies == {
        "strategy": "async-ps",
        "ttl_s": 5.0,
        "keep": 2,
        "target_step": 300,
        "fail_fast": False,
        "settle_s": 30.0,
    }
    assert (spec["active_deadline_s"], spec["start_timeout_s"], spec["needs_checkpoint"]) == (9.0, 600.0, False)


def test_the_digest_is_that_of_earlier_builds() -> None:
    earlier = "51636978f6becb0458cc2112e2337825f4571d5445e1048a562b710398f934a9"
    assert digest(cluster(), "b") == earlier, "declare a new key as `later`"


def test_the_digest_is_that_of_the_content_wherever_the_file_lies() -> None:
    elsewhere = dataclasses.replace(cluster(), file=Path("/q/cluster.yaml"), trainer=Trainer(code=Path("/q")))
    assert digest(cluster(), "b") == digest(elsewhere, "b")
    assert digest(cluster(), "b") != digest(cluster(), "c")
    assert digest(cluster(), "b") != digest(cluster(grace_s=1.0), "b")
    assert digest(cluster(), "b") != digest(cluster(strategy="sync-ps"), "b")
    assert digest(cluster(), "b") != digest(cluster(recovery=Recovery(stall_s=1.0)), "b")
    assert digest(cluster(), "b") != digest(cluster(coordinator_port=3000), "b")
