"""Directories and the number of GPUs as trainers of platforms read them: flags or variables, by choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtctl.config import load_cluster
from dtctl.errors import ConfigError
from dtctl.plan.hosts import on_this_machine
from dtctl.plan.roster import RunPlan, TaskPlan, shown
from dtctl.plan.run import plan_run
from dtctl.plan.spec import host_spec, run_spec

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


def words(task: TaskPlan) -> list[str]:
    return [shown(word) for word in task.argv[2:]]


def variables(task: TaskPlan) -> dict[str, str]:
    return {name: shown(text) for name, text in task.env.items() if name.endswith(("_DIR", "_GPUS", "_GPU"))}


def mistakes(directory: Path, text: str) -> str:
    file = directory / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_cluster(file)
    return "\n".join(f"{problem.place} {problem.summary} | {problem.hint}" for problem in error.value.problems)


def test_no_directory_is_passed_without_platform(tmp_path: Path) -> None:
    ps, worker = planned(tmp_path, "args: {}").tasks
    assert words(ps) == words(worker) == []
    assert variables(worker) == {}


def test_flags_are_those_of_the_directories_that_are_set_and_the_gpus(tmp_path: Path) -> None:
    ps, worker = planned(tmp_path, "platform: flags").tasks
    assert words(ps) == ["--data_dir=/data/digits", "--output_dir=~/dtctl/digits/out", "--num_gpus=0"]
    assert words(worker) == ["--data_dir=/mnt/digits", "--output_dir=~/dtctl/digits/out", "--num_gpus=2"]
    assert variables(worker) == {}


def test_variables_are_their_twins(tmp_path: Path) -> None:
    _, worker = planned(tmp_path, "platform: env").tasks
    assert words(worker) == []
    assert variables(worker) == {"DATA_DIR": "/mnt/digits", "OUTPUT_DIR": "~/dtctl/digits/out", "NUM_GPUS": "2"}


def test_single_names_may_be_chosen_and_one_job_may_have_none(tmp_path: Path) -> None:
    ps, worker = planned(tmp_path, "platform: [data_dir, num_gpu, OUTPUT_DIR]", job="platform: []").tasks
    assert (words(ps), variables(ps)) == ([], {})
    assert words(worker) == ["--data_dir=/mnt/digits", "--num_gpu=2"]
    assert variables(worker) == {"OUTPUT_DIR": "~/dtctl/digits/out"}


def test_explicit_flags_and_variables_take_precedence(tmp_path: Path) -> None:
    said = 'platform: [flags, env], args: {data_dir: /x, steps: 1}, env: {DATA_DIR: "/y"}'
    _, worker = planned(tmp_path, said).tasks
    assert words(worker) == ["--data_dir=/x", "--steps=1", "--output_dir=~/dtctl/digits/out", "--num_gpus=2"]
    assert variables(worker)["DATA_DIR"] == "/y"


def test_data_has_to_be_there_on_hosts_that_train(tmp_path: Path) -> None:
    plan = planned(tmp_path, "platform: flags")
    said: dict[str, Any] = {"run": "r", "digest": "", "bundle": None, "created": 0.0, "controller": "", "replaced": {}}
    specs = {host: host_spec(plan, host, run_spec(plan, **said)) for host in "ab"}
    assert (specs["a"]["brought_along"], specs["b"]["brought_along"]) == ([], ["/mnt/digits"])
    assert specs["b"]["dirs"] == ["\0HOME/dtctl/digits/out"]


@pytest.mark.parametrize("data", ["data", "~/dtctl/x/data"])
def test_data_among_the_runs_own_directories_is_the_trainers_to_make(tmp_path: Path, data: str) -> None:
    file = tmp_path / "cluster.yaml"
    text = "name: x\nhosts: {a: }\njobs: {worker: {hosts: a}}\ntrainer: {command: ./t}\n"
    file.write_text(f"{text}dirs: {{data: {data}}}\n")
    plan = plan_run(load_cluster(file), {"a": "a"}, local_python="python3")
    said: dict[str, Any] = {"run": "r", "digest": "", "bundle": None, "created": 0.0, "controller": "", "replaced": {}}
    assert host_spec(plan, "a", run_spec(plan, **said))["brought_along"] == []


def test_on_this_machine_the_hosts_have_no_directories_of_their_own(tmp_path: Path) -> None:
    cluster = on_this_machine(planned(tmp_path, "platform: flags").cluster, lambda port: True)
    worker = plan_run(cluster, {}, local_python="python3").tasks[1]
    assert words(worker)[0] == "--data_dir=/data/digits"


def test_a_directory_that_is_not_set_cannot_be_handed_over(tmp_path: Path) -> None:
    text = FILE.format(trainer="platform: [data_dir, LOG_DIR]", job="port: 2222")
    assert "trainer.platform[1]: LOG_DIR has no value, because dirs.log is not set" in mistakes(tmp_path, text)


def test_a_host_has_no_directory_that_the_others_lack(tmp_path: Path) -> None:
    text = FILE.format(trainer="args: {}", job="port: 2222").replace("data: /data/digits, ", "")
    assert "hosts.b.dirs.data is set, but dirs.data is not" in mistakes(tmp_path, text)


def test_an_unknown_name_is_a_mistake_with_a_suggestion(tmp_path: Path) -> None:
    text = FILE.format(trainer="platform: [num_gpuss]", job="port: 2222")
    told = mistakes(tmp_path, text)
    assert "trainer.platform[0] is 'num_gpuss'" in told
    assert "did you mean 'num_gpus'?" in told
