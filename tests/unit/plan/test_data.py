"""Which directory of data each task reads, and who gets which of the files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dtctl.config.cluster import Cluster, Data, Launch
from dtctl.model import DataShard, TaskId
from dtctl.plan.hosts import DataPlace, brought_along, data_places, directories, on_this_machine
from dtctl.plan.run import plan_run
from dtctl.plan.spec import digest
from tests.unit.clusters import cluster, job, ssh_host

SOURCE = Path("/here/digits")


def with_data(shard: DataShard = "none", jobs: tuple[str, ...] | None = None, **settings: Any) -> Cluster:
    """ps on a, chief on b, two workers on c and one on d, an evaluator on d."""
    own = [job("ps", ["a"], [1]), job("chief", ["b"], [1]), job("worker", ["c", "c", "d"], [1, 2, 1])]
    own.append(job("evaluator", ["d"], [2]))
    hosts = [ssh_host(name, **({"dirs": {"data": "/ssd"}} if name == "d" else {})) for name in "abcd"]
    data = Data(source=SOURCE, shard=shard, jobs=jobs)
    return cluster(*own, hosts=hosts, dirs={"data": "digits"}, data=data, **settings)


HOME = directories(cluster(dirs={"data": "digits"}), ssh_host("c"))["data"]


def test_every_host_with_a_task_that_reads_gets_all_once() -> None:
    assert data_places(with_data()) == (DataPlace("b", HOME), DataPlace("c", HOME), DataPlace("d", "/ssd"))


@pytest.mark.parametrize(
    ("jobs", "hosts"), [(("worker",), "cd"), (("ps", "worker"), "acd"), (("evaluator",), "d"), ((), "")]
)
def test_the_file_says_which_jobs_get_it(jobs: tuple[str, ...], hosts: str) -> None:
    assert [place.host for place in data_places(with_data(jobs=jobs))] == list(hosts)


def test_files_are_dealt_out_to_those_that_train_and_the_others_read_all() -> None:
    assert data_places(with_data("worker")) == (
        DataPlace("b", f"{HOME}/chief-0", (0, 4)),
        DataPlace("c", f"{HOME}/worker-0", (1, 4)),
        DataPlace("c", f"{HOME}/worker-1", (2, 4)),
        DataPlace("d", "/ssd/worker-2", (3, 4)),
        DataPlace("d", "/ssd/all"),
    )


def test_a_chief_that_only_coordinates_gets_no_share() -> None:
    places = {place.directory: place.share for place in data_places(with_data("worker", strategy="ps-strategy"))}
    assert places[f"{HOME}/all"] is None
    assert [share for share in places.values() if share] == [(0, 3), (1, 3), (2, 3)]


def test_each_task_is_given_the_directory_that_it_gets() -> None:
    value = with_data("worker")
    plain = Launch(command=("train",), dialect="none", platform=("data_dir",))
    jobs = {name: dataclasses.replace(one, launch=plain) for name, one in value.jobs.items()}
    plan = plan_run(dataclasses.replace(value, jobs=jobs), {name: name for name in "abcd"}, local_python="python3")
    told = {str(task.id): task.argv[-1].partition("=")[2] for task in plan.tasks}
    assert {name: told[name] for name in ("chief:0", "worker:1", "worker:2", "evaluator:0")} == {
        "chief:0": f"{HOME}/chief-0",
        "worker:1": f"{HOME}/worker-1",
        "worker:2": "/ssd/worker-2",
        "evaluator:0": "/ssd/all",
    }


def test_on_this_machine_the_source_itself_is_read() -> None:
    here = on_this_machine(with_data("worker"), lambda port: True)
    assert data_places(here) == ()
    assert directories(here, here.hosts["d"])["data"] == str(SOURCE)
    assert TaskId("worker", 0) in here.tasks()


def test_a_host_need_not_have_data_that_is_brought_before_the_start() -> None:
    value = with_data()
    assert brought_along(value, value.hosts["d"], {"data": "/ssd"}) == ()


def test_where_the_source_lies_makes_no_other_run_but_who_gets_it_does() -> None:
    value = with_data()
    moved = dataclasses.replace(value, data=dataclasses.replace(value.data, source=Path("/elsewhere")))
    assert digest(moved, "x") == digest(value, "x") != digest(with_data("worker"), "x")
