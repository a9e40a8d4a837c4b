"""What `plan_run` makes of a cluster's settings, and what `plan` and `up --dry-run` tell of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dtctl.config.cluster import Launch, Trainer
from dtctl.config.load import load_cluster
from dtctl.errors import PreflightError
from dtctl.model import Host, Local, TaskId
from dtctl.plan import RunPlan, TaskPlan, dialects, plan_roster, restoring_hosts, shown
from dtctl.plan.hosts import on_this_machine
from dtctl.plan.run import plan_run
from dtctl.render.machine import document
from dtctl.render.plan import order_lines, show_plan, show_whole_tasks, survival_lines
from dtctl.render.terminal import console
from tests.unit.clusters import cluster, job, ssh_host
from tests.unit.plan.test_plan import planned, task


def trained(*args: str, host: dict[str, Any] | None = None, **trainer: Any) -> TaskPlan:
    """One worker whose command is these words."""
    launch = Launch(command=args or ("python",), dialect="none")
    settings = Trainer(code=Path("/p"), **trainer)
    hosts = [ssh_host("a", **(host or {}))]
    return planned(cluster(job("worker", ["a"], [2222], launch=launch), hosts=hosts, trainer=settings)).tasks[0]


@pytest.mark.parametrize(
    ("trainer", "host", "interpreter"),
    [
        ({"python": "python3.11"}, {}, "python3.11"),
        ({"python": "~/py/bin/python"}, {}, "~/py/bin/python"),
        ({"python": "./py/bin/python"}, {}, "~/dtctl/digits/py/bin/python"),
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


def test_local_host_beside_others_has_this_interpreter_and_its_own_address() -> None:
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
    argv = (
        "{task} {job_name} {task_index}",
        "{host}:{port}",
        "{lead_host}:{lead_port}",
        "{num_tasks} {num_gpus} {cluster}",
    )
    launch = Launch(command=("./t",), args=argv, dialect="none")
    jobs = (job("ps", ["a"], [2222]), job("worker", ["b", "c"], [2223, 2224], launch=launch))
    plan = planned(cluster(*jobs, hosts=[ssh_host(name, gpus=2 if name == "c" else 0) for name in "abc"]))
    assert task(plan, "worker:1").argv[1:] == ("worker:1 worker 1", "c.example:2224", "b.example:2223", "2 2 digits")
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
def test_restoring_hosts_are_the_lead_and_those_with_own_parts(strategy: str, hosts: tuple[str, ...]) -> None:
    """The lead is worker:0 on c, ps tasks are on a and b, worker:1 on d."""
    assert restoring_hosts(plan_roster(cluster(strategy=strategy))) == hosts


def test_a_host_is_named_once_and_an_evaluator_begins_nothing() -> None:
    jobs = (job("ps", ["a", "b"], [2222] * 2), job("worker", ["b", "a"], [2223] * 2), job("evaluator", ["c"], [2224]))
    assert restoring_hosts(plan_roster(cluster(*jobs))) == ("b", "a")


NAMES = {name: name for name in "abcd"}


def plan(strategy: str) -> RunPlan:
    jobs = (job("chief", ["a"], [2222]), job("ps", ["b"], [2222]), job("worker", ["c", "d"], [2222, 2222]))
    value = cluster(*jobs, job("evaluator", ["b"], [2223]), strategy=strategy, dirs={"output": "out"})
    return plan_run(value, NAMES, local_python="python3")


def test_a_plan_shows_order_coordinator_and_restart_scopes() -> None:
    assert order_lines(plan("ps-strategy")) == [
        "strategy ps-strategy; coordinator on a, a:2221",
        "the run survives the loss of one host",
        "start order: all at once",
        "a lost task restarts alone: chief:0,evaluator:0,worker:[0-1]; with the lead: ps:0",
    ]


SURVIVES = "the run survives the loss of"


@pytest.mark.parametrize(
    ("hosts", "idle", "gpus", "lines"),
    [
        ("a", {}, {}, []),
        (
            "ab",
            {},
            {},
            ["if a is lost, no other host can coordinate; that takes a third machine (arbiters:)"],
        ),
        ("ab", {"arbiters": ("z",)}, {}, [f"{SURVIVES} one host"]),
        (
            "ab",
            {"spares": ("s",)},
            {},
            [
                f"{SURVIVES} one host",
                "when a host has been lost for 5m, s takes over its tasks if it sees the checkpoints",
            ],
        ),
        (
            "abc",
            {"spares": ("s", "t")},
            {"a": 2, "t": 1, "s": 1},
            [
                f"{SURVIVES} two hosts",
                "when a host has been lost for 5m, one of s,t takes over its tasks if it sees the checkpoints",
                "too few GPUs for the tasks of a: s,t",
            ],
        ),
    ],
)
def test_plan_says_what_losses_its_shape_survives(
    hosts: str, idle: dict[str, tuple[str, ...]], gpus: dict[str, int], lines: list[str]
) -> None:
    names = [*hosts, *idle.get("spares", ()), *idle.get("arbiters", ())]
    jobs = [job("worker", ["a", *hosts], [2222, 2223, *[2222] * (len(hosts) - 1)])]
    value = cluster(*jobs, hosts=[ssh_host(name, gpus=gpus.get(name, 0)) for name in names], dirs={"output": "out"})
    recovery = dataclasses.replace(value.recovery, replace_s=300.0 if "spares" in idle else None)
    spares, arbiters = idle.get("spares", ()), idle.get("arbiters", ())
    value = dataclasses.replace(value, recovery=recovery, spares=spares, arbiters=arbiters)
    found = survival_lines(plan_run(value, {name: name for name in names}, local_python="python3"))
    assert found == lines


def test_a_plan_shows_which_tasks_wait_for_others() -> None:
    jobs = [job("ps", ["a"], [2222]), job("worker", ["b"], [2222], depends_on=("ps",)), job("board", ["b"], [2223])]
    assert order_lines(plan_run(cluster(*jobs), NAMES, local_python="python3"))[2] == (
        "start order: board:0,ps:0 at once; worker:0 after ps:0"
    )


def test_the_machine_form_has_the_same_and_what_follows() -> None:
    shown = document.plan(plan("sync-ps"))
    assert (shown["strategy"], shown["coordinator"]) == ("sync-ps", {"host": "a", "address": "a:2221"})
    assert shown["stages"] == [
        {"name": "ps", "tasks": ["ps:0"], "after": [], "needs": []},
        {"name": "chief:0", "tasks": ["chief:0"], "after": [], "needs": [0]},
        {"name": "worker", "tasks": ["worker:0", "worker:1"], "after": [], "needs": [0, 1]},
        {"name": "evaluator", "tasks": ["evaluator:0"], "after": [], "needs": [1]},
    ]
    assert {task["task"]: task["scope"] for task in shown["tasks"]} == {
        "chief:0": "gang",
        "ps:0": "gang",
        "worker:0": "task",
        "worker:1": "task",
        "evaluator:0": "task",
    }
    assert (shown["needsCheckpoint"], shown["settleSeconds"], shown["targetStep"]) == (True, 150.0, None)


LARGE = """\
name: large
hosts:
  "gpu-[1-8]": {ssh: "10.0.0.2[1-8]", gpus: 4}
  "x-[1-2]": {gpus: 4, env: {OMP: 1}, dirs: {data: /ssd}}
