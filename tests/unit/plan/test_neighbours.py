"""What trainers of other frameworks and of platforms learn about their place: flags or variables, by choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dtctl.config.cluster import Cluster, Launch
from dtctl.config.load import load_cluster
from dtctl.config.strategies import Strategy, strategy_of
from dtctl.errors import ConfigError
from dtctl.model import Dialect, Host
from dtctl.plan import RunPlan, TaskPlan, shown
from dtctl.plan.hosts import on_this_machine
from dtctl.plan.run import plan_run
from dtctl.plan.spec import host_spec, run_spec
from tests.unit.clusters import cluster, job, ssh_host

NAMES = {name: f"{name}.example" for name in "abc"}


def trainers(dialect: Dialect, hosts: list[Host] | None = None) -> Cluster:
    """A chief on b, two workers on a, one on b, and an evaluator on c."""
    launch = Launch(command=("./train",), dialect=dialect)
    return cluster(
        job("worker", ["a", "a", "b"], [2222, 2223, 2222], launch=launch),
        job("chief", ["b"], [2223], launch=launch),
        job("evaluator", ["c"], [2222], launch=launch),
        hosts=hosts,
    )


def env(value: Cluster) -> dict[str, dict[str, str]]:
    return {str(task.id): dict(task.env) for task in plan_run(value, NAMES, local_python="python").tasks}


def table(value: Cluster, *names: str) -> dict[str, tuple[str | None, ...]]:
    return {task: tuple(given.get(name) for name in names) for task, given in env(value).items()}


def test_ranks_begin_with_the_lead_and_count_on_each_host() -> None:
    value = trainers("pytorch")
    assert table(value, "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE") == {
        "worker:0": ("1", "0", "2"),
        "worker:1": ("2", "1", "2"),
        "worker:2": ("3", "1", "2"),
        "chief:0": ("0", "0", "2"),
        "evaluator:0": (None, None, None),
    }
    meeting = {(given["MASTER_ADDR"], given["MASTER_PORT"], given["WORLD_SIZE"]) for given in env(value).values()}
    assert meeting == {("b.example", "2223", "4")}


def test_with_pytorch_hosts_are_numbered_in_the_order_of_their_first_ranks() -> None:
    """Lightning computes the rank of a task from it."""
    assert table(trainers("pytorch"), "GROUP_RANK", "GROUP_WORLD_SIZE") == {
        "worker:0": ("1", "2"),
        "worker:1": ("1", "2"),
        "worker:2": ("0", "2"),
        "chief:0": ("0", "2"),
        "evaluator:0": (None, None),
    }


def test_an_ipv6_address_has_brackets_only_beside_a_port() -> None:
    value = cluster(
        job("worker", ["a"], [2222], launch=Launch(command=("./train",), dialect="pytorch")),
        hosts=[ssh_host("a", address="fd00::1")],
    )
    assert table(value, "MASTER_ADDR") == {"worker:0": ("fd00::1",)}


def test_with_pytorch_every_trainer_of_a_host_sees_all_their_gpus() -> None:
    """LOCAL_RANK is the index of the one that it takes."""
    hosts = [ssh_host("a", gpus=4), ssh_host("b", gpus=2), ssh_host("c")]
    seen = table(trainers("pytorch", hosts), "CUDA_VISIBLE_DEVICES")
    assert seen == {
        "worker:0": ("0,1,2,3",),
        "worker:1": ("0,1,2,3",),
        "worker:2": ("0,1",),
        "chief:0": ("0,1",),
        "evaluator:0": ("-1",),
    }
    assert table(trainers("jax", hosts), "CUDA_VISIBLE_DEVICES")["worker:1"] == ("2,3",)


def test_jax_gets_the_address_of_its_coordinator() -> None:
    given = env(trainers("jax"))
    assert [given[task].get("PROCESS_ID") for task in given] == ["1", "2", "3", "0", None]
    assert {task["NUM_PROCESSES"] for task in given.values()} == {"4"}
    addresses = {task[name] for task in given.values() for name in ("COORDINATOR_ADDRESS", "JAX_COORDINATOR_ADDRESS")}
    assert addresses == {"b.example:2223"}


SLURM = ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST")


def test_jax_finds_its_processes_without_arguments() -> None:
    """As jax/_src/clusters/slurm_cluster.py reads them."""
    nodes = ("2", "b.example,a.example")
    assert table(trainers("jax"), *SLURM) == {
        "worker:0": ("4", "1", "0", *nodes),
        "worker:1": ("4", "2", "1", *nodes),
        "worker:2": ("4", "3", "1", *nodes),
        "chief:0": ("4", "0", "0", *nodes),
        "evaluator:0": (None,) * 5,
    }
    assert int(env(trainers("jax"))["worker:0"]["SLURM_JOB_ID"]) > 0


def test_jax_sees_every_gpu_that_its_task_may_use() -> None:
    """By itself it takes the one of SLURM_LOCALID, as if it saw those of the whole host."""
    hosts = [ssh_host("a", gpus=4), ssh_host("b"), ssh_host("c")]
    seen = table(trainers("jax", hosts), "CUDA_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS")
    assert seen["worker:1"] == ("2,3", "0,1")
    assert seen["chief:0"] == (None, ",".join(map(str, range(16))))
    assert seen["evaluator:0"] == ("-1", None)


def test_variables_of_slurm_are_set_for_jax_alone() -> None:
    """Lightning and others take a program for a step of Slurm by them."""
    others: tuple[Dialect, ...] = ("pytorch", "cluster_spec", "tensorflow", "flags", "tf_config", "none")
    for dialect in others:
        assert not any(name.startswith("SLURM_") for given in env(trainers(dialect)).values() for name in given)


def test_cluster_spec_is_json_beside_job_and_index() -> None:
    given = env(trainers("cluster_spec"))["worker:1"]
    assert (given["JOB_NAME"], given["TASK_INDEX"]) == ("worker", "1")
    assert json.loads(given["CLUSTER_SPEC"]) == {
        "worker": ["a.example:2222", "a.example:2223", "b.example:2222"],
        "chief": ["b.example:2223"],
    }


def test_other_dialects_add_neither_arguments_nor_tf_config() -> None:
    for dialect in ("pytorch", "jax", "cluster_spec"):
        for task in plan_run(trainers(dialect), NAMES, local_python="python").tasks:
            assert task.argv == ("./train",)
            assert "TF_CONFIG" not in task.env
            assert task.ready == "started"


KVSTORE = """
name: mx
hosts:
  a:
  b: {gpus: 2}
