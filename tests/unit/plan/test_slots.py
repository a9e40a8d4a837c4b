"""What a plan says of hosts without a task: who votes, which tasks a spare can take, and what stands for addresses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.spec import Spec
from dtctl.agent.run.environment import Marks
from dtctl.config.cluster import Cluster, Data, Launch, Recovery, Trainer
from dtctl.config.cluster import Data as DataSource
from dtctl.model import DataShard, Dialect, TaskId
from dtctl.plan import RunPlan, named_by_others
from dtctl.plan.hosts import DataPlace, brought_along, data_places, directories, on_this_machine
from dtctl.plan.run import plan_run
from dtctl.plan.spec import digest, host_spec, run_spec
from tests.unit.clusters import cluster, job, ssh_host

REPLACE = Recovery(replace_s=300.0)


def with_idle(value: Cluster, *spares: str, arbiters: tuple[str, ...] = (), **settings: Any) -> Cluster:
    hosts = {**value.hosts, **{name: ssh_host(name) for name in (*spares, *arbiters)}}
    return dataclasses.replace(value, hosts=hosts, spares=spares, arbiters=arbiters, recovery=REPLACE, **settings)


def planned(value: Cluster) -> RunPlan:
    return plan_run(value, {name: f"{name}.example" for name in value.hosts}, local_python="python3")


def spec_of(plan: RunPlan, host: str) -> Spec:
    common = run_spec(plan, run="r", digest="d", bundle="b" * 64, created=1.0, controller="me", replaced={})
    spec = host_spec(plan, host, common)
    assert checked(Spec, json.loads(json.dumps(spec))) == spec
    return spec


def workers(*hosts: str) -> Cluster:
    return cluster(job("worker", list(hosts), [2222] * len(hosts)))


@pytest.mark.parametrize(
    ("value", "voting"),
    [
        (workers("a", "b"), "ab"),
        (with_idle(workers("a", "b"), arbiters=("z",)), "azb"),
        (with_idle(workers("a", "b"), "s"), "abs"),
        (with_idle(workers("a", "b", "c"), "s"), "abc"),  # a fourth would only be one more that may not be lost
        (with_idle(workers("a", "b", "c"), "s", "t"), "abcst"),
        (with_idle(workers("a", "b", "c", "d"), "s", arbiters=("z",)), "azbcd"),
        (with_idle(workers(*"abcdefgh"), "s", arbiters=("z",)), "azbcdef"),
        (dataclasses.replace(with_idle(workers("a", "b"), "s"), recovery=Recovery()), "ab"),  # for `replace` alone
    ],
)
def test_idle_hosts_vote_where_that_survives_more(value: Cluster, voting: str) -> None:
    plan = planned(value)
    expected = list(voting) if len(voting) >= 3 else []
    assert [voter["host"] for voter in plan.voters] == expected


def test_hosts_that_share_an_address_are_one_voter() -> None:
    """An arbiter on the machine of a worker is lost with it."""
    value = with_idle(workers("a", "b", "c"), arbiters=("z",))
    names = {"a": "one", "b": "two", "c": "three", "z": "two"}
    plan = plan_run(value, names, local_python="python3")
    assert [voter["host"] for voter in plan.voters] == ["a", "z", "c"]
    assert plan_run(value, {**names, "c": "one"}, local_python="python3").voters == ()


def test_spec_of_an_arbiter_asks_nothing_of_it_but_its_vote() -> None:
    spec = spec_of(planned(with_idle(workers("a", "b"), arbiters=("z",), dirs={"output": "/out"})), "z")
    assert (spec["bundle"], spec["tasks"], spec["slots"], spec["dirs"], spec["checkpoint_dirs"]) == (
        None,
        [],
        {},
        [],
        [],
    )
    assert (spec["arbiters"], spec["spares"]) == (["z"], {})


def test_spare_has_every_slot_with_ports_of_its_own_and_addresses_that_all_know() -> None:
    plan = planned(with_idle(cluster(), "s", coordinator_port=2222, voter_ports={"d": 3000}))
    assert {voter["host"]: voter["port"] for voter in plan.voters} == {
        "c": 2223,
        "a": 2223,
        "b": 2223,
        "d": 3000,
        "s": 2222,
    }
    spec = spec_of(plan, "s")
    ports = {task["id"]: task["port"] for tasks in spec["slots"].values() for task in tasks}
    assert ports == {"ps:0": 2223, "ps:1": 2224, "worker:0": 2225, "worker:1": 2226}
    assert {slot: [task["id"] for task in tasks] for slot, tasks in spec["slots"].items()} == {
        "a": ["ps:0"], "b": ["ps:1"], "c": ["worker:0"], "d": ["worker:1"],
    }  # fmt: skip
    for host in "abcds":
        there = spec_of(plan, host)["spares"]["s"]
        assert dict(there) == {
            "address": "s.example",
            "addresses": {task: f"s.example:{port}" for task, port in ports.items()},
            "tasks": [],
        }


DIALECTS: list[Dialect] = ["tensorflow", "flags", "tf_config", "template", "pytorch", "jax", "mxnet", "cluster_spec"]


def as_given(spec: Spec, *without: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """What tasks of a host are started with, when others take no part."""
    marks = Marks("/code", {"PATH": "/bin"})
    each = {task["id"]: (task, marks.of_task(spec, task["id"], without)) for task in spec["tasks"]}
    return {name: (of.expand(task["argv"]), of.values(task["env"])) for name, (task, of) in each.items()}


def without_marks(plan: RunPlan, host: str) -> Spec:
    spec = spec_of(dataclasses.replace(plan, marked={}), host)
    assert not any("\0" in text for task in spec["tasks"] for text in (*task["argv"], *task["env"].values()))
    return spec


@pytest.mark.parametrize("strategy", ["auto", "sync-ps"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_words_with_marks_become_those_of_a_plan_without(dialect: Dialect, strategy: Any) -> None:
    fields = "{ps_hosts} {address} {host} {port} {lead_host}:{lead_port} {worker_hosts} {task_index} {num_tasks}"
    launch = Launch(
        command=("python", "t.py"),
        args=(fields,),
        dialect=dialect,
        template=("--one={ps_hosts|space}", "{worker_hosts|space}") if dialect == "template" else (),
        env={"WHERE": "{address}"},
    )
    names = ("scheduler", "server", "worker") if dialect == "mxnet" else ("ps", "chief", "worker")
    jobs = [job(name, ["a", "b"] if name == "worker" else ["a"], [port] * (1 + (name == "worker")), launch=launch)
            for port, name in enumerate(names, 1)]  # fmt: skip
    value = cluster(*jobs, trainer=Trainer(code=cluster().trainer.code, keep_proxy=True))
    spared = planned(with_idle(value, "s", strategy=strategy))
    for host in "ab":
        marked = spec_of(spared, host)
        assert as_given(marked) == as_given(without_marks(spared, host))
        texts = [text for task in marked["tasks"] for text in (*task["argv"], *task["env"].values())]
        assert not any("example" in text for text in texts)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_participating_tasks_see_only_each_other(dialect: Dialect) -> None:
    """As in a cluster that never had the others."""

    def planned_on(*hosts: str) -> RunPlan:
        args = ("--batch={batch_per_worker}", "{num_workers} {task_index} {num_tasks} {worker_hosts}")
        template = ("--peers={worker_hosts|space}", "{worker_hosts|space}") if dialect == "template" else ()
        launch = Launch(command=("python", "t.py"), args=args, dialect=dialect, template=template)
        names = ("server", "scheduler") if dialect == "mxnet" else ("chief", "evaluator")
        jobs = [job(name, ["z"], [port], launch=launch) for port, name in enumerate(names, 1)]
        workers = job("worker", [*hosts], [4] * len(hosts), launch=launch)
        trainer = Trainer(code=cluster().trainer.code, global_batch=7)
        return planned(cluster(*jobs, workers, hosts=[ssh_host(name) for name in "abcz"], trainer=trainer))

    fewer, whole = planned_on("a", "c"), planned_on("a", "b", "c")
    assert spec_of(whole, "a")["resizes"]
    renamed = {"worker:1": "worker:2"}
    for host in "acz":
        given = {renamed.get(task, task): words for task, words in as_given(without_marks(fewer, host)).items()}
        assert as_given(spec_of(whole, host), "worker:1") == given


@pytest.mark.parametrize(("gpus", "slots"), [(2, ["a", "b"]), (1, ["b"]), (4, ["a", "b"])])
def test_spare_takes_only_tasks_for_which_it_has_gpus(gpus: int, slots: list[str]) -> None:
    hosts = [ssh_host("a", gpus=2), ssh_host("b", gpus=1), ssh_host("s", gpus=gpus)]
    jobs = [job("worker", ["a", "a", "b"], [1, 2, 1])]
    value = cluster(*jobs, hosts=hosts, spares=("s",), recovery=REPLACE)
    spec = spec_of(planned(value), "s")
    assert list(spec["slots"]) == slots
    if "a" in slots:
        visible = [task["env"]["CUDA_VISIBLE_DEVICES"] for task in spec["slots"]["a"]]
        assert visible == (["0", "1"] if gpus == 2 else ["0,1", "2,3"])


def test_setup_of_a_spare_has_no_address_that_only_the_run_knows() -> None:
    launch = Launch(command=("python",), dialect="pytorch")
    trainer = Trainer(code=cluster().trainer.code, setup="make")
    value = with_idle(cluster(job("worker", ["a", "b"], [1, 1], launch=launch), trainer=trainer), "s")
    setup = spec_of(planned(value), "s")["setup"]
    assert setup is not None
    assert not {"MASTER_ADDR", "WORLD_SIZE"} & setup["env"].keys()


def test_data_that_is_dealt_out_goes_to_spares_whole() -> None:
    code = cluster().trainer.code
    value = with_idle(workers("a", "b"), "s", data=DataSource(source=code, shard="worker"), dirs={"data": "/d"})
    assert [(place.host, place.directory) for place in data_places(value)] == [
        ("a", "/d/worker-0"), ("b", "/d/worker-1"), ("s", "/d/worker-0"), ("s", "/d/worker-1"),
    ]  # fmt: skip


def test_idle_hosts_make_another_run() -> None:
    values = [cluster(), with_idle(cluster()), with_idle(cluster(), "s"), with_idle(cluster(), arbiters=("s",))]
    assert len({digest(value, None) for value in values}) == len(values)


def test_a_task_is_named_by_others_where_their_words_have_its_address() -> None:
    own, peers = "--own=\0ADDRESS(worker:1)", "\0ADDRESS(ps:0),\0HOST(worker:0):\0PORT(worker:0)"
    assert named_by_others({"worker:1": [own, peers], "ps:0": ["--quiet", "\0HOME"]}) == {"ps:0", "worker:0"}


@pytest.mark.parametrize(("dialect", "addressed"), [("tensorflow", ["ps:0", "worker:0"]), ("none", [])])
def test_roster_says_whose_addresses_others_are_started_with(dialect: Dialect, addressed: list[str]) -> None:
    launch = Launch(command=("python",), args=("{address}",), dialect=dialect)
    jobs = [job(name, [host], [1], launch=launch) for name, host in (("ps", "a"), ("worker", "b"))]
    roster = spec_of(planned(with_idle(cluster(*jobs), "s")), "a")["roster"]
    assert [member["task"] for member in roster if member["addressed"]] == addressed


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
    reported = {str(task.id): task.argv[-1].partition("=")[2] for task in plan.tasks}
    assert {name: reported[name] for name in ("chief:0", "worker:1", "worker:2", "evaluator:0")} == {
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