jobs:
  ps: {hosts: "gpu-[1-8]"}
  worker: {hosts: ["gpu-[1-8]", "x-[1-2]"], tasks_per_host: 4}
dirs: {data: /d, output: out}
trainer: {command: [python, train.py], args: {me: "{address}", steps: 100}, env: {LEVEL: 2}, secrets: [KEY]}
"""
LARGE_SHOWN = """\
large: 48 tasks on gpu-[1-8],x-[1-2], lead worker:0
code from {code}
strategy async-ps; coordinator on gpu-1, 10.0.0.21:2221
the run survives the loss of three hosts
start order: all at once
a lost task restarts alone: ps:[0-7],worker:[0-39]

TASK          HOST       ADDRESS                     GPU     NOTE
ps:0-7        gpu-[1-8]  10.0.0.[21-28]:2222         none
worker:0-31   gpu-[1-8]  10.0.0.[21-28]:[2223-2226]  1 each
worker:32-39  x-[1-2]    :2222-2225                  1 each  OMP=1, data /ssd

each task runs python3 train.py --me=... --steps=100 --ps_hosts=... --worker_hosts=... --job_name=... --task_index=...
  with PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 LEVEL=2 TF_CONFIG=...
secrets: KEY
directories: data /d, output ~/dtctl/large/out
TF_CONFIG's cluster: the addresses above, by job and in the order of the tasks
dtctl plan worker:0    shows one task in full, --all every task
"""


@pytest.fixture
def large(tmp_path: Path) -> RunPlan:
    file = tmp_path / "cluster.yaml"
    file.write_text(LARGE)
    names = {**{f"gpu-{number}": f"10.0.0.2{number}" for number in range(1, 9)}, "x-1": "x-1", "x-2": "x-2"}
    return plan_run(load_cluster(file), names, local_python="python3")


def test_a_plan_of_48_tasks_fits_a_screen(large: RunPlan, capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(large)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "\n".join(lines) + "\n" == LARGE_SHOWN.format(code=large.cluster.trainer.code)


def test_a_small_plan_has_a_line_for_each_task_and_the_cluster_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(plan("sync-ps"))
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines() if line.startswith("worker")] == [
        ["worker:0", "c", "c:2222", "all"],
        ["worker:1", "d", "d:2222", "all"],
    ]
    cluster_of_tf_config = '{"chief": ["a:2222"], "ps": ["b:2222"], "worker": ["c:2222", "d:2222"]}'
    assert f"TF_CONFIG's cluster: {cluster_of_tf_config}" in shown


def test_differences_are_shown_below_on_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a-training-machine-of-some-length.example.com"
    (tmp_path / "cluster.yaml").write_text(
        f"name: c\nhosts: {{{name}: {{ssh: 10.0.0.1, python: /opt/python}}, b: 10.0.0.2}}\n"
        f"jobs: {{worker: {{hosts: [{name}, b]}}}}\ntrainer: {{command: [python, x.py], dialect: none}}\n"
    )
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    console.choose_color("always")
    try:
        show_plan(plan_run(load_cluster(tmp_path / "cluster.yaml"), {name: name, "b": "b"}, local_python="python3"))
    finally:
        console.choose_color("auto")
    lines = capsys.readouterr().out.splitlines()
    assert f"worker:0 on {name}: python /opt/python" in lines
    assert not [line for line in lines if line.startswith("TASK") and "NOTE" in line]


def test_jobs_with_different_programs_are_shown_apart(capsys: pytest.CaptureFixture[str]) -> None:
    value = cluster()
    ps = value.jobs["ps"]
    own = dataclasses.replace(ps, launch=dataclasses.replace(ps.launch, command=("./serve",)))
    show_plan(plan_run(dataclasses.replace(value, jobs={**value.jobs, "ps": own}), NAMES, local_python="python3"))
    shown = capsys.readouterr().out
    assert "ps runs ./serve --ps_hosts=... " in shown
    assert "worker runs python3 train.py --ps_hosts=... " in shown


def test_one_task_is_shown_with_all_that_it_is_given(large: RunPlan, capsys: pytest.CaptureFixture[str]) -> None:
    show_whole_tasks(large, [TaskId("worker", 33)])
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0] == "worker:33 on x-1, x-1:2223, GPU 1"
    assert "  OMP=1" in lines
    assert "  KEY=***" in lines
    assert "  directories: data /ssd, output ~/dtctl/large/out" in lines
    assert "--task_index=33" in shown
    assert shown.count("10.0.0.28:2226") == 2  # in the flags and in TF_CONFIG


def test_every_task_can_be_shown_as_a_whole(large: RunPlan, capsys: pytest.CaptureFixture[str]) -> None:
    show_whole_tasks(large, None)
    shown = capsys.readouterr().out
    assert shown.startswith("large: 48 tasks on ")
    assert all(f"\n\n{task.id} on {task.host}, " in shown for task in large.tasks)


def test_the_machine_form_may_be_of_some_tasks(large: RunPlan) -> None:
    assert [task["task"] for task in document.plan(large, [TaskId("ps", 3)])["tasks"]] == ["ps:3"]
    assert len(document.plan(large)["tasks"]) == 48


def test_a_port_that_its_host_is_to_choose_is_auto(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(LARGE + "ports: auto\n")
    names = {f"gpu-{number}": f"gpu-{number}" for number in range(1, 9)} | {"x-1": "x-1", "x-2": "x-2"}
    show_plan(plan_run(load_cluster(file), names, local_python="python3"))
    shown = capsys.readouterr().out
    assert "coordinator on gpu-1, gpu-1:auto" in shown
    assert "worker:0-31   gpu-[1-8]  :auto" in shown


def test_the_rank_layout_is_computed_once_for_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    of = dialects.RankLayout.of

    def counted(*given: Any, **more: Any) -> dialects.RankLayout:
        found.append(given)
        return of(*given, **more)

    monkeypatch.setattr(dialects.RankLayout, "of", counted)
    launch = dataclasses.replace(cluster().jobs["worker"].launch, dialect="pytorch")
    value = cluster(job("worker", ["a"] * 40, list(range(2222, 2262)), launch=launch))
    tasks = plan_run(value, NAMES, local_python="python3").tasks
    assert [task.env["RANK"] for task in tasks] == [str(rank) for rank in range(40)]
    assert len(found) == 2  # also with marks