jobs:
  server: {hosts: [a], port: 9100}
  worker: {hosts: [b, a], command: [./train]}
trainer: {command: [./serve], dialect: mxnet}
"""


def kvstore(tmp_path: Path, text: str = KVSTORE) -> Cluster:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    return load_cluster(file)


def test_mxnet_gets_a_scheduler_beside_the_lead(tmp_path: Path) -> None:
    value = kvstore(tmp_path)
    assert strategy_of(value) is Strategy.KVSTORE
    assert [str(task) for task in value.tasks()] == ["server:0", "worker:0", "worker:1", "scheduler:0"]
    scheduler = value.jobs["scheduler"]
    assert (scheduler.hosts, scheduler.launch.command, scheduler.launch.dialect) == (("b",), ("./train",), "mxnet")
    own = table(value, "DMLC_ROLE", "DMLC_NODE_HOST", "CUDA_VISIBLE_DEVICES")
    assert own == {
        "server:0": ("server", "a.example", "-1"),
        "worker:0": ("worker", "b.example", "0,1"),
        "worker:1": ("worker", "a.example", None),
        "scheduler:0": ("scheduler", "b.example", "-1"),
    }
    port = str(scheduler.ports[0])
    common = table(value, "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER")
    assert set(common.values()) == {("b.example", port, "2", "1")}


def test_a_scheduler_of_the_file_stays_where_it_is(tmp_path: Path) -> None:
    value = kvstore(tmp_path, KVSTORE.replace("jobs:\n", "jobs:\n  scheduler: {hosts: [a], port: 9000}\n"))
    assert (value.jobs["scheduler"].hosts, value.jobs["scheduler"].ports) == (("a",), (9000,))
    assert set(table(value, "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT").values()) == {("a.example", "9000")}


def test_mxnet_without_a_server_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        kvstore(tmp_path, KVSTORE.replace("  server: {hosts: [a], port: 9100}\n", ""))
    assert [problem.summary for problem in raised.value.problems] == ["the dialect mxnet needs a job 'server'"]


def test_an_evaluator_beside_mxnet_is_no_node_of_it(tmp_path: Path) -> None:
    value = kvstore(tmp_path, KVSTORE.replace("trainer:", "  evaluator: {hosts: [a], command: [./score]}\ntrainer:"))
    given = env(value)
    assert {name for name in given["evaluator:0"] if name.startswith("DMLC")} == set()
    assert given["worker:1"]["DMLC_NUM_WORKER"] == "2"


FILE = """\
name: digits
hosts: {{a: {{address: 10.0.0.1}}, b: {{address: 10.0.0.2, gpus: 2, dirs: {{data: /mnt/digits}}}}}}
jobs: {{ps: {{hosts: a, {job}}}, worker: {{hosts: b}}}}
trainer: {{command: python train.py, dialect: none, {trainer}}}
dirs: {{data: /data/digits, output: out}}
"""


def planned(directory: Path, trainer: str, job: str = "port: 2222") -> RunPlan:
    file = directory / "cluster.yaml"
    file.write_text(FILE.format(trainer=trainer, job=job))
    return plan_run(load_cluster(file), {}, local_python="python3")


def flags(task: TaskPlan) -> list[str]:
    return [shown(word) for word in task.argv[2:]]


def variables(task: TaskPlan) -> dict[str, str]:
    return {name: shown(text) for name, text in task.env.items() if name.endswith(("_DIR", "_GPUS", "_GPU"))}


def mistakes(directory: Path, text: str) -> str:
    file = directory / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_cluster(file)
    return "\n".join(f"{problem.place} {problem.summary} | {problem.hint}" for problem in error.value.problems)


OUTPUT = "~/dtctl/digits/out"
PORT = "port: 2222"
FLAGS = ["--data_dir=/mnt/digits", f"--output_dir={OUTPUT}", "--num_gpus=2"]


@pytest.mark.parametrize(
    ("trainer", "job", "flags_of_ps", "flags_of_worker", "variables_of_worker"),
    [
        ("args: {}", PORT, [], [], {}),
        ("platform: flags", PORT, ["--data_dir=/data/digits", f"--output_dir={OUTPUT}", "--num_gpus=0"], FLAGS, {}),
        ("platform: env", PORT, [], [], {"DATA_DIR": "/mnt/digits", "OUTPUT_DIR": OUTPUT, "NUM_GPUS": "2"}),
        (
            *("platform: [data_dir, num_gpu, OUTPUT_DIR]", "platform: []"),
            *([], ["--data_dir=/mnt/digits", "--num_gpu=2"], {"OUTPUT_DIR": OUTPUT}),
        ),
    ],
    ids=["nothing", "flags", "variables", "single names, and none for one job"],
)
def test_directories_and_gpus_are_passed_as_platform_says(
    tmp_path: Path,
    trainer: str,
    job: str,
    flags_of_ps: list[str],
    flags_of_worker: list[str],
    variables_of_worker: dict[str, str],
) -> None:
    ps, worker = planned(tmp_path, trainer, job=job).tasks
    assert (flags(ps), flags(worker), variables(worker)) == (flags_of_ps, flags_of_worker, variables_of_worker)
    assert trainer == "platform: env" or variables(ps) == {}


def test_explicit_flags_and_variables_take_precedence(tmp_path: Path) -> None:
    settings = 'platform: [flags, env], args: {data_dir: /x, steps: 1}, env: {DATA_DIR: "/y"}'
    _, worker = planned(tmp_path, settings).tasks
    assert flags(worker) == ["--data_dir=/x", "--steps=1", "--output_dir=~/dtctl/digits/out", "--num_gpus=2"]
    assert variables(worker)["DATA_DIR"] == "/y"


def test_data_has_to_be_there_on_hosts_that_train(tmp_path: Path) -> None:
    plan = planned(tmp_path, "platform: flags")
    kw: dict[str, Any] = {"run": "r", "digest": "", "bundle": None, "created": 0.0, "controller": "", "replaced": {}}
    specs = {host: host_spec(plan, host, run_spec(plan, **kw)) for host in "ab"}
    assert (specs["a"]["brought_along"], specs["b"]["brought_along"]) == ([], ["/mnt/digits"])
    assert specs["b"]["dirs"] == ["\0HOME/dtctl/digits/out"]


@pytest.mark.parametrize("data", ["data", "~/dtctl/x/data"])
def test_data_among_the_runs_own_directories_is_the_trainers_to_make(tmp_path: Path, data: str) -> None:
    file = tmp_path / "cluster.yaml"
    text = "name: x\nhosts: {a: }\njobs: {worker: {hosts: a}}\ntrainer: {command: ./t}\n"
    file.write_text(f"{text}dirs: {{data: {data}}}\n")
    plan = plan_run(load_cluster(file), {"a": "a"}, local_python="python3")
    kw: dict[str, Any] = {"run": "r", "digest": "", "bundle": None, "created": 0.0, "controller": "", "replaced": {}}
    assert host_spec(plan, "a", run_spec(plan, **kw))["brought_along"] == []


def test_on_this_machine_the_hosts_have_no_directories_of_their_own(tmp_path: Path) -> None:
    cluster = on_this_machine(planned(tmp_path, "platform: flags").cluster, lambda port: True)
    worker = plan_run(cluster, {}, local_python="python3").tasks[1]
    assert flags(worker)[0] == "--data_dir=/data/digits"


def test_a_directory_that_is_not_set_cannot_be_handed_over(tmp_path: Path) -> None:
    text = FILE.format(trainer="platform: [data_dir, LOG_DIR]", job="port: 2222")
    assert "trainer.platform[1]: LOG_DIR has no value, because dirs.log is not set" in mistakes(tmp_path, text)


def test_a_host_has_no_directory_that_the_others_lack(tmp_path: Path) -> None:
    text = FILE.format(trainer="args: {}", job="port: 2222").replace("data: /data/digits, ", "")
    assert "hosts.b.dirs.data is set, but dirs.data is not" in mistakes(tmp_path, text)


def test_an_unknown_name_is_a_mistake_with_a_suggestion(tmp_path: Path) -> None:
    text = FILE.format(trainer="platform: [num_gpuss]", job="port: 2222")
    message = mistakes(tmp_path, text)
    assert "trainer.platform[0] is 'num_gpuss'" in message
    assert "did you mean 'num_gpus'?" in message
